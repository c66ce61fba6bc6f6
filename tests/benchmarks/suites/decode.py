"""One core, one frame, from path to pixels: this toolkit's reader and kernel against the peers.

The frames are 4096 x 4096 int16 in RICE_1 rows, made of noise whose width gives the bits a pixel.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits

from benchmarks.data import Settings
from benchmarks.measure.race import Batch, Run, Table, Way, race

SIZE = 4096
SIGMAS = (0.5, 5.0, 20.0, 700.0)
"""Of the noise: about 2, 5, 7 and 12 bits a pixel."""
_REPEATS = 3
"""Of the frame in a round."""

Decode = Callable[[str], Any]


def decode_suite(settings: Settings) -> Iterator[Table]:
    """Time all ways on all frames."""
    size = SIZE // 4 if settings.quick else SIZE
    with tempfile.TemporaryDirectory() as folder:
        for sigma in SIGMAS[1:2] if settings.quick else SIGMAS:
            path = _frame(Path(folder), sigma, size)
            for dtype in ("int16", "float32"):
                yield _table(path, size, dtype, settings.rounds)


def _table(path: str, size: int, dtype: str, rounds: int) -> Table:
    bits = 8 * Path(path).stat().st_size / size**2
    image = fits.getdata(path, 1).astype(dtype)
    ways = [
        _way("decode_image", _ours(dtype, size), path, ours=True),
        _way("astropy", _astropy(dtype), path),
        _way("fitsio", _fitsio(dtype), path, needs=("fitsio",)),
    ]
    return Table(
        title=f"A frame to {dtype}, {bits:.1f} bits a pixel",
        baseline="astropy",
        results=race(ways, lambda *_: image, rounds),
        data=f"{size}x{size} int16 in RICE_1 rows, made of noise; one core; in the page cache",
    )


def _way(name: str, decode: Decode, path: str, **way: Any) -> Way:
    def run(_: bool) -> Iterator[Batch]:
        return ((range(1), [decode(path)]) for _ in range(_REPEATS))

    def start() -> AbstractContextManager[Run]:
        return contextlib.nullcontext(run)

    return Way(name=name, start=start, atol=0.0, rtol=0.0, **way)


def _ours(dtype: str, size: int) -> Decode:
    from dali_pipelines.kernels.fits.image import decode_image
    from readers import FitsReader, Row

    flip = np.zeros(2, np.int32)
    finish = np.array((0, 1) if dtype == "float32" else (), np.float32)
    reader = FitsReader(stored=None if dtype == "float32" else dtype)
    # Memory is taken once: a Loader, too, uses its buffers again.
    out = np.empty((size, size, 1), dtype)

    def decode(path: str) -> Any:
        sample = reader.read(Row(0, path), None)
        arrays = (sample[name] for name in ("payload", "plan", "scaling"))
        if decode_image(out, *arrays, flip, finish) != 0:
            raise ValueError(f"{path} is damaged")
        return out[..., 0]

    return decode


def _astropy(dtype: str) -> Decode:
    def decode(path: str) -> Any:
        with fits.open(path, memmap=False) as hdus:
            return hdus[1].data.astype(dtype, copy=False)

    return decode


def _fitsio(dtype: str) -> Decode:
    def decode(path: str) -> Any:
        import fitsio

        with fitsio.FITS(path) as hdus:
            return hdus[1].read().astype(dtype, copy=False)

    return decode


def _frame(folder: Path, sigma: float, size: int) -> str:
    """Write a frame, and give its path."""
    path = folder / f"{sigma}.fits"
    noise = np.random.default_rng(0).normal(1000, sigma, (size, size))
    image = np.rint(noise).clip(-32768, 32767).astype(np.int16)
    fits.CompImageHDU(image, compression_type="RICE_1", tile_shape=(1, size)).writeto(path)
    return str(path)
