"""Kill reader processes when their consumer exits; DALI's survive a SIGKILL or SIGTERM of it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading


def die_with(pid: int) -> None:
    """Kill this process when the consumer, process `pid`, exits.

    This uses a pidfd rather than PR_SET_PDEATHSIG, which fires when the *thread* that started the
    readers ends, and under forkserver watches the server.
    """

    def watch() -> None:
        with contextlib.suppress(ProcessLookupError):  # it has exited already
            poll = select.poll()
            poll.register(os.pidfd_open(pid), select.POLLIN)
            poll.poll()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="die-with-consumer", daemon=True).start()
