"""A file as another library reads it, for `verify`: values, properties and complaints."""

from __future__ import annotations

import hashlib
import io
import math
import warnings
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dali_pipelines.cli.errors import one_line
from dali_pipelines.cli.full_decode import check_whole, unpacked_file
from readers.jpeg.by_pillow import displayed
from readers.jpeg.pixels import of_any_size
from readers.jpeg.reader import load
from readers.jpeg.sample_format import stored_bits

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import soundfile
    from numpy.typing import NDArray

    from dali_pipelines.cli.verify.config import Area
    from readers.contract import Row
    from readers.fits.headers import HduName

_GREY_LEVELS = 2
"""Largest difference between decoders of JPEG."""
_LEVELS = {"MPEG_LAYER_III": 3e-7, "OPUS": 2e-3}
"""Largest difference of samples by encoding: libmpg123 rounds by the position in its buffers, and
Opus is decoded from the start of a window."""
_MD5 = slice(26, 42)
"""Bytes of a FLAC file with the MD5 of its samples."""
_SAMPLES = 1 << 16
"""Samples that are hashed at a time."""


@dataclass(slots=True)
class Truth:
    """One image or recording; fields that its decoder could not find are None."""

    hdu: int | None = None
    codec: str | None = None
    """Tile compression (RICE_1, ...), or plain; or the format of an encoded image (JPEG, ...) or a
    recording (FLAC PCM_16, ...)."""
    shape: tuple[int, ...] | None = None
    """Shape of the window, or of the whole image; for a recording channels and samples."""
    dtype: str | None = None
    """Type of the decoder's values."""
    values: NDArray[np.float32] | None = None
    """Pixels, in that shape."""
    complaint: str = ""
    """Reason why there are no values; or astropy's warning that the file ends early."""
    decoder: str = "astropy"
    """Name of the decoder of the values."""
    tolerance: float = 0.0
    """Largest difference that counts as equal."""

    @property
    def noun(self) -> str:
        """What the values are."""
        return "samples" if self.decoder == "soundfile" else "pixels"


