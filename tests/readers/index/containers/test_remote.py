"""Tars in a store of objects: few requests, samples of each version."""

from __future__ import annotations

import numpy as np
import pytest
from image_files import npy
from servers.weed import OPEN, Weed
from tar_files import packed

from readers import Index, NpyReader, ReadError
from readers.places.opener import Places
from readers.places.remote import TRAFFIC
from readers.places.storage import Storage


def tar_of(*arrays: np.ndarray) -> bytes:
    return packed(
        member
        for number, array in enumerate(arrays)
        for member in ((f"{number}.npy", npy(array)), (f"{number}.cls", b"%d" % number))
    )


def test_tars_of_a_bucket(weed: Weed, s3_keys: None) -> None:
    arrays = np.random.default_rng(0).random((6, 40, 50, 1), np.float32)
    weed.put(OPEN, "tars/0.tar", tar_of(*arrays[:3]))
    weed.put(OPEN, "tars/1.tar", tar_of(*arrays[3:]))
    weed.put(OPEN, "tars/README.md", b"")
    weed.put(OPEN, "tars/._0.tar", b"Mac OS X")
    storage = Storage(endpoint=f"http://127.0.0.1:{weed.s3_port}")
    index = Index.scan(f"s3://{OPEN}/tars/", storage=storage)
    TRAFFIC.take()
    again = Index.scan(f"s3://{OPEN}/tars/{{0..1}}.tar", storage=storage)
    assert TRAFFIC.take()[0] <= 8
    assert index.table.to_pylist() == again.table.to_pylist()
    assert index.table["cls"].to_pylist() == [0, 1, 2] * 2
    columns = index.columns().with_places(Places(storage))
    for row, array in enumerate(arrays):
        sample = NpyReader().read(columns.row(row), None)
        np.testing.assert_array_equal(next(iter(sample.arrays.values())), array)
    weed.put(OPEN, "tars/1.tar", tar_of(*arrays[:3]))
    with pytest.raises(ReadError, match="changed"):
        NpyReader().read(columns.row(3), None)
    assert Index.from_tar(f"s3://{OPEN}/tars/0.tar", storage=storage).table.num_rows == 3
