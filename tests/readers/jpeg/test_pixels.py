"""Images above the limit of Pillow, which is the user's, and those that DALI does not decode."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from image_files import C8, exif, pillow, raw_png, tiff
from PIL import Image, PngImagePlugin

from dali_pipelines.cli.verify.truth import by_pillow
from readers import JpegReader, Mask, ReadError, Window
from readers.header_scan import image_facts
from readers.places.opener import LOCAL
from readers.sampling.placement import Placement
from readers.testing import refused, written


def gray_png(height: int, width: int) -> bytes:
    """Encode black of a bit for each pixel."""
    return raw_png(height, width, 1, 0, bytes(height * (1 + -(-width // 8))))


def jpeg_of(height: int, width: int) -> bytes:
    """Return the beginning and the end of a JPEG of a size."""
    jpeg = bytearray(pillow(C8))
    struct.pack_into(">HH", jpeg, jpeg.index(b"\xff\xc0") + 5, height, width)
    return bytes(jpeg)


def tiff_of(height: int) -> bytes:
    content = tiff(C8)
    entry = struct.pack("<HHII", 257, 4, 1, 40)
    assert entry in content
    return content.replace(entry, entry[:8] + struct.pack("<I", height))


def test_larger_than_pillow_allows(tmp_path: Path) -> None:
    row = written(tmp_path, gray_png(20_000, 10_000))
    with pytest.raises(Image.DecompressionBombError):
        Image.open(row.path)
    sample = JpegReader().read(row, Window(height=10, width=20))
    assert sample["sent_shape"].tolist() == [20_000, 10_000]
    JpegReader().verify(row)


@pytest.mark.parametrize("limit", [None, 10, 500])
def test_the_limit_of_pillow_is_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int | None
) -> None:
    """It does not matter, and is left as it was."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    for form in ("JPEG", "PNG", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000"):
        turned = {} if form in ("PPM", "BMP", "JPEG2000") else {"exif": exif(3)}
        row = written(tmp_path, pillow(C8, form, **turned))
        JpegReader().verify(row)
        assert JpegReader().read(row, None)["shape"].tolist() == [40, 64]
        truth = by_pillow(row, None, None)
        assert not truth.complaint
        assert truth.shape == (40, 64, 3)
        assert image_facts(row.path) == {"height": 40, "width": 64, "format": form}
    path = tmp_path / "mask.png"
    path.write_bytes(pillow(C8[..., 0], "PNG"))
    placement = Placement.of(None, (40, 64), None, (False, False))
    mask = Mask("m").read("mask", {"m": LOCAL.at(str(path))}, placement)["mask"]
    np.testing.assert_array_equal(mask, C8[..., 0])
    # EXIF data as ImageMagick wrote them, for which Pillow reads the file.
    info, data = PngImagePlugin.PngInfo(), exif(3).tobytes()
    info.add_text("Raw profile type exif", f"\nexif\n{len(data)}\n{data.hex()}\n")
    row = written(tmp_path, pillow(C8, "PNG", pnginfo=info))
    np.testing.assert_array_equal(JpegReader().read(row, None)["shape"], [40, 64])
    assert limit == Image.MAX_IMAGE_PIXELS


def test_pixels_that_are_sent_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("readers.jpeg.reader.MAX_NBYTES", 3 * 40 * 63)
    row = written(tmp_path, pillow(C8, "WEBP"))
    with pytest.raises(ReadError, match="crop"):
        JpegReader().read(row, None)
    JpegReader().read(row, Window(height=40, width=50))


TOO_LARGE: dict[str, Callable[[], bytes]] = {
    "40000x40000": lambda: jpeg_of(40_000, 40_000),
    "40000x30000": lambda: gray_png(40_000, 30_000),
    f"{1 << 30} pixels": lambda: tiff_of(100_000_000),
    "65501x64": lambda: jpeg_of(65_501, 64),
    "2x1000001": lambda: gray_png(2, 1_000_001),
}


@pytest.mark.parametrize("size", TOO_LARGE)
def test_what_dali_cannot_decode_is_refused_with_the_remedy(tmp_path: Path, size: str) -> None:
    row = written(tmp_path, TOO_LARGE[size]())
    reason = refused(JpegReader(), row, None).reason
    assert size in reason
    assert "save it in several files" in reason
    with pytest.raises(OSError, match=size):
        JpegReader().verify(row)


def test_files_of_2_gib_are_refused_unread(tmp_path: Path) -> None:
    row = written(tmp_path, pillow(C8, "PNG"))
    with open(row.path, "r+b") as file:
        file.truncate(1 << 31)
    assert "save it in several files" in refused(JpegReader(), row, None).reason
