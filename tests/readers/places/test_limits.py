"""Limits of clients and decoders: one process, so many requests, one decoder at a time."""

from __future__ import annotations

import http.server
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from astropy.io.fits.hdu.compressed import _codecs
from servers.proxy import Fault, Proxy
from servers.weed import OPEN, Weed

from readers.contract import Row
from readers.errors import ReadError
from readers.fits.reader import FitsReader
from readers.index.table import Index
from readers.places.failures import ChangedError, NoAnswerError, StorageError
from readers.places.opener import Places
from readers.places.remote import RemotePlace
from readers.places.storage import Storage
from readers.sampling.order import Order
from readers.sampling.schedule import Schedule
from readers.sampling.shard import Shard
from readers.source import Source
from readers.window import Window


def _s3(proxy: Proxy, **settings: Any) -> Storage:
    return Storage(endpoint=f"http://127.0.0.1:{proxy.port}", anonymous=True, **settings)


def _compressed(path: Path, kind: str) -> None:
    image = np.random.default_rng(0).poisson(50, (256, 256)).astype(np.int16)
    fits.CompImageHDU(image, compression_type=kind, tile_shape=(32, 256)).writeto(path)


def test_astropy_decodes_hcompress_by_one_thread_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _compressed(tmp_path / "a.fits", "HCOMPRESS_1")
    decode, inside, most = _codecs.decompress_hcompress_1_c, [0], [0]

    def watched(*args: object) -> object:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.005)
        inside[0] -= 1
        return decode(*args)

    monkeypatch.setattr(_codecs, "decompress_hcompress_1_c", watched)
    with ThreadPoolExecutor(8) as threads:
        row = Row(0, str(tmp_path / "a.fits"))
        list(threads.map(lambda _: FitsReader().verify(row), range(8)))
    assert most == [1]


@pytest.mark.parametrize("kind", ["GZIP_1", "HCOMPRESS_1", "NOCOMPRESS"])
def test_a_window_is_a_few_requests(kind: str, tmp_path: Path, weed: Weed, s3_proxy: Proxy) -> None:
    _compressed(tmp_path / "a.fits", kind)
    weed.put(OPEN, f"codec/{kind}.fits", (tmp_path / "a.fits").read_bytes())
    row = Row(0, f"s3://{OPEN}/codec/{kind}.fits", places=Places(_s3(s3_proxy)))
    FitsReader().read(row, Window.at(64, 64, 128, 128, image=(256, 256)))
    assert len(s3_proxy.requests) <= 3


def test_requests_at_the_same_time(weed: Weed, s3_proxy: Proxy) -> None:
    weed.put(OPEN, "limits/a", bytes(5000))
    s3_proxy.delay, storage = 0.05, _s3(s3_proxy, concurrency=2)

    def read(_: int) -> bytes:
        with RemotePlace(f"s3://{OPEN}/limits/a", storage) as place:
            return place.read(0, 10)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(read, range(8)))
    assert s3_proxy.most_at_once == 2


def test_a_forked_process_is_told(weed: Weed, s3_proxy: Proxy) -> None:
    weed.put(OPEN, "forked/a.fits", b"1")
    url, storage = f"s3://{OPEN}/forked", _s3(s3_proxy)
    Index.scan(url, storage=storage)
    context = multiprocessing.get_context("fork")
    told = context.Queue()

    def scan() -> None:
        try:
            Index.scan(url, storage=storage)
        except StorageError as error:
            told.put(str(error))

    child = context.Process(target=scan, daemon=True)
    child.start()
    assert "'forkserver'" in told.get(timeout=30)
    child.join(30)


class _Changing(http.server.BaseHTTPRequestHandler):
    """Gives no ETag, or an empty one, and another file at each request."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        start, last = map(int, self.headers["Range"][6:].split("-"))
        last = min(last, 299_999)
        self.send_response(206)
        count = self.server.count = getattr(self.server, "count", 0) + 1  # type: ignore[attr-defined]
        self.send_header("Last-Modified", f"Mon, 23 Nov 2026 05:{count:02}:00 GMT")
        if self.path == "/empty":
            self.send_header("ETag", "")
        self.send_header("Content-Range", f"bytes {start}-{last}/300000")
        self.send_header("Content-Length", str(last + 1 - start))
        self.end_headers()
        self.wfile.write(bytes([count]) * (last + 1 - start))


@pytest.fixture
def changing() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Changing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("name", ["none", "empty"])
def test_a_file_without_etag_that_changes(name: str, changing: str) -> None:
    with RemotePlace(f"{changing}/{name}", Storage(timeout=5)) as place:
        assert place.read(0, 10) == bytes([1]) * 10
        assert place.stamp is None
        with pytest.raises(ChangedError):
            place.read(200_000, 200_010)


class _Silent:
    """A Reader whose server does not answer."""

    specs, channels, regions = FitsReader.specs, 1, True

    def __init__(self) -> None:
        self.count = 0

    def peek(self, row: Row, window: Window | None) -> object:
        self.count += 1
        try:
            raise NoAnswerError("no answer")
        except NoAnswerError as error:
            raise ReadError(row.path, "no answer") from error

    read = peek
    blank: Callable[..., object] = FitsReader().blank


def test_no_neighbour_is_asked_for_where_nobody_answers() -> None:
    paths = [f"s3://bucket/{number:03}" for number in range(100)]
    source = Source(
        columns=Index.from_paths(paths).columns(),
        reader=_Silent(),  # type: ignore[arg-type]
        schedule=Schedule(num_rows=100, shard=Shard(0, 1), batch_size=4, tail="partial"),
        order=Order(100, 0, False),
    )
    *_, valid, _report = source(SimpleNamespace(idx_in_epoch=0))
    assert not valid
    assert source.reader.count <= 4  # type: ignore[attr-defined]


def test_errors_after_waiting(weed: Weed, s3_proxy: Proxy) -> None:
    weed.put(OPEN, "limits/b", b"1")
    s3_proxy.fault(Fault(hang=True))
    with (
        RemotePlace(f"s3://{OPEN}/limits/b", _s3(s3_proxy, timeout=1)) as place,
        pytest.raises(NoAnswerError),
    ):
        place.read(0, 1)
