from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import solar_files
import zarr
from PIL import Image

from dali_pipelines import (
    Index,
    Loader,
    aia_pipeline,
    chunked_pipeline,
    jpeg_pipeline,
    memory,
    npy_pipeline,
)
from dali_pipelines.memory import MemoryEstimate, estimate_memory

GIB = 2**30


def test_estimate_counts_every_batch_in_flight(npy_index: Index) -> None:
    options: dict[str, Any] = {"batch_size": 4, "num_read_processes": 3}
    plain = npy_pipeline(npy_index, prefetch=2, **options)
    found = estimate_memory([plain, plain])
    frame = 6 * 8 * 4
    assert found.shared == 2 * (2 + 1 + 2) * 4 * frame
    assert found.images == 2 * 3 * 4 * frame
    worked_on = npy_pipeline(npy_index, prefetch=1, flip="h", resize=3, mean=1, **options)
    # Its resize also flips and normalises.
    assert estimate_memory([worked_on]).images == (2 + 1) * 4 * 3 * 3 * 4 + 2 * 4 * frame
    worked_on = npy_pipeline(npy_index, prefetch=1, flip="h", crop=3, mean=1, **options)
    assert estimate_memory([worked_on]).images == (2 + 2) * 4 * 3 * 3 * 4


@pytest.mark.parametrize(("psf", "frames"), [((), 1), ((171,), 3)])
def test_frames_that_are_registered_count_as_they_are_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, psf: tuple[int, ...], frames: int
) -> None:
    # To make the PSF takes a minute, and its values do not matter.
    monkeypatch.setattr("dali_pipelines.graph.operators_psf._deconvolver", lambda *_: None)
    header = solar_files.full_header()
    save = functools.partial(solar_files.save, compression_type="RICE_1")
    path = save(tmp_path / "a.fits", np.zeros((4096, 4096), np.int16), header)
    index = Index.from_paths([path])
    whole = aia_pipeline(index, batch_size=1, size=64, prefetch=1, psf=psf)
    expected = 2 * 64 * 64 * 4 + 2 * frames * 4096 * 4096 * 4
    assert estimate_memory([whole]).images == expected
    if not psf:
        part = aia_pipeline(index, batch_size=1, size=64, crop=16, prefetch=1)
        images = estimate_memory([part]).images
        assert 2 * 4 * 1024**2 < images < 2 * 4 * 1100**2


@pytest.mark.parametrize(
    ("form", "options", "whole"),
    [("PNG", {}, 1), ("TIFF", {}, 0), ("JPEG", {"progressive": True}, 1), ("JPEG", {}, 0)],
)
def test_images_that_are_decoded_whole_for_a_window_count(
    tmp_path: Path, form: str, options: dict[str, Any], whole: int
) -> None:
    """One for each thread."""
    Image.new("RGB", (800, 600)).save(tmp_path / "a.image", form, **options)
    index = Index.from_paths([tmp_path / "a.image"])
    settings: dict[str, Any] = {"batch_size": 3, "num_threads": 2, "prefetch": 1}
    images = estimate_memory([jpeg_pipeline(index, crop=8, dtype="uint8", **settings)]).images
    assert images // (600 * 800 * 3) == 2 * whole


def test_all_channels_count(tmp_path: Path) -> None:
    pixels, header = solar_files.frame()
    paths = [str(solar_files.save(tmp_path / f"{n}.fits", pixels, header)) for n in range(2)]
    parts = {f"path_{name}": pa.array([path]) for name, path in zip("ab", paths, strict=True)}
    table = {"path": paths[:1], **parts, "path_c": pa.array([None], pa.string())}
    pipeline = aia_pipeline(Index(pa.table(table)), batch_size=1, size=32, prefetch=1)
    # The images, each channel by itself, and of all files what is decoded: the third is missing in
    # this row, but may be there in others.
    assert estimate_memory([pipeline]).images == 3 * 3 * 32 * 32 * 4 + 2 * 3 * 128 * 128 * 4


def test_what_cannot_fit_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 16 * GIB)
    with pytest.raises(MemoryError, match=r"20.0 GiB .*7.0 GiB .*16.0 GiB are free.*batch_size"):
        MemoryEstimate(7 * GIB, 12 * GIB, GIB).check()
    MemoryEstimate(7 * GIB, 7 * GIB, GIB).check()


def test_a_loader_warns_of_what_cannot_fit(
    npy_index: Index, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for free, count in ((1 << 20, 1), (16 * GIB, 0)):
        monkeypatch.setattr(memory, "free_memory", lambda free=free: free)
        caplog.clear()
        loader = Loader(npy_pipeline, npy_index, batch_size=2, devices=[None])
        with loader, caplog.at_level("WARNING"):
            loader.start()
        assert caplog.text.count("1 MiB are free: use a smaller batch_size") == count


def test_samples_of_hundreds_of_megabytes(tmp_path: Path) -> None:
    """Such as a frame of Surya's, of which a test has only the metadata."""
    for number in range(13):
        path = tmp_path / "a.zarr" / f"v{number:02}"
        zarr.create_array(path, shape=(2, 4096, 4096), chunks=(1, 1024, 1024), dtype="f4")
    zarr.create_group(str(tmp_path / "a.zarr"), overwrite=False)
    index = Index.from_zarr(tmp_path / "a.zarr")
    sample = 13 * 4096 * 4096 * 4
    pipeline = chunked_pipeline(index, batch_size=1, num_read_processes=1)
    assert pipeline.ahead == 1
    found = estimate_memory([pipeline])
    assert found.sample == sample
    assert found.shared == 3 * sample
    assert found.total > 7 * sample
    window = chunked_pipeline(index, batch_size=1, num_read_processes=1, crop=512)
    assert estimate_memory([window]).sample == sample // 64


@pytest.mark.parametrize(("of_groups", "free"), [(None, 5), (3, 3), (8, 5), (0, 0)])
def test_the_lower_of_what_machine_and_container_have_free(
    monkeypatch: pytest.MonkeyPatch, of_groups: int | None, free: int
) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=5))
    monkeypatch.setattr(memory, "free_memory_of_groups", lambda: of_groups)
    assert memory.free_memory() == free


def test_each_rank_of_a_machine_takes_as_much(npy_index: Index) -> None:
    pipelines = [npy_pipeline(npy_index, batch_size=4)]
    one, four = (estimate_memory(pipelines, ranks) for ranks in (1, 4))
    assert four.total == 4 * one.total > 0
    assert four.shared == 4 * one.shared > 0
