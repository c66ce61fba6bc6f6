"""The server and the proxy in a process of their own, so that what is measured shares no GIL."""

# The child process imports this file.
from __future__ import annotations

import multiprocessing
import os
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, cast

import psutil
from servers.proxy import Proxy
from servers.weed import OPEN, Weed

from readers.worker.parent_watch import die_with


class Traffic(NamedTuple):
    """What was asked of a server."""

    requests: int
    nbytes: int
    """Bytes of the bodies of its answers."""


class ServerApart:
    """A store behind a proxy, in another process; its bucket `OPEN` needs no keys.

    Parameters
    ----------
    folder : Path
        Where the objects are kept.
    delay : float
        Seconds that each request waits.
    """

    def __init__(self, folder: Path, delay: float) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._end, other = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(other, folder, delay))
        self._process.start()
        other.close()
        self.endpoint = f"http://127.0.0.1:{self._end.recv()}"
        assert self._process.pid is not None
        children = psutil.Process(self._process.pid).children(recursive=True)
        self.usual_delay = delay
        self.pids = frozenset({self._process.pid, *(child.pid for child in children)})
        """All its processes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end.close()
        self._process.join()

    def put(self, key: str, file: Path) -> str:
        """Write a file as an object; return its URL."""
        self._end.send(("put", key, file))
        self._end.recv()
        return f"s3://{OPEN}/{key}"

    def delay(self, seconds: float) -> None:
        """Let each request wait so long from now on."""
        self._end.send(("delay", seconds))
        self._end.recv()

    def traffic(self) -> Traffic:
        """Return what was asked since the last call."""
        self._end.send(("traffic",))
        return cast("Traffic", self._end.recv())


def _serve(end: Connection, folder: Path, delay: float) -> None:
    die_with(os.getppid())
    with ExitStack() as stack:
        weed = Weed(folder)
        stack.callback(weed.kill)
        proxy = stack.enter_context(Proxy(weed.s3_port, delay=delay))
        end.send(proxy.port)
        while True:
            try:
                what, *given = end.recv()
            except EOFError:
                return
            answer = None
            if what == "put":
                weed.put(OPEN, given[0], given[1].read_bytes())
            elif what == "delay":
                (proxy.delay,) = given
            else:
                done = [one for one in proxy.requests if one.status]
                answer = Traffic(len(done), sum(one.nbytes for one in done))
                proxy.clear()
            end.send(answer)
