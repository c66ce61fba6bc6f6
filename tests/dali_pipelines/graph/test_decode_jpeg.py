"""Windows of JPEG images as a GPU makes them: decoded whole, and then cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import exif, pillow, rgb
from numpy.typing import NDArray
from nvidia.dali import fn
from PIL import Image, ImageOps

from dali_pipelines import Index, Loader, jpeg_pipeline, with_mcu_rows


def cut_out(encoded: Any, anchor: Any, shape: Any, axis_names: str, **options: Any) -> Any:
    return fn.slice(fn.decoders.image(encoded, **options), anchor, shape, axis_names=axis_names)


@pytest.mark.parametrize("device", [None, pytest.param(0, marks=pytest.mark.gpu)])
@pytest.mark.parametrize("noted", [False, True])
def test_the_same_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noted: bool, device: int | None
) -> None:
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

    def images(device: int | None) -> NDArray[np.float32]:
        settings["devices"] = [device]
        with Loader(jpeg_pipeline, index, num_read_processes=1, **settings) as loader:
            batches = [batch for (batch,) in loader]
        rows = np.concatenate([batch["row"] for batch in batches]).ravel()
        assert all(batch["valid"].all() for batch in batches)
        found = np.concatenate([batch["image"].cpu() for batch in batches])[np.argsort(rows)]
        return np.asarray(found, np.float32)

    expected = images(None)
    assert expected.std() > 20
    monkeypatch.setattr(fn.decoders, "image_slice", cut_out)
    difference = np.abs(images(device) - expected)
    if device is None:
        assert difference.max() <= 2
    else:  # another inverse transform, and the same interpolation of colours
        assert (difference > 3).mean() < 0.01


def with_junk(jpeg: bytes, marker: int, junk: bytes) -> bytes:
    """Put bytes before the last segment of a kind."""
    at = jpeg.rindex(bytes((0xFF, marker)))
    return jpeg[:at] + junk + jpeg[at:]


@pytest.mark.parametrize("noted", [False, True])
@pytest.mark.parametrize("crop", [None, (24, 40)])
def test_bytes_between_segments(tmp_path: Path, crop: tuple[int, int] | None, noted: bool) -> None:
    """Pillow passes over them, and DALI fails on them."""
    picture = Image.fromarray(rgb(8)).resize((128, 96))
    sound = pillow(picture)
    progressive = pillow(picture, progressive=True)
    for marker in (0xDB, 0xC0, 0xC4, 0xDA, 0xD9):
        for number, junk in enumerate((b"\0", bytes(7), b"\xff\0\xff\0", b"\xff\xff", b"a\xff")):
            content = with_junk(sound, marker, junk)
            (tmp_path / f"{marker:x}_{number}.jpg").write_bytes(content)
    for number, junk in enumerate((b"\xff\xd0", b"\xff\xe5\0\0", b"\xff\xfe\0\1")):
        (tmp_path / f"{number}.jpg").write_bytes(with_junk(sound, 0xDB, junk))
    (tmp_path / "progressive.jpg").write_bytes(with_junk(progressive, 0xDA, b"junk"))
    (tmp_path / "turned.jpg").write_bytes(with_junk(pillow(picture, exif=exif(6)), 0xDB, b"ab"))
    index = Index.scan(tmp_path)
    index = with_mcu_rows(index) if noted else index
    settings: dict[str, Any] = {"crop": crop, "window": "random"} if crop else {}
    with Loader(
        jpeg_pipeline,
        index,
        batch_size=4,
        num_read_processes=1,
        outputs=("window",),
        framework="numpy",
        ragged="list",
        devices=[None],
        **settings,
    ) as loader:
        found = {
            int(row): (image, window)
            for (batch,) in loader
            for row, image, window in zip(
                batch["row"], batch["image"], batch["window"], strict=True
            )
        }
    assert len(found) == len(index)
    for row, path in enumerate(index.table["path"].to_pylist()):
        image, window = found[row]
        y, x, height, width = window.astype(int)
        with Image.open(path) as opened:
            expected = np.asarray(ImageOps.exif_transpose(opened).convert("RGB"), np.float32)
        part = expected[y : y + height, x : x + width].transpose(2, 0, 1)
        np.testing.assert_allclose(image, part, atol=2, err_msg=path)
