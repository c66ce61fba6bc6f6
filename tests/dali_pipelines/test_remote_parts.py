"""Samples of several objects, and what is asked of the first object: by the storage that is set."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits
from servers.proxy import Proxy
from servers.weed import OPEN, Weed

from dali_pipelines import Hdu, Index, Loader, Mask, fits_pipeline
from readers.places.storage import Storage

ENDS = {"path": ".fits", "path_other": "_other.fits", "mask_path": "_mask.npy"}
"""Ends of names, by column."""


def encoded(end: str, number: int) -> bytes:
    file, chance = io.BytesIO(), np.random.default_rng([len(end), number])
    if end.endswith(".npy"):
        np.save(file, chance.integers(0, 9, (24, 20), dtype=np.uint8))
    else:
        fits.PrimaryHDU(chance.normal(size=(2, 24, 20)).astype(np.float32)).writeto(file)
    return file.getvalue()


@pytest.fixture(scope="module")
def folder(weed: Weed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that are objects, too."""
    folder = tmp_path_factory.mktemp("parts")
    for number in range(4):
        for end in ENDS.values():
            content = encoded(end, number)
            (folder / f"{number}{end}").write_bytes(content)
            weed.put(OPEN, f"parts/{number}{end}", content)
    return folder


def delivered(folder: str, storage: Storage, **settings: Any) -> list[np.ndarray]:
    names = {name: [f"{folder}/{n}{end}" for n in range(4)] for name, end in ENDS.items()}
    settings |= {"batch_size": 4, "num_read_processes": 1, "crop": 8, "window": "random"}
    arrays: list[np.ndarray] = []
    with Loader(
        fits_pipeline, Index(pa.table(names)), devices=[None], storage=storage, **settings
    ) as loader:
        for (batch,) in loader:
            arrays += [batch[name].numpy().copy() for name in ("image", "other")]
    return arrays


@pytest.mark.parametrize(
    "settings",
    [
        {"planes": "all", "targets": {"other": Mask("mask_path")}},
        {"hdus": {"image": Hdu(0, planes=0), "other": Hdu(0, part="other", planes=1)}},
    ],
    ids=["planes and mask", "hdus"],
)
def test_several_objects_are_read_as_files_are(
    folder: Path, s3_proxy: Proxy, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    storage = Storage(endpoint=f"http://127.0.0.1:{s3_proxy.port}", anonymous=True, timeout=20)
    expected = delivered(str(folder), storage, **settings)
    found = delivered(f"s3://{OPEN}/parts", storage, **settings)
    assert len(found) == 2
    for remote, local in zip(found, expected, strict=True):
        np.testing.assert_array_equal(remote, local)
