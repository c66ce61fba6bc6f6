"""The PSF against aiapy's, on small frames: aiapy takes 6 s an order at full size."""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

import astropy.units as u
import numpy as np
import pytest
from aiapy_releases import small_psf

from dali_pipelines.aia import psf as module
from dali_pipelines.aia.psf import PSF_CHANNELS, cached_psf, psf

SIZE = 128


@pytest.fixture
def aiapy_psf(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return aiapy's function for small frames."""
    return small_psf(monkeypatch, SIZE)


@pytest.mark.parametrize("channel", PSF_CHANNELS)
def test_equals_aiapy(aiapy_psf: Any, channel: int) -> None:
    # Not symmetric, so that a mirrored image shows; some spikes are cut by the edge, some beyond.
    orders = [-3, 0, 1, 2, 7, 90]
    expected = aiapy_psf(channel * u.angstrom, diffraction_orders=orders)
    found = psf(channel, shape=(SIZE, SIZE), diffraction_orders=orders)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * expected.max())


def test_all_orders_are_the_default(aiapy_psf: Any) -> None:
    expected = aiapy_psf(335 * u.angstrom)
    found = psf(335, shape=(SIZE, SIZE))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * expected.max())
    assert found.argmax() == (SIZE // 2) * SIZE + SIZE // 2


def test_aiapy_knows_the_same_channels() -> None:
    meshes = sys.modules["aiapy.psf.psf"].filter_mesh_parameters()
    assert tuple(int(channel.value) for channel in meshes) == PSF_CHANNELS


def test_a_frame_need_not_be_square() -> None:
    wide = psf(171, diffraction_orders=[-1, 1], shape=(64, 128))
    square = psf(171, diffraction_orders=[-1, 1], shape=(128, 128))
    np.testing.assert_allclose(wide, square[32:96], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "channel"), [(psf, 1600), (psf, 172), (cached_psf, 1700), (cached_psf, 4500)]
)
def test_a_channel_without_psf(make: Any, channel: int) -> None:
    with pytest.raises(ValueError, match=f"{channel} angstrom.*94, .*335.*leave"):
        make(channel)


def test_orders_and_shapes_that_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"other than 0.*\[0\]"):
        psf(171, diffraction_orders=[0], shape=(8, 8))
    with pytest.raises(ValueError, match=r"even.*\(8, 9\)"):
        psf(171, shape=(8, 9))


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Folder of the cache, which does not exist yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "dali-pipelines"


def kept(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_it_is_made_once(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    first = cached_psf(171, shape=(32, 32))
    np.testing.assert_array_equal(first, psf(171, shape=(32, 32)))
    monkeypatch.setattr(module, "psf", None)
    np.testing.assert_array_equal(cached_psf(171, shape=(32, 32)), first)
    assert [path.name for path in kept(folder)] == ["psf-v1-171-flight-32x32.npz"]


def test_each_choice_has_a_file_of_its_own(folder: Path) -> None:
    for channel in (171, 193):
        for shape in ((32, 32), (32, 64)):
            np.testing.assert_array_equal(
                cached_psf(channel, shape=shape), psf(channel, shape=shape)
            )
    assert len(kept(folder)) == 4


@pytest.mark.parametrize("damage", ["empty", "cut", "bit", "other"])
def test_a_damaged_file_is_made_again(
    damage: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = cached_psf(171, shape=(32, 32))
    (path,) = kept(folder)
    good = path.read_bytes()
    bad = bytearray(good)
    bad[len(bad) // 2] ^= 1
    path.write_bytes({"empty": b"", "cut": good[:5000], "bit": bytes(bad), "other": b"x"}[damage])
    with caplog.at_level(logging.WARNING):
        found = cached_psf(171, shape=(32, 32))
    np.testing.assert_array_equal(found, expected)
    assert f"{path} is damaged and will be made again" in caplog.text
    assert kept(folder) == [path]
    caplog.clear()
    cached_psf(171, shape=(32, 32))
    assert not caplog.records


def test_a_folder_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))  # the second choice
    found = cached_psf(171, shape=(32, 32))
    np.testing.assert_array_equal(found, psf(171, shape=(32, 32)))
    assert "could not be saved" in caplog.text


def test_a_write_that_fails_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def full(file: Any, **_: Any) -> None:
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    cached_psf(171, shape=(32, 32))
    assert kept(folder) == []
    assert "No space left on device" in caplog.text
