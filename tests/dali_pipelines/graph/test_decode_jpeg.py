"""Windows of JPEG images where DALI decodes no regions: decoded whole, and then cut."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from dali_pipelines import (
    Index,
    Loader,
    PipelineConfig,
    PipelineSettings,
    ReaderPipeline,
    jpeg_pipeline,
    reader_pipeline,
    with_mcu_rows,
)
from dali_pipelines.graph.decode import decode_jpeg
from readers import JpegReader


def without_regions(index: Index, **config: Unpack[PipelineSettings]) -> ReaderPipeline:
    decode = functools.partial(decode_jpeg, regions=False)
    return reader_pipeline(index, JpegReader(), decode, PipelineConfig(**config))


@pytest.mark.parametrize("device", [None, pytest.param(0, marks=pytest.mark.gpu)])
@pytest.mark.parametrize("noted", [False, True])
def test_the_same_window(tmp_path: Path, noted: bool, device: int | None) -> None:
    """Of any orientation, 8 or 16 bits, with and without noted rows of MCUs."""
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (30, 20, 3), np.uint8)
    picture = Image.fromarray(pixels).resize((200, 300), Image.Resampling.BICUBIC)
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[274] = orientation
        picture.save(tmp_path / f"{orientation}.jpg", exif=exif, quality=90)
    deep = random.integers(0, 65536, (300, 200), np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    index = Index.scan(tmp_path)
    index = with_mcu_rows(index) if noted else index
    settings: dict[str, Any] = {"batch_size": 3, "crop": (65, 97), "window": "random"}

    def images(factory: Any, device: int | None) -> NDArray[np.float32]:
        with Loader(factory, index, devices=[device], num_read_processes=1, **settings) as loader:
            batches = [batch for (batch,) in loader]
        rows = np.concatenate([batch["row"] for batch in batches]).ravel()
        assert all(batch["valid"].all() for batch in batches)
        found = np.concatenate([batch["image"].cpu() for batch in batches])[np.argsort(rows)]
        return np.asarray(found, np.float32)

    expected = images(jpeg_pipeline, None)
    assert expected.std() > 20
    difference = np.abs(images(without_regions, device) - expected)
    if device is None:
        assert difference.max() <= 2
    else:  # another inverse transform, and the same interpolation of colours
        assert (difference > 2).mean() < 0.01
