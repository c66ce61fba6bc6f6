"""One core, one frame, from path to pixels: this toolkit's reader and kernel against the peers.

The frames are 4096 x 4096 int16 in RICE_1 rows, made of noise whose width gives the bits a pixel.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits

from dali_pipelines.kernels.physical import decode_image
from readers import FitsReader, Row

SIZE = 4096
SIGMAS = (0.5, 5.0, 20.0, 700.0)
"""Of the noise: about 2, 5, 7 and 12 bits a pixel."""

Decode = Callable[[str], Any]


def decode_suite(rounds: int) -> list[dict[str, Any]]:
    """Time all ways on all frames; print a table, and give the figures in milliseconds."""
    integers, floats = _ways("int16"), _ways("float32")
    results = []
    print(f"{'bit/px':>6}  " + "  ".join(f"{name:>26}" for name in (*integers, *floats)))
    with tempfile.TemporaryDirectory() as folder:
        for sigma in SIGMAS:
            path = _frame(Path(folder), sigma)
            bits = 8 * Path(path).stat().st_size / SIZE**2
            found: dict[str, Any] = {"bits_per_pixel": round(bits, 2), "ms": {}, "ratios": {}}
            for ways in (integers, floats):
                _check(path, ways)
                times = _times(path, ways, rounds)
                (mine, ours), *_ = times.items()
                for name, taken in times.items():
                    ratios = [a / b for a, b in zip(taken, ours, strict=True)]
                    found["ms"][name] = taken
                    found["ratios"][f"{name} / {mine}"] = statistics.median(ratios)
            results.append(found)
            cells = []
            for ways in (integers, floats):
                mine = next(iter(ways))
                for name in ways:
                    ratio = found["ratios"][f"{name} / {mine}"]
                    cells.append(f"{statistics.median(found['ms'][name]):.1f} ms ({ratio:.2f}x)")
            print(f"{bits:6.2f}  " + "  ".join(f"{cell:>26}" for cell in cells))
    return results


def _ways(dtype: str) -> dict[str, Decode]:
    """Give the ways to decode, ours first; fitsio where it is installed."""
    flip = np.zeros(2, np.int32)
    finish = np.array((0, 1) if dtype == "float32" else (), np.float32)
    reader = FitsReader(stored=None if dtype == "float32" else dtype)

    # Memory is taken once: a Loader, too, uses its buffers again.
    out = np.empty((SIZE, SIZE, 1), dtype)

    def ours(path: str) -> Any:
        sample = reader.read(Row(0, path), None)
        arrays = (sample[name] for name in ("payload", "plan", "scaling"))
        if decode_image(out, *arrays, flip, finish) != 0:
            raise ValueError(f"{path} is damaged")
        return out[..., 0]

    def astropy(path: str) -> Any:
        with fits.open(path, memmap=False) as hdus:
            return hdus[1].data.astype(dtype, copy=False)

    ways: dict[str, Decode] = {f"ours, {dtype}": ours, f"astropy, {dtype}": astropy}
    try:
        import fitsio
    except ImportError:
        print("fitsio is not installed: its column is left out")
        return ways

    def with_fitsio(path: str) -> Any:
        with fitsio.FITS(path) as hdus:
            return hdus[1].read().astype(dtype, copy=False)

    return {**ways, f"fitsio, {dtype}": with_fitsio}


def _frame(folder: Path, sigma: float) -> str:
    """Write a frame, and give its path."""
    path = folder / f"{sigma}.fits"
    noise = np.random.default_rng(0).normal(1000, sigma, (SIZE, SIZE))
    image = np.rint(noise).clip(-32768, 32767).astype(np.int16)
    fits.CompImageHDU(image, compression_type="RICE_1", tile_shape=(1, SIZE)).writeto(path)
    return str(path)


def _check(path: str, ways: dict[str, Decode]) -> None:
    first, *others = (decode(path).copy() for decode in ways.values())
    for name, other in zip(list(ways)[1:], others, strict=True):
        if not np.array_equal(first, other):
            raise SystemExit(f"bench.py: the pixels of {name} differ from ours")


def _times(path: str, ways: dict[str, Decode], rounds: int) -> dict[str, list[float]]:
    """Time all ways in turn, round by round, in milliseconds."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, decode in ways.items():
            started = time.perf_counter()
            decode(path)
            times[name].append(1e3 * (time.perf_counter() - started))
    return times
