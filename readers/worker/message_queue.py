"""Queues between a consumer and its reader processes that no killed reader can block.

DALI's own queue keeps a lock and a condition variable in shared memory: a reader that is killed
while it holds them, or sleeps on them, leaves all others waiting for ever. Here the kernel keeps
the messages, in a socket: the consumer has one end, and all readers share the other.
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
"""Waits for an event of `select.poll` at an end of a queue, for a while at least; False if the
other end is closed, or will not be used any more."""

_ALL = 1024
"""Messages that are taken at once at most."""
_AT_ONCE = 64
"""Messages that are sent at once at most: the kernel takes 2 KiB whole or not at all, however small
net.core.wmem_default is."""
_LOOK_MS = 1000
"""How often a reader that waits looks whether its other thread has given up."""


class MessageQueue:
    """Pass messages of one size; stands in for DALI's ShmQueue, whose methods it has.

    In the process that made it this is the consumer's end of the queue, in all others a reader's.

    Parameters
    ----------
    message : type
        Class of the messages: DALI's ShmMessageDesc.
    context, capacity : object
        Not needed.
    """

    def __init__(self, message: Any, context: object = None, capacity: int = 0) -> None:
        del context, capacity
        self._message = message
        self._size = message().get_size()
        self._consumer = os.getpid()
        self._ends: Sequence[socket.socket] = socket.socketpair()
        weakref.finalize(self, _close, self._ends)
        self.is_closed = False
        self.wait: Wait = _wait

    @property
    def _end(self) -> socket.socket:
        return self._ends[0 if os.getpid() == self._consumer else -1]

    def get(self, num_samples: int | None = 1, predicate: object = None) -> list[Any] | None:
        """Take messages as soon as there is one: `num_samples` at most, None for all there are.

        Returns
        -------
        list or None
            None if the queue was closed, or if there is no use in waiting.
        """
        del predicate
        while not self.is_closed and self.wait(self._end, select.POLLIN):
            try:
                found = self._end.recv((num_samples or _ALL) * self._size, socket.MSG_DONTWAIT)
            except BlockingIOError:  # another reader took it, or none came for a while
                continue
            if not found:  # closed meanwhile
                break
            starts = range(0, len(found), self._size)
            return [self._message().unpack_from(found, start) for start in starts]
        return None

    def put(self, messages: Sequence[Any]) -> int | None:
        """Send messages; give how many, or None as `get` does."""
        for first in range(0, len(messages), _AT_ONCE):
            if not self._send(messages[first : first + _AT_ONCE]):
                return None
        return len(messages)

    def _send(self, messages: Sequence[Any]) -> bool:
        packed = bytearray(len(messages) * self._size)
        for number, message in enumerate(messages):
            message.pack_into(packed, number * self._size)
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
        """Let all readers stop, if this is the consumer's end; else only this one."""
        if not self.is_closed and os.getpid() == self._consumer:
            # It reaches the readers even where a forked process has a copy of this end. Another
            # thread may wait at it: its file descriptor must not become that of another file yet.
            self._end.shutdown(socket.SHUT_RDWR)
        self.is_closed = True

    # How DALI hands it over to readers that are not forked.

    @property
    def shm(self) -> SimpleNamespace:
        """What has the file descriptor to be sent to a reader, as its ``handle``."""
        return SimpleNamespace(handle=self._ends[-1].fileno())

    def open_shm(self, handle: int) -> None:
        """Use the file descriptor that was sent to this reader."""
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
    # What was not taken before the queue was closed is not wanted any more.
    return not any(found & select.POLLHUP for _, found in poll.poll(_LOOK_MS))
