"""Damaged images: what share of them is found, by kind of damage and by check.

``IMAGE_DAMAGES=200 pytest --log-cli-level=INFO tests/readers/test_damaged_images.py`` makes so many
of each kind and prints the table. No check can find all: a Huffman code falls into step again, and
a bit within a coefficient is as good as another.
"""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from readers import JpegReader, ReadError, Row, Window
from readers.contract import Sample
from readers.jpeg.header import NoRowsError
from readers.jpeg.mcu.find import find_mcu_rows
from readers.jpeg.mcu.rows import McuRows
from readers.testing import written

logger = logging.getLogger(__name__)

DAMAGES = int(os.environ.get("IMAGE_DAMAGES", 6))
"""Of each kind, for each coding."""
SIZE = (320, 240)
CODINGS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "optimized": {"optimize": True},
    "restarts": {"restart_marker_rows": 1},
    "progressive": {"progressive": True},
    "PNG": {},
}


def overwritten(content: bytes, start: int, random: Random, _: bytes) -> bytes:
    place = random.randrange(start, len(content) - 202)
    return content[:place] + random.randbytes(200) + content[place + 200 :]


def overwritten_a_little(content: bytes, start: int, random: Random, _: bytes) -> bytes:
    place = random.randrange(start, len(content) - 18)
    return content[:place] + random.randbytes(16) + content[place + 16 :]


def flipped(content: bytes, start: int, random: Random, _: bytes) -> bytes:
    changed = bytearray(content)
    changed[random.randrange(start, len(content) - 2)] ^= 1 << random.randrange(8)
    return bytes(changed)


def zeros(content: bytes, start: int, random: Random, _: bytes) -> bytes:
    place = random.randrange(start, len(content) - 2050)
    return content[:place] + bytes(2048) + content[place + 2048 :]


def of_another(content: bytes, start: int, random: Random, other: bytes) -> bytes:
    place = random.randrange(start, min(len(content), len(other)) - 2050)
    return content[:place] + other[place : place + 2048] + content[place + 2048 :]


def missing(content: bytes, start: int, random: Random, _: bytes) -> bytes:
    place = random.randrange(start, len(content) - 514)
    return content[:place] + content[place + 512 :]


def inserted(content: bytes, start: int, random: Random, _: bytes) -> bytes:
    place = random.randrange(start, len(content) - 2)
    return content[:place] + random.randbytes(16) + content[place:]


def cut(content: bytes, start: int, random: Random, _: bytes) -> bytes:
    return content[: random.randrange(start, len(content) - 2)]


def ended(content: bytes, start: int, random: Random, _: bytes) -> bytes:
    return content[: random.randrange(start, len(content) - 2)] + b"\xff\xd9"


LEAST = {
    overwritten: 0.5,
    overwritten_a_little: 0,
    flipped: 0,
    zeros: 0.5,
    of_another: 0.3,
    missing: 0.5,
    inserted: 0.3,
    cut: 1,
    ended: 0.6,
}
"""Share of damaged JPEGs that is found with check_entropy: less than is seen, as few are made."""


def photos(coding: str) -> Iterator[bytes]:
    random = np.random.default_rng(3)
    for _ in range(3):
        coarse = random.integers(0, 256, (SIZE[1] // 12, SIZE[0] // 12, 3), np.uint8)
        smooth = Image.fromarray(coarse).resize(SIZE, Image.Resampling.BICUBIC)
        noise = random.integers(-20, 20, (*SIZE[::-1], 3))
        image = Image.fromarray(np.clip(np.asarray(smooth) + noise, 0, 255).astype(np.uint8))
        stream = io.BytesIO()
        image.save(stream, "PNG" if coding == "PNG" else "JPEG", **CODINGS[coding])
        yield stream.getvalue()


def refuses(read: Callable[..., Any], *args: Any) -> bool:
    try:
        read(*args)
    except ReadError:
        return True
    return False


@pytest.mark.timeout(240 + 5 * DAMAGES)
@pytest.mark.parametrize("coding", CODINGS)
def test_share_that_is_found(tmp_path: Path, coding: str) -> None:
    sound = list(photos(coding))
    start = sound[0].index(b"IDAT" if coding == "PNG" else b"\xff\xda") + 20
    checks = JpegReader().read, JpegReader(check_entropy=True).read
    for kind, least in LEAST.items():
        found = np.zeros(2)
        for number in range(DAMAGES):
            random = Random(f"{coding} {kind.__name__} {number}")
            content, other = sound[number % 3], sound[(number + 1) % 3]
            row = written(tmp_path, kind(content, start, random, other))
            refused = [refuses(check, row, None) for check in checks]
            assert refused == sorted(refused)
            found += refused
            if refused[1]:
                assert refuses(JpegReader().verify, row)
        shares = found / DAMAGES
        logger.info(
            "%-11s %-20s read %4.0f%%, check_entropy %4.0f%%",
            coding,
            kind.__name__,
            *(100 * shares),
        )
        always = coding == "PNG" or kind is cut
        assert shares[0] == 1 if always else shares[1] >= least, kind.__name__


@pytest.mark.parametrize("coding", ["baseline", "optimized"])
def test_noted_rows_are_those_that_were_noted(tmp_path: Path, coding: str) -> None:
    """Damage to a file whose rows are in the Index never gives other rows."""
    sound = list(photos(coding))
    start = sound[0].index(b"\xff\xda") + 20
    window = Window(height=20, width=30)
    for kind in LEAST:
        for number in range(DAMAGES):
            random = Random(f"noted {coding} {kind.__name__} {number}")
            content, other = sound[number % 3], sound[(number + 1) % 3]
            try:
                notes = {"mcu_rows": find_mcu_rows(content).pack()}
            except NoRowsError:
                continue
            path = written(tmp_path, content).path
            before = pixels_of(JpegReader().read(Row(0, path, notes=notes), window))
            damaged = kind(content, start, random, other)
            written(tmp_path, damaged)
            try:
                after = pixels_of(JpegReader().read(Row(0, path, notes=notes), window))
            except ReadError:
                continue
            in_file = window_of(damaged, window)
            assert np.array_equal(after, before) or np.array_equal(after, in_file)
    assert McuRows.unpack(notes["mcu_rows"]).file_nbytes == len(content)


def pixels_of(sample: Sample) -> NDArray[Any]:
    (y, x), (height, width) = sample["anchor"], sample["shape"]
    encoded = sample["encoded"].tobytes()
    return simplejpeg.decode_jpeg(encoded, strict=False)[y : y + height, x : x + width]


def window_of(jpeg: bytes, window: Window) -> NDArray[Any]:
    image = simplejpeg.decode_jpeg(jpeg, strict=False)
    y, x = window.place(*image.shape[:2])
    return image[y : y + window.height, x : x + window.width]
