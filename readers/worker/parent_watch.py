"""Kill reader processes when their consumer exits; DALI's survive its SIGKILL or SIGTERM."""

from __future__ import annotations

import os
import select
import signal
import threading


def die_with(pid: int) -> None:
    """Kill this process when the consumer, process `pid`, exits.

    This uses a pidfd. PR_SET_PDEATHSIG fires when the *thread* that started the readers ends, and
    under forkserver it watches the server. OSError if there is no file descriptor left for it.
    """
    try:
        consumer = os.pidfd_open(pid)
    except ProcessLookupError:  # already exited
        os.kill(os.getpid(), signal.SIGKILL)
        return
    poll = select.poll()
    poll.register(consumer, select.POLLIN)

    def watch() -> None:
        poll.poll()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="die-with-consumer", daemon=True).start()
