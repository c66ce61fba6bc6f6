"""A web server on loopback that sends files by ranges, with ETags as it is told."""

from __future__ import annotations

import http.server
import threading
import zlib
from email.utils import formatdate
from types import TracebackType
from typing import Literal, Self

_EPOCH = 1_700_000_000
"""Time of the first write; each is a second later."""


class Web:
    """Serves what `put` was given, at a free port, in threads of its own.

    ``/moved/NAME`` leads to ``/NAME``. A name that ends in ``.gz`` is said to be encoded, as Apache
    does.

    Parameters
    ----------
    etag : {"strong", "weak", "none"}
        Which ETags it gives; it respects If-Match.
    is_dated : bool
        Whether it gives Last-Modified.
    """

    def __init__(
        self, *, etag: Literal["strong", "weak", "none"] = "strong", is_dated: bool = True
    ) -> None:
        self.etag, self.is_dated = etag, is_dated
        self.paths: list[str] = []
        """Paths of the requests that came."""
        self.files: dict[str, tuple[bytes, int]] = {}
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="web", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def put(self, name: str, content: bytes) -> str:
        """Write a file, and return its URL."""
        seconds = 1 + max((each for _, each in self.files.values()), default=_EPOCH)
        self.files[name] = content, seconds
        return self.url(name)

    def url(self, name: str) -> str:
        """Return the URL of a name."""
        return f"http://127.0.0.1:{self._server.server_port}/{name}"

    def _handler(web) -> type[http.server.BaseHTTPRequestHandler]:
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                web.paths.append(self.path)
                name = self.path.removeprefix("/")
                if name.startswith("moved/"):
                    self._answer(302, b"", Location=self.path.removeprefix("/moved"))
                elif name not in web.files:
                    self._answer(404, b"")
                else:
                    self._send(name, *web.files[name])

            def _send(self, name: str, content: bytes, seconds: int) -> None:
                headers: dict[str, str] = {}
                if web.etag != "none":
                    weak = "W/" if web.etag == "weak" else ""
                    headers["ETag"] = f'{weak}"{zlib.crc32(content):08x}"'
                if web.is_dated:
                    headers["Last-Modified"] = formatdate(seconds, usegmt=True)
                if name.endswith(".gz"):
                    headers["Content-Encoding"] = "gzip"
                if self.headers.get("If-Match", headers.get("ETag")) != headers.get("ETag"):
                    self._answer(412, b"")
                    return
                start, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
                part = content[start : last + 1]
                span = f"bytes {start}-{start + len(part) - 1}/{len(content)}"
                self._answer(206, part, **headers, **{"Content-Range": span})

            def _answer(self, status: int, body: bytes, **headers: str) -> None:
                self.send_response(status)
                for header in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(*header)
                self.end_headers()
                self.wfile.write(body)

        return Handler
