"""Kill reader processes when their consumer exits; DALI's survive its SIGKILL or SIGTERM."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading


def die_with(pid: int) -> None:
    """Kill this process when the consumer, process `pid`, exits.

    This uses a pidfd. PR_SET_PDEATHSIG fires when the *thread* that started the readers ends, and
    under forkserver it watches the server.
    """

    def watch() -> None:
        with contextlib.suppress(ProcessLookupError):  # already exited
            poll = select.poll()
            poll.register(os.pidfd_open(pid), select.POLLIN)
            poll.poll()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="die-with-consumer", daemon=True).start()
