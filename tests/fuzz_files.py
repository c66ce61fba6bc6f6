"""Damaged FITS files, and what FitsReader and the graph's kernel make of them, beside astropy.

A case is a sound file, a seed and nothing else, so that each can be done again. Child processes
run them: hostile bytes may bring one down.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import re
import resource
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

import fitsio
import numpy as np
from astropy.io import fits

from dali_pipelines.cli.verify.config import Area
from dali_pipelines.cli.verify.truth import Truth, by_astropy
from dali_pipelines.kernels.fits.image import decode_image
from readers import FitsReader, ReadError, Row, Window

_NO_FLIP, _NO_FINISH = np.zeros(2, np.int32), np.array((0, 1), np.float32)

HANG_S = 20
"""A case that takes longer is taken for a hang: its process ends and shows where it was."""

MEMORY_UNSAFE = ("PLIO_1", "HCOMPRESS_1")
"""astropy decodes these by C code that reads and writes outside its buffers on damaged streams: now
and then the process dies. Seen with astropy 8.0.2."""

_CHANCE = ("PLIO_1",)
"""Its pixels are chance where such a stream is read, and not rejected as of HCOMPRESS_1."""

_MEMORY = 1 << 30
"""Bytes that a case may take beyond what the process has; the sound files are below 1 MB."""

_GUARD = 64
_SENTINEL = np.float32(-12345.5)

# Numbers and words that a header or a table may be told to hold.
_NUMBERS = (0, 1, -1, 2, 3, 5, 7, 8, 16, 32, 64, -32, -64, 255, 1000, 65536, 10**6, 10**9)
_LIMITS = (2**31 - 1, 2**31, -(2**31), 2**32, 2**63 - 1, 2**63, -(2**63), 10**20)
# fmt: off
_WORDS = (
    "1.5", "1e300", "-0.0", "1E-320", "NaN", "T", "F", "''", "'x'", "(1,2)", "-", "",
    "'RICE_1'", "'RICE_ONE'", "'GZIP_1'", "'GZIP_2'", "'HCOMPRESS_1'", "'PLIO_1'", "'NOCOMPRESS'",
    "'SUBTRACTIVE_DITHER_1'", "'SUBTRACTIVE_DITHER_2'", "'NO_DITHER'", "'BYTEPIX'", "'BLOCKSIZE'",
    "'1PB'", "'1PI(9)'", "'1QB'", "'1PJ'", "'1D'", "'999999999D'", "'PB(1000000000)'", "'IMAGE'",
    "'COMPRESSED_DATA'", "'GZIP_COMPRESSED_DATA'", "'ZSCALE'", "'ZZERO'", "'ZBLANK'", "'BINTABLE'",
)
# fmt: on
_KEYS = re.compile(
    rb"(SIMPLE|XTENSION|BITPIX|NAXIS\d?|PCOUNT|GCOUNT|THEAP|TFIELDS|T(TYPE|FORM|SCAL|ZERO|NULL)\d|"
    rb"BSCALE|BZERO|BLANK|Z[A-Z]+\d?) *="
)


_FATAL = re.compile(r"a header has|RICE_1 has|ZDITHER0 must")
"""What is refused before astropy sees it: it goes through as many axes or columns as a header says,
for hours if need be; looks up the dither by any seed outside its table; and with a BYTEPIX but 1, 2
or 4 its C code writes outside its buffer, or leaves pixels to chance."""

LENIENT = re.compile(
    r"KeyError: \"Keyword '(ZTILE\d|NAXIS)|"  # ZTILEn has a default: FITS Standard 4.0, 10.1.1
    r"ValueError: no HDU .*image|"  # ZPCOUNT and the like cannot be parsed
    r"AttributeError: '\w+' object has no attribute '(lower|shape)'|"  # ZNAMEn is no text
    r"TypeError: '>' not supported between instances of|"  # BLANK is text, or nothing
    r"TypeError: '\w+' object cannot be interpreted as an integer|"  # BLOCKSIZE is 32.0
    r"TypeError: data type 'iTrue'|"  # BYTEPIX is T, which Python takes for 1
    r"TypeError: int\(\) argument must be|"  # SCALE of HCOMPRESS_1 has no value
    r"OSError: Empty or corrupt FITS file|"  # a card of the first header cannot be parsed
    r"OverflowError: |"  # BLANK that no pixel can have, tiles larger than any image
    r"CfitsioException: decompression error: hit end|"  # ZNAME1 missing: astropy takes defaults
    r"CfitsioException: decompression warning: unused bytes|"  # TFORMn of other integers than bytes
    r"ValueError: When changing to a larger dtype|"
    r"VerifyError: Unparsable card \(EXTNAME\)"
)
"""What astropy says of cards in the header of tiles on which no pixel depends: they are read
here all the same. Such a header is not the original's, see `_compared`."""


