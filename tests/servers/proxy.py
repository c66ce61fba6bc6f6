"""A proxy of HTTP on loopback that counts requests and does them harm."""

from __future__ import annotations

import asyncio
import math
import re
import ssl
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

AUTHORITY = Path(__file__).with_name("authority.pem")
"""A certificate that no machine trusts, valid until 2126; its key is not kept."""
_END = b"\r\n\r\n"
"""The end of a head."""
_PIECE = 1 << 16
_BETWEEN_PIECES = 0.02
"""Seconds between the pieces of a body that comes slowly."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What becomes of a request, by default nothing."""

    delay: float = 0.0
    """Seconds before it goes to the server."""
    status: int = 0
    """Status that the proxy answers itself; 0: the server's answer."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of the proxy's own answer."""
    body: bytes = b"<Error><Code>Fault</Code></Error>"
    """Body of the proxy's own answer."""
    drop: bool = False
    """Whether the connection is closed without an answer."""
    hang: bool = False
    """Whether there is no answer ever, until the client or the proxy closes."""
    cut: int | None = None
    """Bytes of the body after which the connection is closed; the head promises all."""
    short: int | None = None
    """Bytes of the body that the head promises and that come."""
    stall: int | None = None
    """Bytes of the body after which nothing comes, and the connection stays open."""
    rate: float = 0.0
    """Bytes of the body a second, in small pieces; 0: as they come."""
    without: tuple[str, ...] = ()
    """Headers of the request that do not reach the server, e.g. ``("range",)``."""
    before: Callable[[], object] | None = None
    """Called before the request goes to the server, e.g. to change the object."""


@dataclass(slots=True)
class Request:
    """A request that came, and what became of it."""

    method: str
    path: str
    """Without percent signs and query."""
    query: str
    headers: dict[str, str]
    """By names in small letters."""
    status: int = 0
    """0 without an answer."""
    nbytes: int = 0
    """Bytes of the body that were sent to the client."""

    @property
    def range(self) -> tuple[int, int] | None:
        """Start and stop of the range that was asked for."""
        text = self.headers.get("range")
        if text is None:
            return None
        start, last = text.removeprefix("bytes=").split("-")
        return int(start), int(last) + 1


@dataclass(slots=True)
class _Rule:
    fault: Fault
    path: str
    left: float
    """Times that it is still done."""


