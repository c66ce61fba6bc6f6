"""Whatever fails is reported, and neither the rows beside it nor what runs after it suffer."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from itertools import islice
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest
import torch
from astropy.io import fits
from nvidia.dali import fn

from dali_pipelines import (
    Index,
    Loader,
    NpyReader,
    PipelineConfig,
    ReadError,
    fits_pipeline,
    jpeg_pipeline,
    reader_pipeline,
)
from dali_pipelines.graph.decode import Decoded, decode_array
from dali_pipelines.graph.gpu.cupy_operator import python_operator
from on_gpu import archives
from on_gpu.devices import (
    DEVICES,
    SEED,
    Images,
    check,
    check_most,
    epoch,
    gathered,
    one_by_one,
)

SETTINGS: dict[str, Any] = {"crop": (20, 30), "window": "random", "flip": "hv"}


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def damaged_tiles(content: bytes) -> bytes:
    """Set all bits of the compressed tiles."""
    with fits.open(io.BytesIO(content), disable_image_compression=True) as hdus:
        header = hdus[1].header
        heap = hdus[1].fileinfo()["datLoc"] + header["NAXIS1"] * header["NAXIS2"]
        end = heap + header["PCOUNT"]
    return content[:heap] + b"\xff" * (end - heap) + content[end:]


def damaged_codes(content: bytes) -> bytes:
    """Ask for more Huffman codes than there can be, which only the decoder sees."""
    tables = content.index(b"\xff\xc4") + 5
    return content[:tables] + b"\xff" * 16 + content[tables + 16 :]


def damage(index: Index, name: str, how: Callable[[bytes], bytes]) -> int:
    """Damage the file of this name; return its row."""
    row = next(row for row in range(len(index)) if Path(index.path(row)).stem == name)
    path = Path(index.path(row))
    path.write_bytes(how(path.read_bytes()))
    return row


@pytest.mark.parametrize("device", DEVICES)
def test_bad_fits_files(tmp_path: Path, device: int | None) -> None:
    """One that cannot be read, and one of which only the decoder sees the damage."""
    index = archives.fits_archive(tmp_path)
    expected = one_by_one(fits_pipeline, index, **SETTINGS)
    bad = [damage(index, "plain", truncated), damage(index, "rice_rows", damaged_tiles)]
    check(good_images(fits_pipeline, index, device, bad, **SETTINGS), without(bad, expected))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("crop", [None, (50, 60)], ids=["whole", "window"])
def test_bad_jpeg_files(tmp_path: Path, crop: tuple[int, int] | None, device: int | None) -> None:
    index = archives.photographs(tmp_path)
    size = {"422", "444", "progressive", "restarts"}
    index = index.select([row for row in range(len(index)) if Path(index.path(row)).stem in size])
    expected = one_by_one(jpeg_pipeline, index, crop=crop)
    bad = [damage(index, "422", damaged_codes)]
    found = good_images(jpeg_pipeline, index, device, bad, crop=crop)
    check_most(found, without(bad, expected))


def without(bad: list[int], images: Images) -> Images:
    return {row: image for row, image in images.items() if row not in bad}


def good_images(
    factory: Callable[..., Any], index: Index, device: int | None, bad: list[int], **settings: Any
) -> Images:
    """Read all but the bad rows, which are skipped; where they are not, the first is raised."""
    settings |= {"devices": [device], "batch_size": 2, "num_read_processes": 1, "seed": SEED}
    with Loader(factory, index, bad_sample="skip", **settings) as loader:
        found = gathered(loader)
    assert sorted(loader.stats.rejected) == sorted(bad)
    with (
        Loader(factory, index, shuffle=False, **settings) as loader,
        pytest.raises(ReadError, match=rf"\(row {min(bad)}\): "),
    ):
        list(loader)
    return found


@pytest.mark.parametrize("device", DEVICES)
def test_a_killed_reader(tmp_path: Path, device: int | None) -> None:
    """The pipeline starts again at the same step: no row is lost or repeated."""
    index = archives.fits_archive(tmp_path)
    with Loader(
        fits_pipeline,
        index,
        batch_size=2,
        num_read_processes=2,
        devices=[device],
        seed=SEED,
        restart_readers=1,
        **SETTINGS,
    ) as loader:
        steps = list(islice(loader, 2))
        (victim, *_) = loader.pipelines[0].processes()
        victim.kill()
        wait([victim.sentinel])
        steps += loader
        for _ in range(3):  # what was read ahead came first
            for _ in loader:
                pass
    assert loader.stats.restarts == 1
    check(gathered(steps), one_by_one(fits_pipeline, index, **SETTINGS))


class _FailureError(Exception):
    """What a function of the graph raises here."""


def fail_at(place: int, images: list[Any]) -> list[Any]:
    """Work on a batch, and fail if it has this pixel value."""
    made = [image + 1 for image in images]
    if any(float(image.reshape(-1)[0]) == place for image in images):
        raise _FailureError("in the middle of a batch")
    return made


def failing_pipeline(index: Index, *, place: int, **config: Any) -> Any:
    """Add a Python function that fails at some row, on CPU or GPU."""

    def decode(arrays: Any, config: PipelineConfig) -> Decoded:
        decoded = decode_array(arrays, config)
        function = functools.partial(fail_at, place)
        if config.device_id is None:
            image = fn.python_function(
                decoded.image, function=function, batch_processing=True, output_layouts="HWC"
            )
        else:
            image = python_operator(function, [decoded.image], ["HWC"])
        return decoded._replace(image=image)

    return reader_pipeline(index, NpyReader(), decode, PipelineConfig(**config))


@pytest.mark.parametrize("device", DEVICES)
def test_an_error_in_an_operator(tmp_path: Path, device: int | None) -> None:
    """Pipelines after it work on the same device, and PyTorch does: DALI's stream is whole."""
    index = archives.fits_archive(tmp_path)
    expected = one_by_one(fits_pipeline, index, **SETTINGS)
    numbers = archives.numbered(tmp_path, 8)
    options: dict[str, Any] = {"batch_size": 3, "devices": [device], "shuffle": False}
    for place in (0, 4, 7):
        with (
            Loader(functools.partial(failing_pipeline, place=place), numbers, **options) as loader,
            pytest.raises((ReadError, RuntimeError), match="in the middle of a batch"),
        ):
            list(loader)
        check(epoch(fits_pipeline, index, [device], **SETTINGS), expected)
        where = "cpu" if device is None else f"cuda:{device}"
        assert float(torch.ones(1000, device=where).sum()) == 1000
    with Loader(functools.partial(failing_pipeline, place=99), numbers, **options) as loader:
        found = gathered(loader)
    assert [float(found[row].max()) for row in sorted(found)] == [1.0 + row for row in range(8)]
