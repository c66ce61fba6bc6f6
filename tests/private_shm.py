"""A /dev/shm of its own for a process, which nobody else uses and which may be small."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000  # CLONE_NEWNS, CLONE_NEWUSER
_PRIVATE_BELOW = 0x00044000  # MS_REC | MS_PRIVATE


def private_shm(size: str) -> Callable[[], None]:
    """Return a function for the start of a process: it mounts a /dev/shm of a size such as "64m".

    It ends with the last process that was started in it. From outside it is
    ``/proc/PID/root/dev/shm``, PID being that of the process. The test is skipped where nothing may
    be mounted.
    """
    import pytest  # not in the process that mounts it

    if not _allowed():
        pytest.skip("cannot mount a /dev/shm of its own: it is not allowed here")
    return partial(_mount, size)


def _mount(size: str) -> None:
    libc, user, group = ctypes.CDLL(None, use_errno=True), os.geteuid(), os.getegid()
    if libc.unshare(_NEW_MOUNTS):  # as others than root may in a user namespace, where they are
        _check(libc.unshare(_NEW_MOUNTS | _NEW_USER))
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _check(libc.mount(None, b"/", None, _PRIVATE_BELOW, None))
    _check(libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, f"size={size}".encode()))


def _check(status: int) -> None:
    if status:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@cache
def _allowed() -> bool:
    from jobs import run

    return run([sys.executable, "-c", ""], preexec_fn=partial(_mount, "1m")).returncode == 0
