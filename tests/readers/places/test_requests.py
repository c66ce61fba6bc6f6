"""How many requests a sample takes, how many bytes, and which go out at the same time."""

from __future__ import annotations

import io
from functools import partial
from itertools import count
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from image_files import npy, pillow
from servers.proxy import Fault, Proxy
from servers.web import Web
from servers.weed import Weed

from dali_pipelines import with_tiles
from readers import FitsReader, Index, JpegReader, NpyReader, Row, Window
from readers.contract import Reader, Sample
from readers.places.remote import TRAFFIC, RemotePlace
from readers.places.storage import Storage

NOISE = np.random.default_rng(0).normal(10_000, 300, (1100, 1100)).astype(np.int16)  # 2.4 MB
WINDOW = Window(height=200, width=150, y=0.8, x=0.7)
WINDOW_OF_SMALL = Window(height=40, width=30, y=0.8, x=0.7)
NUMBERS = count()
HEAD_BYTES = 128 << 10
"""Bytes that are fetched of a FITS file of which nothing is known."""


def array(edge: int = 1100) -> bytes:
    return npy(NOISE[:edge, :edge].astype(np.float32))


def plain(edge: int = 1100) -> bytes:
    file = io.BytesIO()
    fits.PrimaryHDU(NOISE[:edge, :edge]).writeto(file)
    return file.getvalue()


def rice() -> bytes:
    file = io.BytesIO()
    hdus = [fits.PrimaryHDU(), fits.CompImageHDU(NOISE, compression_type="RICE_1")]
    fits.HDUList(hdus).writeto(file)
    return file.getvalue()


def jpeg() -> bytes:
    return pillow((NOISE // 64).astype(np.uint8), quality=95)


@pytest.fixture(autouse=True)
def proxy(s3_proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{s3_proxy.port}")
    return s3_proxy


def indexed(weed: Weed, content: bytes, suffix: str) -> Index:
    """Return an Index of a new object."""
    prefix = f"requests/{next(NUMBERS)}"
    weed.put("archive", f"{prefix}/image{suffix}", content)
    return Index.scan(f"s3://archive/{prefix}/")


def row_of(index: Index, reader: Any) -> Row:
    return index.columns(notes=getattr(reader, "notes", ())).row(0)


def same(found: Sample, reader: Reader, content: bytes, window: Window | None, at: Path) -> None:
    """Check that a sample is that of a local file."""
    path = at / "local"
    path.write_bytes(content)
    expected = reader.read(Row(0, str(path)), window)
    for name, array in expected.arrays.items():
        np.testing.assert_array_equal(found[name], array)


CASES: dict[str, tuple[Any, Any, str, Window | None, int]] = {
    # Reader, file, suffix, window, requests
    "npy": (NpyReader(), array, ".npy", WINDOW, 2),
    "whole npy": (NpyReader(), array, ".npy", None, 1),
    "small npy": (NpyReader(), partial(array, 160), ".npy", WINDOW_OF_SMALL, 1),
    "fits": (FitsReader(), plain, ".fits", WINDOW, 2),
    "whole fits": (FitsReader(), plain, ".fits", None, 2),
    "small fits": (FitsReader(), partial(plain, 700), ".fits", None, 1),
    "rice": (FitsReader(), rice, ".fits", WINDOW, 2),
    "whole rice": (FitsReader(), rice, ".fits", None, 2),
    "whole jpeg": (JpegReader(), jpeg, ".jpg", None, 1),
}


@pytest.mark.parametrize(("reader", "make", "suffix", "window", "most"), CASES.values(), ids=CASES)
def test_no_more_is_requested_than_is_needed(
    weed: Weed,
    proxy: Proxy,
    tmp_path: Path,
    reader: Any,
    make: Any,
    suffix: str,
    window: Window | None,
    most: int,
) -> None:
    content = make()
    row = row_of(indexed(weed, content, suffix), reader)
    proxy.clear()
    sample = reader.read(row, window)
    assert len(proxy.requests) <= most
    sent = sum(request.nbytes for request in proxy.requests)
    assert sent <= 1.15 * sample.input_bytes + HEAD_BYTES
    assert sent <= len(content) + HEAD_BYTES
    same(sample, reader, content, window, tmp_path)


@pytest.mark.parametrize("make", [plain, rice])
def test_a_noted_window_takes_one_round_trip(
    weed: Weed, proxy: Proxy, tmp_path: Path, make: Any
) -> None:
    content, reader = make(), FitsReader()
    index = with_tiles(indexed(weed, content, ".fits"))
    # An object of the same bytes, of which the Reader knows no header yet.
    again = indexed(weed, content, ".fits").table
    row = row_of(Index(again.append_column("fits_tiles", index.table["fits_tiles"])), reader)
    proxy.clear()
    proxy.fault(Fault(before=Barrier(2, timeout=20).wait))  # neither waits for the other's answer
    sample = reader.read(row, WINDOW)
    assert len(proxy.requests) == 2
    assert sum(request.nbytes for request in proxy.requests) <= 1.15 * sample.input_bytes
    same(sample, reader, content, WINDOW, tmp_path)
    # The header is known now.
    proxy.clear()
    sample = reader.read(row, Window(height=90, width=90, y=0.1, x=0.1))
    assert sum(request.nbytes for request in proxy.requests) <= 1.15 * sample.input_bytes


def test_requests_without_an_object_count() -> None:
    with Web() as web:
        place = RemotePlace(web.url("missing"), Storage(retries=1))
        TRAFFIC.take()
        with place, pytest.raises(FileNotFoundError):
            place.look()
        assert TRAFFIC.take() == (len(web.paths), 0, 0) == (1, 0, 0)
