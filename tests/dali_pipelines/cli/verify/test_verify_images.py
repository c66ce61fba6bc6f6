"""The command verify on encoded images: against Pillow, and damage that Pillow does not notice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import LOSSLESS, exif, pillow
from PIL import Image

NOISE = np.random.default_rng(0).integers(0, 256, (60, 88, 3), np.uint8)
PHOTO = Image.fromarray(NOISE[:8, :11]).resize((88, 60), Image.Resampling.BICUBIC)
Verify = Callable[..., dict[str, str]]

pytestmark = pytest.mark.usefixtures("no_processes")


def half(jpeg: bytes) -> bytes:
    return jpeg[: len(jpeg) // 2] + b"\xff\xd9"


def test_sound_and_damaged_files(shared_data: Path, tmp_path: Path, verify: Verify) -> None:
    jpeg, png = pillow(PHOTO), pillow(PHOTO, "PNG")
    middle = len(png) // 2
    flipped = bytes((png[middle] ^ 0xFF,))
    sound = {
        "sound.jpg": (jpeg, "JPEG  60x88x3"),
        "sound.png": (png, "PNG  60x88x3"),
        "gray.png": (pillow(PHOTO.convert("L"), "PNG"), "PNG  60x88x3"),
        "turned.jpg": (pillow(PHOTO, exif=exif(6)), "JPEG  88x60x3"),
        "progressive.jpg": (pillow(PHOTO, progressive=True), "JPEG  60x88x3"),
    }
    damaged = {
        "damaged.png": (png[:middle] + flipped + png[middle + 1 :], "checksum"),
        "false_marker.jpg": (jpeg[:-400] + b"\xff\x3a" + jpeg[-398:], ""),
        "half.jpg": (half(jpeg), "premature end"),
        "half_progressive.jpg": (half(pillow(PHOTO, progressive=True)), "premature end"),
        "cut.jpg": (jpeg[: len(jpeg) // 2], ""),
        "text.jpg": (b"no image\n", ""),
    }
    for name, (content, _) in (sound | damaged).items():
        (tmp_path / name).write_bytes(content)
    real = sorted((shared_data / "jpeg").rglob("*.jpg"))[0]
    lines = verify(tmp_path, real, shared_data / "fits" / "m13.fits")
    assert lines["m13.fits"] == "plain  300x300  int16  0  OK"
    assert lines[real.name].endswith("  OK")
    for name, (_, facts) in sound.items():
        assert lines[name] == f"{facts}  uint8  0  OK"
    for name, (_, word) in damaged.items():
        assert word in lines[name].partition("  REJECTED  ")[2]
        assert "REJECTED" in lines[name]


def test_windows_are_of_the_turned_image(tmp_path: Path, verify: Verify) -> None:
    for orientation in (1, 6):
        (tmp_path / f"{orientation}.jpg").write_bytes(pillow(PHOTO, exif=exif(orientation)))
    lines = verify(tmp_path, "--window=3,5,20,70")
    assert lines["1.jpg"] == "JPEG  20x70x3  uint8  0  OK"
    reason = lines["6.jpg"].partition("REJECTED")[2]
    for fact in ("rows 3 to 22", "columns 5 to 74", "88x60"):
        assert fact in reason


@pytest.mark.parametrize(
    ("form", "levels", "verdict"),
    [("JPEG", 2, "OK"), ("JPEG", 3, "DIFFERS"), ("PNG", 1, "DIFFERS")],
)
def test_differences_are_seen(
    tmp_path: Path,
    verify: Verify,
    change_truth: Callable[..., None],
    form: str,
    levels: int,
    verdict: str,
) -> None:
    """Within 2 grey levels where the format has losses."""

    def change(_: str, truth: Any) -> None:
        truth.values[1, 5, 6] += levels if truth.values[1, 5, 6] < 128 else -levels

    change_truth(change)
    (tmp_path / f"a.{form.lower()}").write_bytes(pillow(PHOTO, form))
    ((name, line),) = verify(tmp_path, status=verdict == "DIFFERS").items()
    assert f"  uint8  {levels}  {verdict}" in line, name
    assert ("1 of 15840" in line) == (verdict == "DIFFERS")


def test_damage_that_only_the_kernel_finds_is_told(tmp_path: Path, verify: Verify) -> None:
    """One byte too many: libjpeg-turbo takes it for fill."""
    jpeg = pillow(PHOTO)
    (tmp_path / "extra.jpg").write_bytes(jpeg[:-2] + b"a" + jpeg[-2:])
    line = verify(tmp_path, status=1)["extra.jpg"]
    assert "DIFFERS" in line
    assert "damaged" in line


def test_each_kind_and_depth(tmp_path: Path, verify: Verify) -> None:
    for name, (content, _) in LOSSLESS.items():
        (tmp_path / name).write_bytes(content)
    found = verify(tmp_path)
    assert found.keys() == LOSSLESS.keys()
    assert {line.split("  ")[-1] for line in found.values()} == {"OK"}
    assert found["g16_turned.tif"] == "TIFF  64x40x3  uint16  0  OK"
