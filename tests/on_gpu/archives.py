"""Small archives of all that the pipelines decode; nothing of them is downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from astropy.io import fits
from image_files import LOSSLESS, exif, pillow
from numpy.typing import NDArray
from PIL import Image

from dali_pipelines import Index

SHAPE = 40, 52
"""Of FITS images; their tiles do not divide it."""

RICE: dict[str, Any] = {"compression_type": "RICE_1", "tile_shape": (7, 9)}


def noise(seed: int, shape: tuple[int, ...] = SHAPE) -> NDArray[Any]:
    """Return noise over a slope."""
    values = np.random.default_rng(seed).normal(500, 30, shape)
    return values + np.linspace(0, 200, shape[-1])


def fits_archive(folder: Path) -> Index:
    """Write integers and floats of all kinds, compressed and not, with holes."""
    holes = noise(0).astype(np.float32)
    holes[3:9, 5:11] = np.nan
    zeros = np.where(noise(1) > 520, noise(1), 0).astype(np.float32)
    blank = noise(2).astype(np.int16)
    blank[20:, 40:] = -1
    dithered = {**RICE, "quantize_level": 8, "dither_seed": 7}
    shuffled = {**dithered, "compression_type": "GZIP_2"}
    hdus = {
        "rice": fits.CompImageHDU(noise(3).astype(np.int16), **RICE),
        "rice_rows": fits.CompImageHDU(noise(4).astype(np.int32), compression_type="RICE_1"),
        "rice_bytes": fits.CompImageHDU((noise(5) / 4).astype(np.uint8), **RICE),
        "rice_unsigned": fits.CompImageHDU((60 * noise(6)).astype(np.uint16), **RICE),
        "floats": fits.CompImageHDU(noise(7).astype(np.float32), quantize_method=1, **dithered),
        "zeros": fits.CompImageHDU(zeros, quantize_method=2, **dithered),
        "holes": fits.CompImageHDU(holes, quantize_method=1, **dithered),
        "exact": fits.CompImageHDU(
            noise(8).astype(np.float32), compression_type="GZIP_2", quantize_level=0
        ),
        "gzip": fits.CompImageHDU(noise(11).astype(np.int16), compression_type="GZIP_1"),
        "shuffled": fits.CompImageHDU(noise(12).astype(np.float32), quantize_method=1, **shuffled),
        "mask": fits.CompImageHDU((noise(13) > 600).astype(np.uint8), compression_type="PLIO_1"),
        "plain": fits.PrimaryHDU(noise(9).astype(np.int16)),
        "plain_unsigned": fits.PrimaryHDU((60 * noise(10)).astype(np.uint16)),
        "plain_floats": fits.PrimaryHDU(holes.astype(np.float64)),
        "blank": fits.PrimaryHDU(blank, fits.Header({"BLANK": -1, "BSCALE": 0.5, "BZERO": 7.0})),
    }
    for name, hdu in hdus.items():
        hdu.writeto(folder / f"{name}.fits")
    return Index.scan(folder)


def integers(folder: Path) -> Index:
    """Write int16, compressed and not."""
    fits.CompImageHDU(noise(0).astype(np.int16), **RICE).writeto(folder / "rice.fits")
    fits.PrimaryHDU(noise(1).astype(np.int16)).writeto(folder / "plain.fits")
    return Index.scan(folder)


def cubes(folder: Path) -> Index:
    """Write images of five planes, compressed and not."""
    cube = noise(0, (2, 5, *SHAPE)).astype(np.float32)
    tiles = {**RICE, "tile_shape": (1, 7, 9)}
    fits.CompImageHDU(cube[0], quantize_method=1, dither_seed=99, **tiles).writeto(
        folder / "rice.fits"
    )
    fits.PrimaryHDU(cube[1]).writeto(folder / "plain.fits")
    return Index.scan(folder)


def encoded_images(folder: Path) -> Index:
    """Write images without loss, of 8 and 16 bits, gray and colours, of all formats."""
    for name, (content, _) in LOSSLESS.items():
        (folder / name).write_bytes(content)
    return Index.from_paths([folder / name for name in LOSSLESS])


def photographs(folder: Path) -> Index:
    """Write JPEG files of all orientations, samplings and scans, in colour and gray."""
    picture = Image.fromarray(
        np.random.default_rng(0).integers(0, 256, (12, 9, 3), np.uint8)
    ).resize((180, 240), Image.Resampling.BICUBIC)
    files = {f"turned_{n}": pillow(picture, exif=exif(n), quality=92) for n in range(1, 9)}
    files |= {
        "444": pillow(picture, subsampling=0, quality=95),
        "422": pillow(picture, subsampling=1, quality=90),
        "progressive": pillow(picture, progressive=True),
        "restarts": pillow(picture, restart_marker_rows=2),
        "gray": pillow(picture.convert("L"), exif=exif(6)),
    }
    for name, content in files.items():
        (folder / f"{name}.jpg").write_bytes(content)
    return Index.scan(folder)


def numbered(folder: Path, rows: int) -> Index:
    """Write arrays whose values are the number of their row."""
    paths = [folder / f"{row}.npy" for row in range(rows)]
    for row, path in enumerate(paths):
        np.save(path, np.full((6, 8), row, np.float32))
    return Index.from_paths(paths)


AIA_SIZE = 128
_SCALE = 4096 * 0.6 / AIA_SIZE


def _aia_header(**words: Any) -> fits.Header:
    """Return what level 1 files say, for a frame of so many pixels."""
    return fits.Header(
        {
            "INSTRUME": "AIA_3",
            "TELESCOP": "SDO/AIA",
            "LVL_NUM": 1.0,
            "IMG_TYPE": "LIGHT",
            "WAVELNTH": 171,
            "WAVEUNIT": "angstrom",
            "QUALITY": 0,
            "PERCENTD": 100.0,
            "T_OBS": "2015-01-01T00:00:00.57Z",
            "DATE-OBS": "2015-01-01T00:00:00.34",
            "CTYPE1": "HPLN-TAN",
            "CTYPE2": "HPLT-TAN",
            "CUNIT1": "arcsec",
            "CUNIT2": "arcsec",
            "CRVAL1": 0.0,
            "CRVAL2": 0.0,
            "CDELT1": _SCALE,
            "CDELT2": _SCALE,
            "CRPIX1": 64.2,
            "CRPIX2": 65.1,
            "CROTA2": 2.0,
            "EXPTIME": 2.0,
            "RSUN_OBS": 975.5,
            "RSUN_REF": 696000000.0,
            "DSUN_OBS": 147100000000.0,
            **words,
        }
    )


def _aia_frame(seed: int) -> NDArray[Any]:
    """Draw a disk, brighter towards its limb."""
    y, x = np.indices((AIA_SIZE, AIA_SIZE))
    radius = np.hypot(y - 64, x - 63) / (975.5 / _SCALE)
    disk = np.where(radius < 1, 300 + 900 * radius**4, 700 * np.exp(-6 * (radius - 1)))
    return np.random.default_rng(seed).poisson(disk).astype(np.int16)


def aia_frames(folder: Path) -> Index:
    """Write frames of AIA, differently turned, half of them compressed."""
    for number in range(4):
        header = _aia_header(CROTA2=3.0 * number, EXPTIME=1.0 + number)
        pixels = _aia_frame(number)
        hdu = fits.CompImageHDU(pixels, header, **RICE) if number % 2 else None
        (hdu or fits.PrimaryHDU(pixels, header)).writeto(folder / f"{number}.fits")
    return Index.scan(folder)


def aia_samples(folder: Path) -> Index:
    """Write samples of two channels; one file is missing."""
    times, waves, paths = [], [], []
    for number in range(4):
        for wave in (171, 304) if number != 2 else (171,):
            path = folder / f"{wave}_{number}.fits"
            header = _aia_header(WAVELNTH=wave, CROTA2=1.5 * number)
            fits.CompImageHDU(_aia_frame(wave + number), header, **RICE).writeto(path)
            paths.append(str(path))
            waves.append(wave)
            times.append(12 * number)
    time = pa.array(times, pa.timestamp("s"))
    files = Index(pa.table({"path": paths, "wavelnth": waves, "t_obs": time}))
    return files.group([171, 304], missing="keep")
