"""A /dev/shm of its own for a command, which nobody else uses and which may be small."""

from __future__ import annotations

import subprocess
from functools import cache

import pytest

_WITHIN = 'mount -t tmpfs -o size="$0" tmpfs /dev/shm && exec "$@"'


def in_private_shm(size: str, command: list[str]) -> list[str]:
    """Return the command that runs `command` with a /dev/shm of a size such as "64m".

    It ends with the last process that was started in it. From outside it is
    ``/proc/PID/root/dev/shm``, PID being that of the command. The test is skipped where nothing may
    be mounted.
    """
    unshare = _unshare()
    if unshare is None:
        pytest.skip("cannot mount a /dev/shm of its own: unshare is missing, or not allowed here")
    return [*unshare, "sh", "-c", _WITHIN, size, *command]


@cache
def _unshare() -> list[str] | None:
    for command in (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"]):
        try:
            found = subprocess.run(
                [*command, "sh", "-c", _WITHIN, "1m", "true"], capture_output=True, check=False
            )
        except FileNotFoundError:
            return None
        if found.returncode == 0:
            return command
    return None
