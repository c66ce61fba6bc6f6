"""HDF5 in buckets and on web servers: values, and how many requests are made for them."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import h5py
import numpy as np
import pytest
from servers.proxy import Proxy
from servers.weed import Weed
from zarr_stores import frames

from readers import Index, Window
from readers.chunks.reader import ChunkedReader

NUMBERS = count()
NAMES = ("aia94", "aia171", "hmi_m")
WINDOW = Window.at(40, 30, 100, 120, image=(600, 600))
MOST_REQUESTS = 12
"""To read the structure of a file of several variables."""


@pytest.fixture(autouse=True)
def proxy(s3_proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{s3_proxy.port}")
    return s3_proxy


@pytest.fixture
def name(weed: Weed, tmp_path: Path) -> str:
    """Put a file of several variables into the bucket, larger than its structure."""
    noise = np.random.default_rng(0).normal(size=(600, 600)).astype("<f4")
    with h5py.File(tmp_path / "a.nc", "w") as file:
        for number, variable in enumerate(NAMES):
            image = noise + frames((600, 600), "<f4", seed=number)
            settings = {"chunks": (64, 64), "compression": "gzip", "shuffle": True}
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
