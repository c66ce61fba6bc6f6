"""HDF5 in buckets and on web servers: values, and how many requests are made for them."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from servers.proxy import Proxy
from servers.web import Web
from servers.weed import Weed
from zarr_stores import frames

from readers import Index, Window
from readers.chunks.reader import ChunkedReader
from readers.places.cache.disk import LEAST, DiskCache
from readers.places.opener import Places
from readers.places.remote import RemotePlace

NUMBERS = count()
NAMES = (
    *("aia94", "aia131", "aia171", "aia193", "aia211", "aia304", "aia335", "aia1600"),
    *("hmi_m", "hmi_bx", "hmi_by", "hmi_bz", "hmi_v"),
)
"""Those of the files of Surya."""
EDGE, CHUNK = 300, 150
WINDOW = Window.at(40, 30, 100, 120, image=(EDGE, EDGE))
MOST_REQUESTS = 2 + len(NAMES)
"""To find the object and read its structure: where the chunks of a variable are is noted beside
them."""


@pytest.fixture(autouse=True)
def proxy(s3_proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{s3_proxy.port}")
    return s3_proxy


@pytest.fixture
def name(weed: Weed, tmp_path: Path) -> str:
    """Put a file of several variables into the bucket, larger than its structure."""
    noise = np.random.default_rng(0).normal(size=(EDGE, EDGE)).astype("<f4")
    with h5py.File(tmp_path / "a.nc", "w") as file:
        for number, variable in enumerate(NAMES):
            image = noise + frames((EDGE, EDGE), "<f4", seed=number)
            settings = {"chunks": (CHUNK, CHUNK), "compression": "gzip", "shuffle": True}
            file.create_dataset(variable, data=image, **settings)
    name = f"{next(NUMBERS)}/a.nc"
    weed.put("archive", name, (tmp_path / "a.nc").read_bytes())
    return name


@pytest.mark.parametrize("scheme", ["s3", "http"])
def test_values_and_requests(
    weed: Weed, proxy: Proxy, tmp_path: Path, name: str, scheme: str
) -> None:
    begin = (
        "s3://archive" if scheme == "s3" else f"http://127.0.0.1:{weed.http_port}/buckets/archive"
    )
    proxy.clear()
    index = Index.scan_arrays(f"{begin}/{name}", variables=NAMES)
    if scheme == "s3":
        assert len(proxy.requests) <= MOST_REQUESTS
    row = index.columns(notes=["chunks"]).row(0)
    local = Index.scan_arrays(tmp_path / "a.nc", variables=NAMES)
    local_row = local.columns(notes=["chunks"]).row(0)
    reader = ChunkedReader(NAMES)
    for window in (None, WINDOW):
        found, expected = reader.read(row, window), reader.read(local_row, window)
        np.testing.assert_array_equal(found["image"], expected["image"])
        assert found.input_bytes == expected.input_bytes
    proxy.clear()
    found = reader.read(row, WINDOW)
    if scheme == "s3":
        assert sum(one.nbytes for one in proxy.requests) <= 1.1 * found.input_bytes + 1000


@pytest.mark.parametrize("scheme", ["s3", "http"])
def test_a_second_epoch_makes_no_request(
    proxy: Proxy, tmp_path: Path, name: str, scheme: str
) -> None:
    with Web() as web:
        url = f"s3://archive/{name}"
        if scheme == "http":
            url = web.put("a.nc", (tmp_path / "a.nc").read_bytes())
        requests = proxy.requests if scheme == "s3" else web.paths
        columns = Index.scan_arrays(url, variables=NAMES).columns(notes=["chunks"])
        cache = DiskCache(str(tmp_path / "cache"), LEAST)
        row = columns.with_places(Places(cache=cache)).row(0)
        reader = ChunkedReader(NAMES)
        images = []
        for epoch in range(2):
            requests.clear()
            images.append(reader.read(row, WINDOW)["image"].copy())
            assert bool(requests) is (epoch == 0)
    np.testing.assert_array_equal(images[0], images[1])


def test_variables_do_not_wait_for_each_other(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The requests for the variables of a file are made at the same time."""
    calls: list[int] = []
    read_many = RemotePlace.read_many

    def counted(self: RemotePlace, pieces: Any) -> None:
        calls.append(len(pieces))
        read_many(self, pieces)

    monkeypatch.setattr(RemotePlace, "read_many", counted)
    with netCDF4.Dataset(tmp_path / "b.nc", "w") as file:  # with tables of several levels
        file.createDimension("y", EDGE), file.createDimension("x", EDGE)
        for variable in NAMES:
            one = file.createVariable(variable, "f4", ("y", "x"), zlib=True, chunksizes=(20, 20))
            one[:] = np.random.default_rng(0).normal(size=(EDGE, EDGE))
    with Web() as web:
        for path in (tmp_path / "a.nc", tmp_path / "b.nc"):
            url = web.put(path.name, path.read_bytes())
            local = Index.scan_arrays(path)
            for names in (NAMES, None):
                calls.clear()
                index = Index.scan_arrays(url, variables=names)
                assert sum(count > 0 for count in calls) < len(NAMES)
                if names is None:
                    assert index["chunks"].to_pylist() == local["chunks"].to_pylist()


@pytest.mark.parametrize("shift", range(0, 16 << 10, 1 << 12))
def test_requests_do_not_depend_on_where_variables_begin(tmp_path: Path, shift: int) -> None:
    """What describes a variable is in one place, wherever that begins."""
    noise = np.random.default_rng(0).normal(size=(len(NAMES), 260, 256)).astype("<f4")
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        for name, length in (("y", 260), ("x", 256), ("pad", 1 + shift)):
            file.createDimension(name, length)
        file.createVariable("pad", "u1", ("pad",), contiguous=True)[:] = 1
        for name, image in zip(NAMES, noise, strict=True):
            one = file.createVariable(name, "f4", ("y", "x"), zlib=True, chunksizes=(64, 64))
            one.units, one[:] = "DN", image
    with Web() as web:
        url = web.put("a.nc", (tmp_path / "a.nc").read_bytes())
        index = Index.scan_arrays(url, variables=NAMES)
        assert len(web.paths) <= 1 + len(NAMES)
    row = index.columns(notes=["chunks"]).row(0)
    assert row.file_bytes == (tmp_path / "a.nc").stat().st_size
