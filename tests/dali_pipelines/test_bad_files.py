"""One file in a hundred is bad: it is named, and all others come once per epoch."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits
from on_gpu.devices import DEVICES

from dali_pipelines import Index, Loader, ReadError, fits_pipeline, npy_pipeline

ROWS = 300
START = 2880
"""Where the header of the image begins, and the size of a FITS block."""


def cut(content: bytes) -> bytes:
    return content[:-START]


def scrambled_header(content: bytes) -> bytes:
    chance = random.Random(1)
    return content[:START] + chance.randbytes(START) + content[2 * START :]


def scrambled_pixels(content: bytes) -> bytes:
    """Every second byte of the compressed tiles is another one."""
    place = content.index(b"END ", START) // START * START + START
    size = len(content.rstrip(b"\0"))
    changed = bytearray(content)
    for byte in range(place + 400, size, 2):
        changed[byte] ^= 0xFF
    return bytes(changed)


DAMAGE: dict[int, tuple[Callable[[bytes], bytes], str]] = {
    41: (cut, "truncated"),
    150: (scrambled_header, "END card"),
    222: (scrambled_pixels, "bytes of a tile are damaged"),
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("archive")
    image = np.random.default_rng(0).poisson(100, (50, 60)).astype(np.int16)
    fits.CompImageHDU(image, compression_type="RICE_1").writeto(folder / "000.fits")
    content = (folder / "000.fits").read_bytes()
    for row in range(1, ROWS):
        damage, _ = DAMAGE.get(row, (bytes, ""))
        (folder / f"{row:03d}.fits").write_bytes(damage(content))
    return Index.from_paths(sorted(folder.iterdir()))


def make_loader(archive: Index, max_bad: float, device: int | None = None) -> Loader:
    return Loader(
        fits_pipeline,
        archive,
        batch_size=16,
        num_read_processes=2,
        devices=[device, device],
        num_threads=1,
        bad_sample="skip",
        max_bad=max_bad,
    )


@pytest.mark.parametrize("device", DEVICES)
def test_exactly_the_bad_ones_are_left_out_and_named(archive: Index, device: int | None) -> None:
    with make_loader(archive, 0.01, device) as loader:
        for _ in range(2):
            rows = Counter(
                row for batches in loader for batch in batches for row in batch["row"].tolist()
            )
            assert rows == Counter(row for row in range(ROWS) if row not in DAMAGE)
    assert sorted(loader.stats.rejected) == sorted(DAMAGE)
    for row, found in loader.stats.rejected.items():
        assert found.path == archive.path(row)
        assert re.search(DAMAGE[row][1], found.reason)
        assert found.epoch == 0


def test_more_than_the_budget(archive: Index) -> None:
    with (
        make_loader(archive, max_bad=2) as loader,
        pytest.raises(ReadError, match=r"rejected.*3.*max_bad=2"),
    ):
        for _ in loader:
            pass


@pytest.mark.parametrize("first", ["small", "large"])
def test_an_image_smaller_than_the_crop_is_left_out_wherever_it_is(
    tmp_path: Path, first: str
) -> None:
    shapes = {"small": (40, 50), "large": (90, 80)}
    names = sorted(shapes, key=lambda name: name != first)
    for name in names:
        fits.writeto(tmp_path / f"{name}.fits", np.ones(shapes[name], np.int16))
    index = Index.from_paths([tmp_path / f"{name}.fits" for name in names])
    with new_loader(index, crop=64, bad_sample="skip") as loader:
        rows = [row for (batch,) in loader for row in batch["row"].tolist()]
    assert rows == [names.index("large")]
    (rejected,) = loader.stats.rejected.values()
    assert re.search("crop 64x64 .* 40x50", rejected.reason)


def new_loader(index: Index, **options: Any) -> Loader:
    return Loader(
        fits_pipeline, index, batch_size=2, num_read_processes=1, devices=[None], **options
    )


def mostly_bad(folder: Path, good: int | None) -> Index:
    """Return an Index of 90 rows, one of which at most can be read."""
    (folder / "bad.npy").write_bytes(b"")
    np.save(folder / "good.npy", np.full((6, 8), 7, np.float32))
    names = ["good.npy" if row == good else "bad.npy" for row in range(90)]
    return Index(pa.table({"path": [str(folder / name) for name in names], "weight": [1.0] * 90}))


def filled(index: Index, **options: Any) -> Loader:
    settings: Any = {"batch_size": 4, "num_read_processes": 2, "devices": [None, None]}
    fill: Any = {"tail": "fill", "bad_sample": "skip", "framework": "numpy"}
    return Loader(npy_pipeline, index, **{**settings, **fill, **options})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weights": "weight"},
        {"shuffle": "blocks", "ragged": "list"},
        {"epoch_steps": 12, "crop": (5, 5), "window": "random"},
    ],
)
def test_fill_finds_the_only_good_row(tmp_path: Path, options: Any) -> None:
    index = mostly_bad(tmp_path, 80)

    def taken(loader: Loader) -> list[tuple[list[int], list[bool]]]:
        with loader:
            batches = [batch for step in loader for batch in step]
        assert all((image == 7).all() for batch in batches for image in batch["image"])
        assert 80 not in loader.stats.rejected
        return [(batch["row"].tolist(), batch["valid"].tolist()) for batch in batches]

    whole = filled(index, **options)
    found = taken(whole)
    assert len(found) == 2 * len(whole)
    assert {row for rows, _ in found for row in rows} == {80}
    if "weights" not in options:
        assert any(any(valid) for _, valid in found)
        assert len(whole.stats.rejected) == 89
    resumed = filled(index, **options)
    loop = iter(resumed)
    for _ in range(5):
        next(loop)
    assert taken(resumed) == found[10:]


def test_fill_without_a_good_row_is_an_error(tmp_path: Path) -> None:
    index = mostly_bad(tmp_path, None)
    with filled(index) as loader, pytest.raises(ReadError, match=r"'fill'.* none of the 90 rows"):
        next(iter(loader))
    assert loader.step == 0
    assert 1 <= len(loader.stats.rejected) <= 8