@contextmanager
def complaints_to(truth: Truth) -> Iterator[None]:
    """Record an error, or a warning that the file ends early."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        except Exception as error:  # decoders raise many types on hostile input
            truth.values = None
            truth.complaint = one_line(f"{type(error).__name__}: {error}")
            return
    complaints = (one_line(warning.message) for warning in caught)
    truth.complaint = next((text for text in complaints if "truncated" in text), "")


def by_astropy(row: Row, hdu: HduName | None, window: Area | None) -> Truth:
    """Decode an image of a FITS file, or a window of it, by astropy.

    By default the HDU is the first with an image. If the image has more than two axes, the row must
    name the plane.
    """
    truth = Truth(hdu if isinstance(hdu, int) else None)
    with complaints_to(truth):
        _decode_fits(truth, row, hdu, window)
    return truth


def by_pillow(row: Row, hdu: HduName | None, window: Area | None) -> Truth:
    """Decode an image, or a window of it, to RGB by Pillow, and look for damage in the file.

    The window is in the image as displayed. The HDU is ignored.
    """
    truth = Truth(decoder="Pillow")
    with complaints_to(truth), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # e.g. about odd EXIF data
        of_any_size(partial(_decode_image, truth, row, window))
        check_whole(row)
    return truth


def by_soundfile(row: Row, hdu: HduName | None, window: Area | None) -> Truth:
    """Decode a recording, or a window of it, by soundfile, and compare the MD5 of a FLAC file.

    The window is a part of the one row that a recording has. The HDU is ignored.
    """
    truth = Truth(decoder="soundfile")
    with complaints_to(truth):
        _decode_sound(truth, row, window)
    return truth


def _decode_fits(truth: Truth, row: Row, name: HduName | None, window: Area | None) -> None:
    import numpy as np
    import psutil
    from astropy.io import fits

    with unpacked_file(row.place) as file, fits.open(file, memmap=False) as hdus:
        if hdus[0].header.get("SIMPLE") is False:  # astropy would loop for ever in a gzipped file
            raise ValueError("SIMPLE is F")
        if name is None:
            images = (n for n, hdu in enumerate(hdus) if hdu.is_image and hdu.shape)
            truth.hdu = next(images, None)
        else:
            truth.hdu = hdus.index_of(name)
        if truth.hdu is None:
            raise ValueError("no HDU has an image")
        hdu = hdus[truth.hdu]
        if not (hdu.is_image and hdu.shape):
            raise ValueError(f"HDU {truth.hdu} has no image")
        truth.codec = str(getattr(hdu, "compression_type", "plain"))
        shape = hdu.shape
        # Stored and scaled values, of 64 bits each: the system would kill this process.
        if 16 * math.prod(shape) > psutil.virtual_memory().available:
            raise MemoryError(f"an image of shape {tuple(shape)} does not fit into memory")
        planes = math.prod(shape[:-2])
        if row.plane is None and planes > 1:
            raise ValueError(f"an image of shape {shape} has {planes} planes, none is named")
        at = tuple(map(int, np.unravel_index(row.plane or 0, shape[:-2]))) if shape[:-2] else ()
        if window is None:
            values = hdu.data[at]
        else:
            window.check(*(1, *shape)[-2:])
            values = hdu.section[(*at, *window.slices()[-len(shape) :])]
        values = np.atleast_2d(values)
        truth.shape, truth.dtype = values.shape, values.dtype.name
        truth.values = np.asarray(values).astype(np.float32)
        with suppress(Exception):  # later HDUs may be damaged; astropy warns if the file ends early
            len(hdus)


def _decode_image(truth: Truth, row: Row, window: Area | None) -> None:
    import numpy as np
    from PIL import Image

    loaded = load(row.place, channels=3)
    truth.codec = loaded.format
    truth.tolerance = _GREY_LEVELS if loaded.format == "JPEG" else 0
    with row.place as place:
        encoded = place.read(0, place.nbytes)
    # Not by its path: Pillow 13 would turn a TIFF that it maps twice.
    with Image.open(io.BytesIO(encoded)) as image:
        bits = stored_bits(encoded, image)
        values = displayed(image, 3, bits)
    if values.ndim == 2:
        values = np.stack((values, values, values), axis=-1)
    if bits > 8 and values.dtype == np.uint8:  # Pillow keeps 8 bits of 16-bit colours
        truth.tolerance = (2**bits - 1) / 255
        values = np.rint(values * truth.tolerance).astype(np.uint16)
    if window is not None:
        window.check(*values.shape[:2])
        values = values[window.slices()]
    truth.shape, truth.dtype = values.shape, values.dtype.name
    truth.values = values.transpose(2, 0, 1).astype(np.float32)


def _decode_sound(truth: Truth, row: Row, window: Area | None) -> None:
    import numpy as np
    import soundfile

    with row.place as place:
        content = io.BytesIO(place.read(0, place.nbytes))
    with soundfile.SoundFile(content) as file:
        truth.codec = f"{file.format} {file.subtype}"
        truth.tolerance = _LEVELS.get(file.subtype, 0.0)
        values = file.read(dtype="float32", always_2d=True).T
        if file.format == "FLAC":
            _check_md5(content.getvalue()[_MD5], file)
    if not np.isfinite(values).all():
        raise ValueError("some samples are NaN or infinite")
    if window is not None:
        window.check(1, values.shape[1])
        values = values[:, window.slices()[1]]
    truth.shape, truth.dtype, truth.values = values.shape, values.dtype.name, values


def _check_md5(expected: bytes, file: soundfile.SoundFile) -> None:
    """Raise ValueError if the samples of a FLAC file do not match the MD5 in its header."""
    import numpy as np

    nbytes = {"PCM_S8": 1, "PCM_16": 2, "PCM_24": 3}.get(file.subtype)
    if nbytes is None or not any(expected):  # the writer may leave it out
        return
    file.seek(0)
    found = hashlib.md5(usedforsecurity=False)
    for block in file.blocks(_SAMPLES, dtype="int32", always_2d=True):
        # The upper bytes of each integer; the MD5 is that of little-endian samples.
        each = np.ascontiguousarray(block, "<i4").view(np.uint8).reshape(-1, 4)
        found.update(each[:, 4 - nbytes :].tobytes())
    if found.digest() != expected:
        raise ValueError("it is damaged: the MD5 of its samples differs from its header")
