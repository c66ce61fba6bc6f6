"""Queues between a consumer and its reader processes that a killed reader cannot block.

DALI's own queue has a lock and a condition variable in shared memory: if a reader is killed while
it holds them, or waits for them, all others wait forever. Here the kernel holds the messages in a
socket: the consumer has one end, and all readers share the other.
"""

from __future__ import annotations

import os
import select
import socket
import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

Wait = Callable[[socket.socket, int], bool]
"""Waits for an event of `select.poll` at an end of a queue, at least for a while; returns False if
the other end is closed or no longer used."""

_MOST_RECEIVED = 1024
"""Messages to receive at once, at most."""
_MOST_SENT = 64
"""Messages to send at once, at most: the kernel accepts 2 KiB whole or not at all, however small
net.core.wmem_default is."""
_POLL_MS = 1000
"""Interval at which a waiting reader checks whether its other thread has closed the queue."""


class MessageQueue:
    """Pass messages of one length: a replacement for DALI's ShmQueue, with the same methods.

    In the process that made it this is the consumer's end of the queue, in all others the readers'.
    The class of the messages is DALI's ShmMessageDesc; the other arguments are unused.
    """

    def __init__(self, message: Any, context: object = None, capacity: int = 0) -> None:
        del context, capacity
        self._message = message
        self._message_bytes = message().get_size()
        self._consumer = os.getpid()
        self._ends: Sequence[socket.socket] = socket.socketpair()
        weakref.finalize(self, _close, self._ends)
        self.is_closed = False
        self.wait: Wait = _wait

    @property
    def _end(self) -> socket.socket:
        return self._ends[0 if os.getpid() == self._consumer else -1]

    def get(self, num_samples: int | None = 1, predicate: object = None) -> list[Any] | None:
        """Receive messages as soon as there are any, at most `num_samples`; None for no limit.

        Returns
        -------
        list or None
            None if the queue is closed, or if `wait` returns False.
        """
        del predicate
        while not self.is_closed and self.wait(self._end, select.POLLIN):
            try:
                nbytes = (num_samples or _MOST_RECEIVED) * self._message_bytes
                found = self._end.recv(nbytes, socket.MSG_DONTWAIT)
            except BlockingIOError:  # another reader received it, or the poll timed out
                continue
            if not found:  # closed meanwhile
                break
            starts = range(0, len(found), self._message_bytes)
            return [self._message().unpack_from(found, start) for start in starts]
        return None

    def put(self, messages: Sequence[Any]) -> int | None:
        """Send messages; return how many, or None as `get` does."""
        for first in range(0, len(messages), _MOST_SENT):
            if not self._send(messages[first : first + _MOST_SENT]):
                return None
        return len(messages)

    def _send(self, messages: Sequence[Any]) -> bool:
        packed = bytearray(len(messages) * self._message_bytes)
        for number, message in enumerate(messages):
            message.pack_into(packed, number * self._message_bytes)
        while not self.is_closed and self.wait(self._end, select.POLLOUT):
            try:
                self._end.send(packed, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                continue
            except OSError:  # closed meanwhile
                return False
            return True
        return False

    def close(self) -> None:
        """Stop all readers if this is the consumer's end, otherwise only this one."""
        if not self.is_closed and os.getpid() == self._consumer:
            # shutdown() reaches the readers even if a forked process has a copy of this end. It is
            # not closed: another thread may wait at its descriptor, which must not be reused yet.
            self._end.shutdown(socket.SHUT_RDWR)
        self.is_closed = True

    # DALI sends the queue to readers that are not forked through these.

    @property
    def shm(self) -> SimpleNamespace:
        """Object whose ``handle`` is the file descriptor to send to a reader."""
        return SimpleNamespace(handle=self._ends[-1].fileno())

    def open_shm(self, handle: int) -> None:
        """Use the file descriptor sent to this reader."""
        self._ends = [socket.socket(fileno=handle)]

    def close_handle(self) -> None:
        """Close the consumer's copy of the readers' end."""
        self._ends[-1].close()

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_ends", "wait")
        return {name: value for name, value in vars(self).items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _ends=[], wait=_wait)


def _close(ends: Sequence[socket.socket]) -> None:
    for end in ends:
        end.close()


def _wait(end: socket.socket, event: int) -> bool:
    poll = select.poll()
    poll.register(end, event)
    # Messages still in a closed queue are discarded.
    return not any(found & select.POLLHUP for _, found in poll.poll(_POLL_MS))
