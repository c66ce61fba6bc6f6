"""Kill reader processes when their consumer exits, even by SIGKILL."""

from __future__ import annotations

import os
import select
import signal
import threading


def die_with(pid: int) -> None:
    """Kill this process when the consumer, process `pid`, exits.

    This uses a pidfd. PR_SET_PDEATHSIG would fire when the *thread* that started the readers ends,
    and with forkserver it would watch the server. OSError if no file descriptor is left.
    """
    try:
        consumer = os.pidfd_open(pid)
    except ProcessLookupError:  # the consumer has exited
        os.kill(os.getpid(), signal.SIGKILL)
        return
    poll = select.poll()
    poll.register(consumer, select.POLLIN)

    def watch() -> None:
        poll.poll()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="die-with-consumer", daemon=True).start()
