"""Reader processes go when their consumer has gone: DALI's outlive a SIGKILL or SIGTERM of it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading


def die_with(pid: int) -> None:
    """Kill this process when the consumer has gone.

    A pidfd is used, and not PR_SET_PDEATHSIG, because that fires when the *thread* that started the
    readers ends, and under forkserver it watches the server.
    """

    def watch() -> None:
        with contextlib.suppress(ProcessLookupError):  # gone already
            poll = select.poll()
            poll.register(os.pidfd_open(pid), select.POLLIN)
            poll.poll()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="die-with-consumer", daemon=True).start()
