"""Headers of FITS files on one core: what `index` reads of each, beside astropy's getheader."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from astropy.io import fits

from benchmarks.data import Settings
from benchmarks.measure.race import Batch, Run, Table, Way, race

CARDS = 150
"""Of each header, about as many as those of AIA level 1 have."""
KEYS = ("EXPTIME", "WAVELNTH", "CRPIX1", "QUALITY")
FILES, _FEW_FILES = 1000, 10

_Read = Callable[[str], Sequence[float]]


def headers_suite(settings: Settings) -> Iterator[Table]:
    """Read keywords of small compressed images, all in the page cache."""
    count = _FEW_FILES if settings.quick else FILES
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / f"{number:04d}.fits") for number in range(count)]
        values = np.random.default_rng(0).integers(0, 999, (count, len(KEYS))) / 4
        hdu = _made_up()
        for path, of_file in zip(paths, values.tolist(), strict=True):
            hdu.header.update(zip(KEYS, of_file, strict=True))
            hdu.writeto(path)
        reads = {"index": _by_index, "astropy getheader": _by_astropy}
        ways = [
            Way(
                name=name,
                start=lambda read=read: nullcontext(_run(read, paths)),  # type: ignore[misc]
                ours=read is _by_index,
                atol=0.0,
                rtol=0.0,
            )
            for name, read in reads.items()
        ]
        yield Table(
            title="Headers of FITS files",
            baseline="astropy getheader",
            results=race(ways, lambda row, _: values[row], settings.rounds),
            data=f"{count} files with one RICE_1 image each, headers of {CARDS} cards; one core; "
            "in the page cache",
            note=f"An image is a file, from which {len(KEYS)} keywords are read; index also reads "
            "the keywords for its other columns.",
        )


def _run(read: _Read, paths: list[str]) -> Run:
    def run(_: bool) -> Iterator[Batch]:
        for row, path in enumerate(paths):
            yield range(row, row + 1), [np.array(read(path))]

    return run


def _by_index(path: str) -> Sequence[float]:
    from readers.header_scan import file_facts

    (facts,) = file_facts(path, KEYS)
    return [float(str(facts[key])) for key in KEYS]


def _by_astropy(path: str) -> Sequence[float]:
    header = fits.getheader(path, 1)
    return [header[key] for key in KEYS]


def _made_up() -> fits.CompImageHDU:
    """Return a small image whose header has `KEYS` among many others."""
    hdu = fits.CompImageHDU(np.zeros((16, 16), np.int16), compression_type="RICE_1")
    for number in range(CARDS - len(KEYS)):
        hdu.header[f"CARD{number}"] = (number / 7 if number % 2 else f"text {number}", "a comment")
    return hdu
