"""The flag --verify: damage that no header shows."""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from PIL import Image

from dali_pipelines.parallel.interpreter import Crash

Run = Callable[..., Any]
NOISE = np.random.default_rng(0).integers(0, 255, (60, 80, 3), np.uint8)
STORED = NOISE[:20, :23, 0].astype(np.int16)


def overwritten(content: bytes, place: int, replacement: bytes) -> bytes:
    return content[:place] + replacement + content[place + len(replacement) :]


def write_damaged(folder: Path) -> dict[str, str]:
    """Write files, some with a few wrong bytes; give the reason for which each of those is bad."""
    codings: dict[str, dict[str, Any]] = {
        "sound.jpg": {},
        "progressive.jpg": {"progressive": True},
        "early_end.jpg": {},
        "extra.jpg": {},
        "photo.png": {},
    }
    for name, options in codings.items():
        Image.fromarray(NOISE).save(folder / name, **options)
    for name in "sums.fits", "changed.fits":
        fits.PrimaryHDU(NOISE[..., 0]).writeto(folder / name, checksum=True)
    fits.CompImageHDU(STORED, compression_type="GZIP_1").writeto(folder / "tiles.fits")
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    jpeg, tiles = whole["extra.jpg"], whole["tiles.fits"]
    damaged = {
        "early_end.jpg": (jpeg[: len(jpeg) // 2] + b"\xff\xd9", "premature end"),
        "extra.jpg": (jpeg[:-2] + b"a" + jpeg[-2:], "damaged"),  # libjpeg-turbo does not notice
        "photo.png": (overwritten(whole["photo.png"], 900, b"damaged"), "checksum"),
        "changed.fits": (overwritten(whole["changed.fits"], 3000, b"damaged"), "DATASUM"),
        "tiles.fits": (overwritten(tiles, tiles.index(b"\x1f\x8b") + 20, b"damaged"), ""),
    }
    for name, (content, _) in damaged.items():
        (folder / name).write_bytes(content)
    return {name: reason for name, (_, reason) in damaged.items()}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_damage_that_no_header_shows(tmp_path: Path, index: Run) -> None:
    folder = tmp_path / "archive"
    folder.mkdir()
    reasons = write_damaged(folder)
    assert "7 rows kept, 1 rejected" in index(folder).out  # the PNG has checksums
    found = index(folder, "--verify", "--rejected=bad.csv", num_processes=2)
    assert "8 files found: 3 rows kept, 5 rejected" in found.out
    assert found.names == ["progressive.jpg", "sound.jpg", "sums.fits"]
    with open("bad.csv", newline="") as file:
        rejected = {os.path.basename(row["path"]): row["reason"] for row in csv.DictReader(file)}
    assert sorted(rejected) == sorted(reasons)
    for name, reason in reasons.items():
        assert reason in rejected[name], name


def test_damage_that_astropy_does_not_see(index: Run) -> None:
    """It decodes damaged streams, and reads values whatever their scale. All planes are decoded."""
    fits.PrimaryHDU(STORED, fits.Header({"OBJECT": "2.0"})).writeto("scale.fits")
    content = Path("scale.fits").read_bytes()
    Path("scale.fits").write_bytes(content.replace(b"OBJECT  =", b"BSCALE  ="))
    fits.CompImageHDU(STORED, compression_type="HCOMPRESS_1").writeto("tiles.fits")
    with fits.open("tiles.fits", disable_image_compression=True) as hdus:
        at = hdus[1].fileinfo()["datLoc"]
    content = Path("tiles.fits").read_bytes()
    length = int.from_bytes(content[at : at + 4], "big")
    Path("tiles.fits").write_bytes(overwritten(content, at, (length - 1).to_bytes(4, "big")))
    cube = np.stack((STORED, STORED))
    tiled = fits.CompImageHDU(cube, compression_type="PLIO_1", tile_shape=(1, 20, 23))
    tiled.writeto("sound.fits")
    tiled.writeto("words.fits")
    content = Path("words.fits").read_bytes()
    at = len(content.rstrip(b"\0")) - 300
    Path("words.fits").write_bytes(overwritten(content, at, b"\xff" * 16))
    assert fits.getdata("tiles.fits").shape == STORED.shape
    assert fits.getdata("words.fits").shape == cube.shape
    assert "4 rows kept, 0 rejected" in index("*.fits").out
    assert index("*.fits", "--verify").names == ["sound.fits"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("kind", [fits.ImageHDU, fits.CompImageHDU])
def test_a_last_block_that_is_not_filled(
    tmp_path: Path, index: Run, suffix: str, kind: type[fits.ImageHDU]
) -> None:
    """Its DATASUM counts the whole block; a file that lacks a byte of the data is rejected."""
    fits.HDUList([fits.PrimaryHDU(), kind(STORED)]).writeto(tmp_path / "whole", checksum=True)
    with fits.open(tmp_path / "whole", disable_image_compression=True) as hdus:
        end = hdus[1].fileinfo()["datLoc"] + hdus[1].size
    for name, length in (("good", end), ("cut", end - 1)):
        content = (tmp_path / "whole").read_bytes()[:length]
        packed = gzip.compress(content) if suffix else content
        (tmp_path / f"{name}.fits{suffix}").write_bytes(packed)
    assert index(f"{tmp_path}/*.fits*", "--verify").names == [f"good.fits{suffix}"]


def test_a_file_that_kills_its_process(
    archive: Path, index: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in a fake of the pool: no file is known that brings a decoder down."""

    def deadly(function: Callable[..., Any], tasks: Iterable[Any], *_: object) -> Iterator[Any]:
        for task in tasks:
            yield Crash() if task[0][0].path.endswith("b.fits") else function(*task)

    monkeypatch.setattr("dali_pipelines.cli.index.scan.isolated_map", deadly)
    found = index(archive, "--verify")
    assert "3 rows kept, 3 rejected" in found.out
    assert f"rejected {archive / 'b.fits'}: " in found.err
    assert found.names == ["a.fits", "c.fits", "d.fits"]


def test_real_files(shared_data: Path, index: Run) -> None:
    assert " 0 rejected" in index(shared_data / "fits", "--verify").out
