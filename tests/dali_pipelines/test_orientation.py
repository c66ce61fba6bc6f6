"""The graph turns each image as the reader says: by EXIF, however odd, and never by XMP."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from ramp_images import Archive

from dali_pipelines import Index, jpeg_pipeline, with_mcu_rows

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (6, 5, 3), np.uint8)).resize(
    (80, 96), Image.Resampling.BICUBIC
)
TURNS: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    1: lambda image: image,
    2: lambda image: image[:, ::-1],
    3: lambda image: image[::-1, ::-1],
    4: lambda image: image[::-1],
    5: lambda image: image.swapaxes(0, 1),
    6: lambda image: image.swapaxes(0, 1)[:, ::-1],
    7: lambda image: image[::-1, ::-1].swapaxes(0, 1),
    8: lambda image: image.swapaxes(0, 1)[::-1],
}
ORIENTATION, MAKE, DESCRIPTION, EXIF_IFD = 0x0112, 0x010F, 0x010E, 0x8769
BYTE, SHORT, LONG = 1, 3, 4
FORMATS = {"B": BYTE, "H": SHORT, "I": LONG}


def encoded(form: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    PICTURE.save(stream, form, **options)
    return stream.getvalue()


def tags(*entries: tuple[int, int, int, int], order: str = "<", count: int | None = None) -> bytes:
    """Return EXIF data of entries (tag, type, count, value)."""
    parts = [b"II*\0" if order == "<" else b"MM\0*", struct.pack(f"{order}I", 8)]
    parts.append(struct.pack(f"{order}H", len(entries) if count is None else count))
    for tag, kind, number, value in entries:
        form = next(form for form, known in FORMATS.items() if known == kind)
        parts.append(struct.pack(f"{order}HHI", tag, kind, number))
        parts.append(struct.pack(order + form, value).ljust(4, b"\0"))
    return b"".join(parts) + bytes(4)


def turned(value: int, kind: int = SHORT, number: int = 1, **options: Any) -> bytes:
    return tags((ORIENTATION, kind, number, value), **options)


def xmp(value: int) -> bytes:
    return (
        b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="%d"/>'
        b"</x:xmpmeta>" % value
    )


def segment(content: bytes, marker: int = 0xE1) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def exif(content: bytes) -> bytes:
    return segment(b"Exif\0\0" + content)


def in_xmp(value: int) -> bytes:
    return segment(b"http://ns.adobe.com/xap/1.0/\0" + xmp(value))


JPEG = encoded("JPEG", quality=95)


def jpeg(*segments: bytes) -> bytes:
    return JPEG[:2] + b"".join(segments) + JPEG[2:]


def late(*segments: bytes) -> bytes:
    scan = JPEG.index(b"\xff\xda")
    return JPEG[:scan] + b"".join(segments) + JPEG[scan:]


def chunk(kind: bytes, content: bytes) -> bytes:
    checked = kind + content
    return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))


PNG = encoded("PNG")


def png(*chunks: bytes) -> bytes:
    return PNG[:33] + b"".join(chunks) + PNG[33:]


def png_text(value: int) -> bytes:
    return chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp(value))


def raw_profile(value: int, kind: bytes) -> bytes:
    """EXIF data in a chunk of text, as ImageMagick wrote them before there was eXIf."""
    block = b"Exif\0\0" + turned(value)
    text = b"\nexif\n%8d\n%s\n" % (len(block), block.hex().encode())
    packed = {b"tEXt": text, b"zTXt": b"\0" + zlib.compress(text), b"iTXt": bytes(4) + text}
    return chunk(kind, b"Raw profile type exif\0" + packed[kind])


HUGE = (DESCRIPTION, SHORT, 0xFFFFFFFF, 8)

JPEGS = {
    **{f"EXIF {value}": (jpeg(exif(turned(value))), value) for value in range(1, 9)},
    "no EXIF": (JPEG, 1),
    "0": (jpeg(exif(turned(0))), 1),
    "9": (jpeg(exif(turned(9))), 1),
    "big-endian": (jpeg(exif(turned(6, order=">"))), 6),
    "LONG": (jpeg(exif(turned(6, LONG))), 6),
    "LONG, big-endian": (jpeg(exif(turned(6, LONG, order=">"))), 6),
    "BYTE": (jpeg(exif(turned(6, BYTE))), 1),
    "count of 0": (jpeg(exif(turned(6, number=0))), 1),
    "count of 2": (jpeg(exif(turned(6, number=2))), 6),
    "empty": (jpeg(exif(b"")), 1),
    "garbage": (jpeg(exif(b"garbage! " * 9)), 1),
    "a huge count": (jpeg(exif(tags(HUGE, (ORIENTATION, SHORT, 1, 6)))), 6),
    "too many tags": (jpeg(exif(turned(6, count=9))), 6),
    "orientation in the EXIF IFD": (
        jpeg(exif(tags((EXIF_IFD, LONG, 1, 26)) + turned(6)[8:])),
        1,
    ),
    "XMP only": (jpeg(in_xmp(6)), 1),
    "XMP, EXIF without": (jpeg(exif(tags((MAKE, SHORT, 1, 1))), in_xmp(6)), 1),
    "XMP, then EXIF": (jpeg(in_xmp(6), exif(turned(3))), 3),
    "EXIF, then XMP": (jpeg(exif(turned(3)), in_xmp(6)), 3),
    # These two ended the whole process within DALI 2.4.
    "two that disagree": (jpeg(exif(turned(6)), exif(turned(3))), 6),
    "two with XMP between": (jpeg(exif(turned(8)), in_xmp(6), exif(turned(1))), 8),
    "two, the first empty": (jpeg(exif(b""), exif(turned(6))), 6),
    "behind 130 kB": (jpeg(segment(bytes(65000), 0xE2) * 2, exif(turned(5))), 5),
    "late": (late(exif(turned(7))), 7),
    "in another segment": (jpeg(segment(b"Exif\0\0" + turned(6), 0xE2)), 1),
}
OTHERS = {
    **{f"PNG {value}": (png(chunk(b"eXIf", turned(value))), value) for value in range(1, 9)},
    "PNG 9": (png(chunk(b"eXIf", turned(9))), 1),
    "PNG, a JPEG's EXIF": (png(chunk(b"eXIf", b"Exif\0\0" + turned(6))), 6),
    "PNG LONG, big-endian": (png(chunk(b"eXIf", turned(6, LONG, order=">"))), 6),
    "PNG XMP only": (png(png_text(6)), 1),
    "PNG XMP and EXIF": (png(png_text(6), chunk(b"eXIf", turned(3))), 3),
    "PNG tEXt": (png(raw_profile(6, b"tEXt")), 6),
    "PNG zTXt": (png(raw_profile(5, b"zTXt")), 5),
    "PNG iTXt": (png(raw_profile(8, b"iTXt")), 8),
    "PNG tEXt behind the pixels": (PNG[:-12] + raw_profile(3, b"tEXt") + PNG[-12:], 3),
    "PNG tEXt and EXIF": (png(raw_profile(6, b"tEXt"), chunk(b"eXIf", turned(3))), 3),
    "PNG tEXt, broken": (png(chunk(b"tEXt", b"Raw profile type exif\0\nexif\n 9\nxy")), 1),
    **{f"WebP {value}": (encoded("WEBP", exif=turned(value)), value) for value in range(1, 10, 2)},
    "WebP XMP only": (encoded("WEBP", xmp=xmp(6)), 1),
    "WebP XMP and EXIF": (encoded("WEBP", xmp=xmp(6), exif=turned(3)), 3),
    "WebP, odd profile": (encoded("WEBP", icc_profile=b"x" * 15, exif=turned(6)), 6),
    **{f"TIFF {value}": (encoded("TIFF", tiffinfo={274: value}), value) for value in range(1, 9)},
    "TIFF XMP only": (encoded("TIFF", tiffinfo={700: xmp(6)}), 1),
    "TIFF XMP and tag": (encoded("TIFF", tiffinfo={700: xmp(6), 274: 3}), 3),
}
OTHERS["WebP 9"] = OTHERS["WebP 9"][0], 1


def webp_of_odd_alpha() -> bytes:
    """Return a WebP whose ALPH chunk is padded; its length depends on how well alpha compresses."""
    for seed in range(99):
        alpha = np.random.default_rng(seed).integers(128, 256, (PICTURE.height, PICTURE.width))
        picture = PICTURE.copy()
        picture.putalpha(Image.fromarray(alpha.astype(np.uint8)))
        stream = io.BytesIO()
        picture.save(stream, "WEBP", exif=turned(6))
        content = stream.getvalue()
        if content[content.index(b"ALPH") + 4] % 2:
            return content
    raise AssertionError("no ALPH chunk of odd length")


def stored(content: bytes) -> np.ndarray:
    """Return the pixels of a file as they are stored."""
    if content[:2] == b"\xff\xd8":
        content = JPEG
    elif content[:4] == b"RIFF":
        content = encoded("WEBP")
    else:
        return np.asarray(PICTURE)
    return np.asarray(Image.open(io.BytesIO(content)))


def written(folder: Path, cases: dict[str, tuple[bytes, int]]) -> Archive:
    """Return an archive of the cases, whose images are turned by NumPy."""
    paths = [folder / f"{number}.img" for number in range(len(cases))]
    for path, (content, _) in zip(paths, cases.values(), strict=True):
        path.write_bytes(content)
    images = [TURNS[orientation](stored(content)) for content, orientation in cases.values()]
    return Archive(jpeg_pipeline, Index.from_paths(paths), images)


@pytest.mark.parametrize(
    ("crop", "noted"), [(None, False), ((20, 70), False), ((70, 20), False), ((20, 50), True)]
)
def test_turned_by_exif_alone(tmp_path: Path, crop: tuple[int, int] | None, noted: bool) -> None:
    cases = JPEGS if noted else JPEGS | OTHERS
    archive = written(tmp_path, cases)
    if noted:
        archive = replace(archive, index=with_mcu_rows(archive.index))
    # Pillow warns of odd EXIF data, which pytest would make an error in this process.
    found = archive.samples(batch_size=1, dtype="uint8", crop=crop, num_read_processes=1)
    truths = archive.truths(crop=crop)
    wrong: dict[str, Any] = {}
    for row, name in enumerate(cases):
        image, truth = found[row]["image"].transpose(1, 2, 0), truths[row].image
        if image.shape != truth.shape:
            wrong[name] = image.shape
        elif (difference := np.abs(image - truth).max()) > 2:
            wrong[name] = difference
    assert not wrong


def test_a_webp_with_alpha_whose_chunk_is_padded(tmp_path: Path) -> None:
    content = webp_of_odd_alpha()
    (sample,) = written(tmp_path, {"": (content, 6)}).samples(batch_size=1).values()
    with Image.open(io.BytesIO(content)) as opened:
        expected = TURNS[6](np.asarray(opened.convert("RGB"))).astype(int)
    assert np.abs(sample["image"].transpose(1, 2, 0) - expected).max() <= 2
