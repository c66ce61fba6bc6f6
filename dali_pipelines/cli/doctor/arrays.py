"""Check of `doctor` for arrays in chunks: their filters, and the chunks that a window needs."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import numpy as np

from dali_pipelines.cli.doctor.job import Finding, bad, note, ok
from readers.chunks.array import NOTE, ChunkedArray, Codec, unpacked
from readers.messages import install

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dali_pipelines.cli.doctor.job import Job

_MUCH = 4
"""Ratio of decoded pixels to pixels of the window; above it a remedy is named."""
_LIBRARIES = {"zlib": "deflate", "gzip": "deflate", "crc32c": "google_crc32c"}
"""Modules that decode filters; numcodecs decodes all others."""


def chunks(job: Job) -> Finding | None:
    """Whether the chunks can be decoded, and how many a window needs; None without arrays."""
    if NOTE not in job.index:
        return None
    source = job.peeked_pipelines[0].source
    reader = getattr(source.reader, "reader", source.reader)  # of one row of a sample
    noted = unpacked(job.index[NOTE][0].as_py())
    arrays = [noted[name] for name in getattr(reader, "variables", None) or noted if name in noted]
    if missing := [name for name in _libraries(arrays) if importlib.util.find_spec(name) is None]:
        return bad(f"chunks: {' and '.join(missing)} cannot be imported", install("chunks"))
    height, width = arrays[0].image_size
    window = source.largest_window()
    if window is not None:
        needed = window.within(height, width)
        height, width = needed.height, needed.width
    step = None if window is None or source.window == "center" else source.grid or (1, 1)
    kinds: dict[str, list[ChunkedArray]] = {}
    for one in arrays:
        kinds.setdefault(_kind(one.inner or one), []).append(one)
    words, remedies = [], dict[str, None]()
    for kind, several in kinds.items():
        array = several[0].inner or several[0]
        count = _touched(array, (height, width), step)
        ratio = count * array.chunk_elements / (height * width)
        names = ", ".join(one.name for one in several[:3])
        names += f" and {len(several) - 3} more" if len(several) > 3 else ""
        is_cut = all(codec["id"] == "blosc" for codec in array.codecs)
        words.append(
            f"{names} {kind}: {height}x{width} pixels need {count:.2g} chunks, "
            + ("or parts of them" if is_cut else f"{ratio:.2g} times as many")
        )
        if ratio > _MUCH and not is_cut:
            remedies[_remedy(array)] = None
    found = f"chunks: {'; '.join(words)}"
    return note(f"{found}; {'; '.join(remedies)}") if remedies else ok(found)


def _libraries(arrays: Sequence[ChunkedArray]) -> list[str]:
    """Return the modules that decode these arrays, each once."""

    def codecs(array: ChunkedArray) -> Iterator[Codec]:
        yield from codecs(array.inner) if array.inner is not None else array.codecs

    ids = [codec["id"] for array in arrays for codec in codecs(array)]
    return list(dict.fromkeys(_LIBRARIES.get(one, "numcodecs") for one in ids))


def _kind(array: ChunkedArray) -> str:
    """Return shape, type and filters of a chunk in words."""
    dtype = np.dtype(array.dtype)
    shape = "x".join(map(str, array.chunks))
    filters = "+".join(codec["id"] for codec in array.codecs) or "no filter"
    nbytes = array.chunk_elements * dtype.itemsize
    return f"in chunks of {shape} {dtype.name} ({nbytes / 1e6:.2g} MB), {filters}"


def _touched(array: ChunkedArray, size: tuple[int, int], step: tuple[int, int] | None) -> float:
    """Return the mean number of chunks in a window, at positions with a step, or in the middle."""
    count = 1.0
    for axis, length, apart in zip(array.image_axes, size, step or (0, 0), strict=True):
        free, chunk = array.shape[axis] - length, array.chunks[axis]
        starts = np.array([*range(0, free, apart), free]) if apart else np.array([free // 2])
        count *= float(np.mean((starts + length - 1) // chunk - starts // chunk + 1))
    return count


def _remedy(array: ChunkedArray) -> str:
    y, x = array.image_axes
    others = [one for axis, one in enumerate(array.chunks) if axis not in (y, x)]
    if any(one > 1 for one in others):
        return (
            "a chunk has several positions along another axis, and is decoded whole for each row: "
            "write the array with one position in a chunk, or with Blosc, whose blocks are read"
        )
    return "a larger --crop, or smaller chunks, would decode less"