_MORE_BYTES = re.compile(r"BadGzipFile: Not a gzipped file|EOFError: Compressed file ended before")
"""What gzip says of bytes after the checksum of a tile; cfitsio does not look at them either."""


class Outcome(NamedTuple):
    """What became of a case."""

    kind: str
    """same: astropy's pixels; refused: by both; strict: by us alone; window: damage beside it was
    not seen; lenient: read by us alone; greedy: refused for want of memory in astropy; chance:
    astropy's pixels are no measure; bug: the rest."""
    codec: str | None
    detail: str = ""


# ---- Damage ------------------------------------------------------------------------------------


@cache
def _sound(path: str) -> tuple[bytes, tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """Return a file's content, and where its headers and its tables of tiles lie (start, end)."""
    headers, tables = [], []
    with fits.open(path, disable_image_compression=True) as hdus:
        for hdu in hdus:
            place = hdu.fileinfo()
            headers.append((place["hdrLoc"], place["datLoc"]))
            if isinstance(hdu, fits.BinTableHDU):
                size = hdu.header["NAXIS1"] * hdu.header["NAXIS2"]
                tables.append((place["datLoc"], place["datLoc"] + size))
    return Path(path).read_bytes(), tuple(headers), tuple(tables)


def damaged(path: str, random: Random) -> bytes:
    """Return the content of a sound file with one to three kinds of damage."""
    sound, headers, tables = _sound(path)
    content = bytearray(sound)
    regions = [*headers, *tables, (headers[-1][1], len(content)), (0, len(content))]
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        if len(content) == 0:
            break
        if random.random() < 0.4:
            _rewrite_card(content, random)
        elif tables and random.random() < 0.4:
            _rewrite_word(content, random, random.choice(tables))
        else:
            start, stop = random.choice(regions)
            random.choice(_DAMAGE)(content, random, start, max(start + 1, stop))
    return bytes(content)


def _rewrite_card(content: bytearray, random: Random) -> None:
    """Change what a card of a header says that decides how the image is decoded."""
    cards = [at for at in range(0, len(content) - 79, 80) if _KEYS.match(content, at)]
    if not cards:
        return
    at = random.choice(cards)
    if random.random() < 0.1:
        content[at : at + 8] = b"COMMENT "
        return
    if random.random() < 0.15:
        other = random.choice(cards)
        value = content[other + 10 : other + 30].decode("latin-1")
    else:
        value = str(random.choice((*_NUMBERS, *_LIMITS, *_WORDS)))
    content[at + 10 : at + 80] = value.rjust(20).ljust(70).encode("latin-1")[:70]


def _rewrite_word(content: bytearray, random: Random, table: tuple[int, int]) -> None:
    """Change a number of a table: a tile's length or place, mostly."""
    start, stop = table
    at = random.randrange(start, max(start + 1, min(stop, len(content)) - 3), 4)
    number = random.choice((*_NUMBERS, *_LIMITS, len(content), random.getrandbits(32)))
    content[at : at + 4] = (number % 2**32).to_bytes(4, "big")


def _range(content: bytearray, random: Random, start: int, stop: int) -> tuple[int, int]:
    stop = min(stop, len(content))
    first = random.randrange(min(start, stop - 1), stop)
    return first, min(stop, first + random.choice((1, 4, 8, 80, 300, 3000)))


def _flip(content: bytearray, random: Random, start: int, stop: int) -> None:
    for _ in range(random.choice((1, 2, 8, 40))):
        at, _ = _range(content, random, start, stop)
        content[at] ^= 1 << random.randrange(8)


def _cut(content: bytearray, random: Random, start: int, stop: int) -> None:
    at, _ = _range(content, random, start, stop)
    del content[random.choice((at, at // 2880 * 2880, len(content) - 1)) :]


def _overwrite(content: bytearray, random: Random, start: int, stop: int) -> None:
    first, last = _range(content, random, start, stop)
    size = last - first
    content[first:last] = random.choice((bytes(size), b"\xff" * size, random.randbytes(size)))


def _swap(content: bytearray, random: Random, start: int, stop: int) -> None:
    first, last = _range(content, random, start, stop)
    other = random.randrange(len(content))
    size = min(last - first, len(content) - other)
    one, two = content[first : first + size], content[other : other + size]
    content[first : first + size], content[other : other + size] = two, one


def _shuffle(content: bytearray, random: Random, start: int, stop: int) -> None:
    first, last = _range(content, random, start, stop)
    content[first:last] = bytes(random.sample(content[first:last], last - first))


def _shift(content: bytearray, random: Random, start: int, stop: int) -> None:
    first, last = _range(content, random, start, stop)
    if random.random() < 0.5:
        del content[first:last]
    else:
        content[first:first] = content[first:last]


_DAMAGE: tuple[Callable[[bytearray, Random, int, int], None], ...] = (
    _flip,
    _cut,
    _overwrite,
    _swap,
    _shuffle,
    _shift,
)


# ---- One case ----------------------------------------------------------------------------------


def outcome(path: str, seed: int, folder: str) -> Outcome:
    """Damage a sound file and read it, whole or in part, both ways."""
    random = Random(f"{os.path.basename(path)} {seed}")
    victim = Path(folder) / f"{os.getpid()}.fits"
    victim.write_bytes(damaged(path, random))
    window = None
    if random.random() < 0.4:
        window = Window(
            height=random.randint(1, 9),
            width=random.randint(1, 9),
            y=random.random(),
            x=random.random(),
        )
    _warm_up()
    _limit_memory()
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    try:
        return _compared(str(victim), path, window)
    except Exception:  # a ReadError is all that may come out of a Reader
        return Outcome("bug", None, traceback.format_exc())
    finally:
        faulthandler.cancel_dump_traceback_later()


def _compared(path: str, sound: str, window: Window | None) -> Outcome:
    row = Row(0, path)
    place = None
    try:
        found = _pixels(row, window)
        if window is not None:
            peek = FitsReader().peek(row, None)
            place = Area(*window.place(peek.height, peek.width), window.height, window.width)
    except ReadError as error:
        if _FATAL.match(error.reason):
            return Outcome("refused", None, error.reason)
        truth = by_astropy(row, None, None)
        kind = "refused" if truth.complaint else "strict"
        if error.reason.startswith("MemoryError"):
            kind = "greedy" if _by_astropy(error) else "bug"
        return Outcome(kind, truth.codec, error.reason)
    truth = by_astropy(row, None, place)
    if found is None:
        return Outcome("refused" if truth.complaint else "strict", truth.codec, "damaged")
    if window is not None and truth.values is None and not _is_readable(row):
        # astropy decodes tiles whole, the graph no more of them than the window needs.
        return Outcome("window", truth.codec, truth.complaint)
    if truth.values is None and _MORE_BYTES.match(truth.complaint):
        by_cfitsio = fitsio.read(path, ext=1).astype(np.float32)
        if place is not None:
            by_cfitsio = by_cfitsio[place.y :, place.x :][: place.height, : place.width]
        if np.array_equal(found, by_cfitsio, equal_nan=True):
            return Outcome("lenient", truth.codec, truth.complaint)
    same_header = all(
        Path(path).read_bytes()[slice(*place)] == _sound(sound)[0][slice(*place)]
        for place in _sound(sound)[1]
    )
    return judged(found, truth, same_header=same_header)


def judged(found: np.ndarray, truth: Truth, *, same_header: bool) -> Outcome:
    """Compare pixels, shape (height, width), with astropy's."""
    unsafe = truth.codec in _CHANCE
    if truth.values is None:
        lenient = LENIENT.match(truth.complaint) and not same_header
        kind = "lenient" if lenient else "chance" if unsafe else "bug"
        return Outcome(kind, truth.codec, f"read, but astropy says {truth.complaint}")
    if truth.values.size != found.size or truth.values.shape[-2:] != found.shape:
        return Outcome("bug", truth.codec, f"{found.shape}, astropy has {truth.values.shape}")
    expected = truth.values.reshape(found.shape)
    if not np.array_equal(found, expected, equal_nan=True):
        differ = (found != expected) & ~(np.isnan(found) & np.isnan(expected))
        kind = "chance" if unsafe else "bug"
        return Outcome(kind, truth.codec, f"{differ.sum()} of {differ.size} pixels differ")
    return Outcome("same", truth.codec)


def _by_astropy(error: ReadError) -> bool:
    """Return whether it was astropy that failed, which believes all that a descriptor says."""
    trace = traceback.extract_tb(error.__cause__.__traceback__ if error.__cause__ else None)
    return bool(trace) and "astropy" in trace[-1].filename


def _is_readable(row: Row) -> bool:
    try:
        return _pixels(row, None) is not None
    except ReadError:
        return False


def _pixels(row: Row, window: Window | None) -> np.ndarray | None:
    """Read and decode as the graph does; None for the status 'damaged'.

    The payload ends where no memory follows, and the output lies between numbers that must stay.
    """
    sample = FitsReader().read(row, window)
    for spec in FitsReader.specs:
        spec.check(sample[spec.name])
    height, width, _ = sample["shape"].shape
    buffer = np.full(height * width + 2 * _GUARD, _SENTINEL)
    out = buffer[_GUARD:-_GUARD].reshape(height, width, 1)
    with_guard = before_a_hole(sample["payload"])
    status = decode_image(out, with_guard, sample["plan"], sample["scaling"], _NO_FLIP, _NO_FINISH)
    assert (buffer[:_GUARD] == _SENTINEL).all(), "written before the image"
    assert (buffer[-_GUARD:] == _SENTINEL).all(), "written behind the image"
    return out[..., 0] if status == 0 else None


def before_a_hole(array: np.ndarray) -> np.ndarray:
    """Copy bytes to the end of memory that nothing may read past."""
    page = mmap.PAGESIZE
    size = -(-array.size // page) * page
    area = mmap.mmap(-1, size + page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start + size), ctypes.c_size_t(page), 0) == 0
    copy = np.frombuffer(area, np.uint8, array.size, size - array.size)
    copy[:] = array
    return copy


def sum_past(size: int, excess: int) -> int:
    """Add up bytes from before a hole, and so many more."""
    array = before_a_hole(np.ones(size, np.uint8))
    return int(sum(ctypes.string_at(array.ctypes.data, size + excess)))


@cache
def _warm_up() -> None:
    """Load and compile what the first case would be charged for."""
    blank = FitsReader().blank(1, 1)
    arrays = (blank[name] for name in ("payload", "plan", "scaling"))
    decode_image(np.zeros((1, 1, 1), np.float32), *arrays, _NO_FLIP, _NO_FINISH)


@cache
def _limit_memory() -> None:
    """Make a hostile header's wish for memory a MemoryError."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (taken + _MEMORY, resource.RLIM_INFINITY))
