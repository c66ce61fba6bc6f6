"""One core, one frame, from path to pixels: this toolkit's reader and kernel against the peers.

The frames are 4096 x 4096 int16, made of noise whose width gives the bits a pixel; for PLIO_1 of a
mask. They are compressed in rows by each codec, or gzipped as a file. Those in RICE_1 are also
decoded as on CPUs that have less, each form of the decoder in a process of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits
from cpu_forms import forms_here

from benchmarks.data import Settings
from benchmarks.measure.race import Result, Run, Table, Way, race
from benchmarks.ways.decoder import Decode, decoder, decoding
from benchmarks.ways.peers import PEERS
from readers.worker.malloc import keep_freed_memory

SIZE = 4096
SIGMAS = (0.5, 5.0, 20.0, 700.0)
"""Of the noise: about 2, 5, 7 and 12 bits a pixel."""
CODECS = ("GZIP_1", "GZIP_2", "fits.gz", "PLIO_1", "HCOMPRESS_1")
"""Others than RICE_1, of noise with a standard deviation of 20."""
WINDOW = 512
"""Rows and columns of a window in the middle."""
_REPEATS, _OF_WINDOWS, _FEW = 5, 20, 1
"""Of a whole frame in a round, of a window, which takes less time, and of either in a quick run."""
_BY_FORM, _OF_WINDOWS_BY_FORM = 10, 300
"""The same of forms: CPU time of other processes is told in hundredths of a second."""


def decode_suite(settings: Settings) -> Iterator[Table]:
    """Time all ways on all frames."""
    keep_freed_memory()  # as reader processes do
    size = SIZE // 4 if settings.quick else SIZE
    with tempfile.TemporaryDirectory() as folder:
        for sigma in SIGMAS[1:2] if settings.quick else SIGMAS:
            path = _frame(Path(folder), sigma, size, "RICE_1")
            for dtype in ("int16", "float32"):
                yield _table(path, "RICE_1", size, dtype, settings)
        codecs = CODECS[:1] if settings.quick else CODECS
        for codec in codecs:
            path = _frame(Path(folder), 20.0, size, codec)
            yield _table(path, codec, size, "float32", settings)
        for codec in ("RICE_1", *codecs):
            path = _frame(Path(folder), 20.0, size, codec)
            yield _table(path, codec, size, "float32", settings, WINDOW)
        for dtype in ("int32",) if settings.quick else ("int16", "int32"):
            for window in (WINDOW,) if settings.quick else (None, WINDOW):
                yield _by_form(Path(folder), size, dtype, settings, window)


def _table(
    path: str, codec: str, size: int, dtype: str, settings: Settings, window: int | None = None
) -> Table:
    bits = 8 * Path(path).stat().st_size / size**2
    height = window or size
    cut = _middle(size, height)
    image = fits.getdata(path)[cut, cut].astype(dtype)
    whole = not window or codec == "fits.gz"
    decodes: dict[str, tuple[Decode, dict[str, Any]]] = {
        "decode_image": (decoder(np.empty((height, height), dtype)), {"ours": True}),
        "astropy": (_astropy(dtype, cut, whole=whole), {}),
        "fitsio": (_fitsio(dtype, cut), {"needs": ("fitsio",)}),
        "torchfits": (
            _torchfits(dtype, cut, whole=whole),
            {"needs": (PEERS["torchfits"].needs,), "remedy": PEERS["torchfits"].remedy},
        ),
    }
    repeats = _FEW if settings.quick else _OF_WINDOWS if window else _REPEATS
    ways = [
        _way(name, nullcontext(_run(decode, path, repeats)), **options)
        for name, (decode, options) in decodes.items()
    ]
    what = "A frame" if window is None else f"A window of {window}x{window}"
    of = "a mask" if codec == "PLIO_1" else "noise"
    return Table(
        title=f"{what} in {codec} to {dtype}, {bits:.1f} bits per pixel",
        baseline="astropy",
        results=race(ways, lambda *_: image, settings.rounds),
        data=f"{size}x{size} int16 in row tiles, made from {of}; one core; in the page cache",
    )


def _by_form(folder: Path, size: int, dtype: str, settings: Settings, window: int | None) -> Table:
    """Compare the forms of the decoder that this CPU can run, on frames of noise in RICE_1."""
    height = window or size
    cut = _middle(size, height)
    repeats = _FEW if settings.quick else _OF_WINDOWS_BY_FORM if window else _BY_FORM
    # In a quick run only our own form: the others would be compiled first.
    forms = dict(islice(forms_here().items(), 1 if settings.quick else None))
    results: list[Result] = []
    for sigma in SIGMAS[1:2] if settings.quick else SIGMAS:
        path = _frame(folder, sigma, size, "RICE_1", dtype)
        image = fits.getdata(path)[cut, cut].astype(np.float32)
        bits = f"{8 * Path(path).stat().st_size / size**2:.1f}"
        ways = [
            _way(
                f"{form}, {bits}",
                decoding(path, "float32", height, variables, repeats),
                point=(form, bits),
                ours=True,
            )
            for form, variables in forms.items()
        ]
        results += race(ways, lambda *_, image=image: image, settings.rounds)
    what = "frames" if window is None else f"windows of {window}x{window}"
    return Table(
        title=f"By the form of the decoder: {what} of {dtype} in RICE_1 to float32",
        axis="bits per pixel",
        baseline=next(iter(forms)),
        results=tuple(results),
        data=f"{size}x{size} {dtype} in row tiles, made from noise; one core; in the page cache",
        note=f"This CPU has {next(iter(forms))}. For the other forms, NUMBA_CPU_NAME and "
        "NUMBA_CPU_FEATURES select a CPU with fewer features.",
    )


def _middle(size: int, height: int) -> slice:
    top = (size - height) // 2
    return slice(top, top + height)


def _way(name: str, running: AbstractContextManager[Run], **way: Any) -> Way:
    return Way(name=name, start=lambda: running, atol=0.0, rtol=0.0, **way)


def _run(decode: Decode, path: str, repeats: int) -> Run:
    return lambda _: ((range(1), [decode(path)]) for _ in range(repeats))


def _astropy(dtype: str, cut: slice, *, whole: bool) -> Decode:
    def decode(path: str) -> Any:
        with fits.open(path, memmap=False) as hdus:
            hdu = hdus[-1]
            # A section of a gzipped file would be read row by row, each from the start.
            image = hdu.data[cut, cut] if whole else hdu.section[cut, cut]
            return image.astype(dtype, copy=False)

    return decode


def _fitsio(dtype: str, cut: slice) -> Decode:
    def decode(path: str) -> Any:
        import fitsio

        with fitsio.FITS(path) as hdus:
            return hdus[-1][cut, cut].astype(dtype, copy=False)

    return decode


def _torchfits(dtype: str, cut: slice, *, whole: bool) -> Decode:
    def decode(path: str) -> Any:
        import torchfits

        hdu = torchfits.read_num_hdus(path) - 1
        if whole:
            image = torchfits.read(path, hdu=hdu).numpy()[cut, cut]
        else:
            image = torchfits.read_subset(path, hdu, *(cut.start,) * 2, *(cut.stop,) * 2).numpy()
        return image.astype(dtype, copy=False)

    return decode


def _frame(folder: Path, sigma: float, size: int, codec: str, dtype: str = "int16") -> str:
    """Write a frame, and give its path."""
    path = folder / f"{dtype}_{sigma}.{codec}"
    noise = np.random.default_rng(0).normal(1000, sigma, (size, size))
    image = np.rint(noise).clip(-32768, 32767).astype(dtype)
    if codec == "fits.gz":
        fits.PrimaryHDU(image).writeto(path, overwrite=True)  # gzips it
        return str(path)
    if codec == "PLIO_1":
        image = (image > 1000 + 2 * sigma).astype(np.int16)
    options: dict[str, Any] = {} if codec == "HCOMPRESS_1" else {"tile_shape": (1, size)}
    hdu = fits.CompImageHDU(image, compression_type=codec, **options)
    hdu.writeto(path, overwrite=True)
    return str(path)
