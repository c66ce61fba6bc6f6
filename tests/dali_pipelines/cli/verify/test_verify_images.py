"""verify.py on encoded images: against Pillow, and what Pillow does not notice."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import LOSSLESS
from PIL import Image

from dali_pipelines.cli.verify import compare
from dali_pipelines.cli.verify import main as script

NOISE = np.random.default_rng(0).integers(0, 256, (60, 88, 3), np.uint8)
PHOTO = Image.fromarray(NOISE[:8, :11]).resize((88, 60), Image.Resampling.BICUBIC)
FACTS = "JPEG  60x88x3  uint8"


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Pillow decode here: that processes do it as well is seen in test_verify.py."""

    def in_order(
        function: Callable[..., Any], tasks: Iterable[Any], num_processes: int
    ) -> Iterator[Any]:
        del num_processes
        yield from (function(*task) for task in tasks)

    monkeypatch.setattr(compare, "isolated_map", in_order)


Run = Callable[..., dict[str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command on the CPU in this process; give its status, and lines by file name."""

    def run(*arguments: object, status: int) -> dict[str, str]:
        found = script.main(["--device=cpu", *map(str, arguments)])
        out, err = capsys.readouterr()
        assert found == status, out + err
        lines = dict(line.split("  ", 1) for line in out.splitlines())
        return {os.path.basename(path): rest for path, rest in lines.items()}

    return run


def encoded(form: str = "JPEG", image: Image.Image = PHOTO, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, form, **options)
    return stream.getvalue()


def turned(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes((content[place] ^ 0xFF,)) + content[place + 1 :]


def half(jpeg: bytes) -> bytes:
    return jpeg[: len(jpeg) // 2] + b"\xff\xd9"


def test_sound_damaged_and_hostile_files(shared_data: Path, tmp_path: Path, run: Run) -> None:
    jpeg, png = encoded(), encoded("PNG")
    contents = {
        "sound.jpg": jpeg,
        "sound.png": png,
        "gray.png": encoded("PNG", PHOTO.convert("L")),
        "turned.jpg": encoded(exif=turned(6)),
        "progressive.jpg": encoded(progressive=True),
        "damaged.png": flipped(png, len(png) // 2),
        "false_marker.jpg": jpeg[:-400] + b"\xff\x3a" + jpeg[-398:],
        "half.jpg": half(jpeg),
        "half_progressive.jpg": half(encoded(progressive=True)),
        "cut.jpg": jpeg[: len(jpeg) // 2],
        "text.jpg": b"no image\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    real = sorted((shared_data / "jpeg").rglob("*.jpg"))[:1]
    lines = run(tmp_path, *real, shared_data / "fits" / "m13.fits", status=0)
    assert lines.pop("m13.fits") == "plain  300x300  int16  0  OK"
    for path in real:
        assert lines.pop(path.name).endswith("  OK")
    assert lines["sound.jpg"] == f"{FACTS}  0  OK"
    assert lines["sound.png"] == lines["gray.png"] == "PNG  60x88x3  uint8  0  OK"
    assert lines["turned.jpg"] == "JPEG  88x60x3  uint8  0  OK"
    assert lines["progressive.jpg"] == f"{FACTS}  0  OK"
    rejected = {name: line for name, line in lines.items() if "  REJECTED  " in line}
    assert set(rejected) == set(contents) - {name for name in lines if lines[name].endswith("OK")}
    assert len(rejected) == 6
    assert "the checksum of the PNG chunk" in rejected["damaged.png"]
    assert "is not allowed there" in rejected["false_marker.jpg"]
    for name in ("half.jpg", "half_progressive.jpg"):
        assert "Corrupt JPEG data: premature end of data segment" in rejected[name]


def test_window(tmp_path: Path, run: Run) -> None:
    for orientation in (1, 6):
        (tmp_path / f"{orientation}.jpg").write_bytes(encoded(exif=turned(orientation)))
    lines = run(tmp_path, "--window=3,5,20,70", status=0)
    assert lines["1.jpg"] == "JPEG  20x70x3  uint8  0  OK"
    assert lines["6.jpg"].endswith(
        "REJECTED  the window of rows 3 to 22 and columns 5 to 74 reaches outside the image 88x60"
    )


def test_differences_are_seen(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Pillow says is changed on the way."""

    def changed(
        function: Callable[..., Any], tasks: Iterable[Any], num_processes: int
    ) -> Iterator[Any]:
        del num_processes
        for task in tasks:
            truth = function(*task)
            by = {"aa": 2, "bb": 3, "cc": 1}[os.path.basename(task[0].path)[:2]]
            value = truth.values[1, 5, 6]
            truth.values[1, 5, 6] += by if value < 128 else -by
            yield truth

    monkeypatch.setattr(compare, "isolated_map", changed)
    for name, form in (("aa.jpg", "JPEG"), ("bb.jpg", "JPEG"), ("cc.png", "PNG")):
        (tmp_path / name).write_bytes(encoded(form))
    lines = run(tmp_path, status=1)
    assert lines["aa.jpg"] == f"{FACTS}  2  OK"
    assert lines["bb.jpg"] == f"{FACTS}  3  DIFFERS  1 of 15840 pixels"
    assert lines["cc.png"] == "PNG  60x88x3  uint8  1  DIFFERS  1 of 15840 pixels"


def test_damage_that_only_the_kernel_finds_is_told(tmp_path: Path, run: Run) -> None:
    """One byte too many: libjpeg-turbo takes it for fill."""
    jpeg = encoded()
    (tmp_path / "extra.jpg").write_bytes(jpeg[:-2] + b"a" + jpeg[-2:])
    line = run(tmp_path, status=1)["extra.jpg"]
    assert "DIFFERS  read here, but not by Pillow: ReadError" in line
    assert line.endswith("the file is damaged: the entropy-coded bytes do not add up")


def test_each_kind_and_depth(tmp_path: Path, run: Run) -> None:
    for name, (content, _) in LOSSLESS.items():
        (tmp_path / name).write_bytes(content)
    found = run(tmp_path, status=0)
    assert found.keys() == LOSSLESS.keys()
    assert {line.split("  ")[-1] for line in found.values()} == {"OK"}
    assert found["g16_turned.tif"] == "TIFF  64x40x3  uint16  0  OK"