class Proxy:
    """Serves on a free port of loopback, in a thread of its own.

    A request reaches the server as it came, Host too, so that its signature stays right.

    Parameters
    ----------
    server_port : int
        The server's port on loopback.
    delay : float
        Seconds that each request waits.
    encrypted : bool
        Whether clients have to use TLS; ``authority.pem`` has signed for ``localhost``.
    """

    def __init__(self, server_port: int, *, delay: float = 0.0, encrypted: bool = False) -> None:
        self.delay = delay
        self.requests: list[Request] = []
        self.most_at_once = 0
        """Requests that waited for an answer at one time, at most."""
        self.port = 0
        self._server_port = server_port
        self._tls: ssl.SSLContext | None = None
        if encrypted:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(AUTHORITY.with_name("localhost.pem"))
        self._rules: list[_Rule] = []
        self._waiting: set[int] = set()
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self.restart()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def fault(self, fault: Fault, path: str = "", *, times: float = math.inf) -> None:
        """Do this to the requests whose path ends so; of several the first that fits is done."""
        self._rules.append(_Rule(fault, path, times))

    def clear(self) -> None:
        """Forget faults and requests."""
        self._rules.clear()
        self.requests.clear()
        self.most_at_once = 0

    def stop(self) -> None:
        """Close the port and all connections."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()

    def restart(self) -> None:
        """Listen at the same port as before."""
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    def close(self) -> None:
        """Stop, and end the thread."""
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", self.port, ssl=self._tls
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        # Before it closes, or connections being accepted would stay open, and never be answered.
        for listening in self._server.sockets:
            self._loop.remove_reader(listening)
        await _settled()
        self._server.close()
        while self._connections:
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            await _settled()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(reader, writer))
        self._connections[task] = writer
        # Also of a task that is cancelled before it begins, or while its client reads nothing.
        task.add_done_callback(lambda task: self._connections.pop(task).transport.abort())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._answer(reader, writer):
                pass
            writer.close()
            await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer a request; return whether the connection stays open."""
        head = await reader.readuntil(_END)
        request = _parsed(head)
        content = await reader.readexactly(int(request.headers.get("content-length", 0)))
        fault = self._fault_of(request)
        self.requests.append(request)
        self._waiting.add(id(request))
        self.most_at_once = max(self.most_at_once, len(self._waiting))
        try:
            await asyncio.sleep(self.delay + fault.delay)
            if fault.before is not None:
                await asyncio.to_thread(fault.before)
            if fault.hang:
                await asyncio.Event().wait()
            if fault.drop:
                return False
            if fault.status:
                self._waiting.remove(id(request))
                return await _own_answer(request, fault, writer)
            # The server closes at the end, by which the proxy sees that there is no more.
            changes = {"connection": "close", **dict.fromkeys(fault.without)}
            return await self._passed_on(request, _changed(head, changes) + content, writer, fault)
        finally:
            self._waiting.discard(id(request))

    def _fault_of(self, request: Request) -> Fault:
        for rule in self._rules:
            if rule.left > 0 and request.path.endswith(rule.path):
                rule.left -= 1
                return rule.fault
        return Fault()

    async def _passed_on(
        self, request: Request, sent: bytes, writer: asyncio.StreamWriter, fault: Fault
    ) -> bool:
        server_reader, server_writer = await _opened(self._server_port)
        try:
            server_writer.write(sent)
            head = await server_reader.readuntil(_END)
            self._waiting.remove(id(request))
            request.status = int(head.split(b" ", 2)[1])
            if fault.short is not None:
                head = _changed(head, {"content-length": str(fault.short)})
            writer.write(_changed(head, {"connection": None}))
            await _copied(request, server_reader, writer, fault)
            # A body that ended early, by a fault or the server's death, ends the connection.
            promised = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            return request.method == "HEAD" or not promised or request.nbytes == int(promised[1])
        finally:
            server_writer.close()


async def _settled() -> None:
    """Let the loop do what it has begun: accept and close connections."""
    for _ in range(10):
        await asyncio.sleep(0)


async def _opened(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a port; if this is cancelled meanwhile, the connection is closed."""
    opening = asyncio.ensure_future(asyncio.open_connection("127.0.0.1", port))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        with suppress(OSError):
            (await opening)[1].close()
        raise


def _parsed(head: bytes) -> Request:
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    parts = urlsplit(target)
    headers = dict(line.split(": ", 1) for line in lines if line)
    return Request(
        method,
        unquote(parts.path),
        parts.query,
        {name.lower(): value for name, value in headers.items()},
    )


def _changed(head: bytes, changes: Mapping[str, str | None]) -> bytes:
    """Return a head with other values of headers, or without those that are None."""
    first, *lines = head.removesuffix(_END).split(b"\r\n")
    kept = [line for line in lines if line.split(b":")[0].decode().lower() not in changes]
    new = [f"{name}: {value}".encode() for name, value in changes.items() if value is not None]
    return b"\r\n".join((first, *kept, *new)) + _END


async def _own_answer(request: Request, fault: Fault, writer: asyncio.StreamWriter) -> bool:
    request.status = fault.status
    body = b"" if request.method == "HEAD" else fault.body
    length = {} if "Transfer-Encoding" in fault.headers else {"Content-Length": len(fault.body)}
    headers = {**length, **fault.headers}
    lines = (f"HTTP/1.1 {fault.status} Fault", *(f"{k}: {v}" for k, v in headers.items()))
    writer.write("\r\n".join(lines).encode() + _END + body)
    await writer.drain()
    return True


async def _copied(
    request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Fault
) -> None:
    """Send the body, as far as the fault lets it come."""
    ends = [end for end in (fault.cut, fault.short, fault.stall) if end is not None]
    end = min(ends, default=sys.maxsize)
    most = max(1, int(fault.rate * _BETWEEN_PIECES)) if fault.rate else _PIECE
    while piece := await reader.read(min(most, end - request.nbytes)):
        request.nbytes += len(piece)  # before the client has it
        writer.write(piece)
        await writer.drain()
        if fault.rate:
            await asyncio.sleep(_BETWEEN_PIECES)
    if fault.stall is not None:
        await asyncio.Event().wait()
