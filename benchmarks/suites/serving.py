"""The Preprocessor, against what servers do by hand, and against the graph of a Loader.

All begin with the bytes of a file in memory, but for the graph, which reads it from the page cache.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits
from numpy.typing import NDArray
from PIL import Image

from benchmarks.data import Settings
from benchmarks.measure.race import Batch, Run, Table, Way, race
from benchmarks.report.tables import Sheet
from benchmarks.sheets.serving import memory_sheet, starts_sheet, threads_sheet
from benchmarks.ways.serving import (
    CROP,
    MEAN,
    SIDE,
    STD,
    WINDOW,
    Framework,
    Kind,
    graph,
    preprocessor,
)
from dali_pipelines.cli.samples.photos import save_photo
from dali_pipelines.cli.samples.sun import save_frame

BATCH = 16
_MEAN: NDArray[np.float32] = np.array(MEAN, np.float32)
_STD: NDArray[np.float32] = np.array(STD, np.float32)
_ATOL = 0.05
"""Of normalised photographs: DALI and Pillow round differently where they resize."""
_CALLS, _BATCHES, _WINDOWS, _SECTIONS, _FRAMES, _FEW = 15, 2, 50, 5, 1, 1
"""Calls in a round: of one photograph, of a batch, of a window, of one by astropy's section, of a
whole frame, and of any in a quick run. Few, so that a drift of the machine cancels in ratios."""

_Images = Callable[[], Any]
"""Gives the images of a call, shape (batch, C, height, width)."""


def serving_suite(settings: Settings) -> Iterator[Table | Sheet]:
    """Time calls of one content and of several; then how it starts, and how it goes on."""
    with tempfile.TemporaryDirectory() as folder:
        photo, frame = Path(folder, "hills", "photo.jpg"), Path(folder, "frame.fits")
        photo.parent.mkdir()
        save_photo(photo, 0)
        save_frame(frame, 0)
        yield _photo_table(photo, settings)
        yield _batch_table(photo, settings)
        yield _window_table(frame, settings)
        yield threads_sheet(str(photo), settings)
        yield starts_sheet(str(photo), str(frame), settings)
        yield memory_sheet(Path(folder), settings)


def _photo_table(photo: Path, settings: Settings) -> Table:
    content = photo.read_bytes()
    calls = _FEW if settings.quick else _CALLS
    ways = [
        *_preprocessors("jpeg", [content], calls, settings, atol=_ATOL),
        _way("Pillow and NumPy", lambda: by_pillow(content)[None], calls, atol=0.0),
    ]
    return Table(
        title=f"One photograph per call, resized to {SIDE} and cropped to {CROP}x{CROP}",
        baseline="Pillow and NumPy",
        results=race(ways, lambda *_: by_pillow(content), settings.rounds),
        data=_described(photo),
        note=f"{settings.num_threads} DALI threads. Differences are of normalised values.",
    )


def _batch_table(photo: Path, settings: Settings) -> Table:
    content = photo.read_bytes()
    calls = _FEW if settings.quick else _BATCHES
    ways = [
        *_preprocessors("jpeg", [content] * BATCH, calls, settings, atol=_ATOL),
        Way(
            name="the Loader's graph",
            start=lambda: _running_graph(str(photo), calls, settings.num_threads),
            atol=_ATOL,
        ),
    ]
    return Table(
        title=f"{BATCH} photographs per call, the same",
        baseline="the Loader's graph",
        results=race(ways, lambda *_: by_pillow(content), settings.rounds),
        data=_described(photo),
        note=f"{settings.num_threads} DALI threads. The graph also reads in this process, and does "
        "not prefetch. Differences are relative to Pillow.",
    )


def _window_table(frame: Path, settings: Settings) -> Table:
    content = frame.read_bytes()
    pixels = fits.getdata(frame)
    cut = slice((len(pixels) - WINDOW) // 2, (len(pixels) + WINDOW) // 2)
    windows, sections, frames = (_FEW,) * 3 if settings.quick else (_WINDOWS, _SECTIONS, _FRAMES)
    ways = [
        *_preprocessors("fits", [content], windows, settings, atol=0.0),
        _way("astropy", lambda: by_astropy(content, cut, whole=True)[None], frames, atol=0.0),
        _way(
            "astropy, section",
            lambda: by_astropy(content, cut, whole=False)[None],
            sections,
            atol=0.0,
        ),
    ]
    image = pixels[cut, cut].astype(np.float32)[None]
    return Table(
        title=f"A window of {WINDOW}x{WINDOW} of a frame in RICE_1 per call",
        baseline="astropy",
        results=race(ways, lambda *_: image, settings.rounds),
        data=f"a synthetic FITS file, {len(pixels)}x{len(pixels)}, {len(content) / 1e6:.1f} MB, in "
        "memory",
        note="astropy decodes the whole frame for `data`, and only tiles for `section`.",
    )


def _described(photo: Path) -> str:
    with Image.open(photo) as image:
        width, height = image.size
    nbytes = photo.stat().st_size
    return f"a synthetic JPEG file, {height}x{width}, {nbytes / 1e6:.2f} MB, in memory"


def by_pillow(content: bytes) -> NDArray[np.float32]:
    """Preprocess a photograph as a server does without this toolkit, shape (3, CROP, CROP)."""
    with Image.open(io.BytesIO(content)) as opened:
        image = opened.convert("RGB")
    scale = SIDE / min(image.size)
    width, height = (round(scale * length) for length in image.size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - CROP) // 2, (height - CROP) // 2
    pixels = np.asarray(image.crop((left, top, left + CROP, top + CROP)), np.float32)
    pixels = (pixels - _MEAN) / _STD
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def by_astropy(content: bytes, cut: slice, *, whole: bool) -> NDArray[np.float32]:
    """Cut a window out of a frame, shape (1, rows, columns)."""
    with fits.open(io.BytesIO(content)) as hdus:
        hdu = hdus[1]
        pixels = hdu.data[cut, cut] if whole else hdu.section[cut, cut]
        return pixels.astype(np.float32)[None]


def _preprocessors(
    kind: Kind, contents: list[bytes], calls: int, settings: Settings, *, atol: float
) -> list[Way]:
    """Return a way for PyTorch, and one for NumPy."""

    def way(name: str, framework: Framework) -> Way:
        def start() -> AbstractContextManager[Run]:
            return _running(kind, framework, contents, calls, settings.num_threads)

        return Way(name=name, start=start, atol=atol, ours=True)

    return [way("Preprocessor", "torch"), way("Preprocessor, NumPy", "numpy")]


@contextmanager
def _running(
    kind: Kind, framework: Framework, contents: list[bytes], calls: int, num_threads: int
) -> Iterator[Run]:
    with preprocessor(kind, framework, num_threads) as pre:
        yield _run(lambda: pre(contents)["image"], calls)


@contextmanager
def _running_graph(path: str, calls: int, num_threads: int) -> Iterator[Run]:
    with closing(graph(path, BATCH, num_threads)) as pipeline:
        pipeline.build()
        yield _run(lambda: np.asarray(pipeline.run()[0].as_tensor()), calls)


def _way(name: str, images: _Images, calls: int, *, atol: float) -> Way:
    return Way(name=name, start=lambda: nullcontext(_run(images, calls)), atol=atol)


def _run(images: _Images, calls: int) -> Run:
    def run(wanted: bool) -> Iterator[Batch]:
        del wanted
        for _ in range(calls):
            found = images()
            yield range(len(found)), found

    return run
