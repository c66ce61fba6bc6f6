"""Encoded images of all formats and depths, with the values that were encoded."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import tifffile
from PIL import Image

HEIGHT, WIDTH = 40, 64
ORIENTATION = 0x0112


def gray(bits: int) -> np.ndarray:
    """Return noise over a slope, with the extremes, shape (HEIGHT, WIDTH)."""
    most = 2**bits - 1
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    image = (y * WIDTH + x) * most // (HEIGHT * WIDTH)
    image = image // 2 + np.random.default_rng(bits).integers(0, most // 2, image.shape)
    image[0, :3] = 0, most, most // 2 + 1
    return image.astype(np.uint8 if bits == 8 else np.uint16)


def rgb(bits: int) -> np.ndarray:
    """Return an image of three different channels, shape (HEIGHT, WIDTH, 3)."""
    image = gray(bits)
    return np.dstack([image, image[::-1], (2**bits - 1) - image])


def pillow(image: Any, form: str = "JPEG", **settings: Any) -> bytes:
    """Encode by Pillow."""
    stream = io.BytesIO()
    image = image if isinstance(image, Image.Image) else Image.fromarray(image)
    image.save(stream, form, **settings)
    return stream.getvalue()


def exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[ORIENTATION] = orientation
    return tags


def tiff(image: np.ndarray, **settings: Any) -> bytes:
    """Encode by tifffile."""
    stream = io.BytesIO()
    settings = {"photometric": "rgb" if image.ndim == 3 else "minisblack", **settings}
    tifffile.imwrite(stream, image, **settings)
    return stream.getvalue()


def png(image: np.ndarray, color: int) -> bytes:
    """Encode 16 bits a sample, of which Pillow writes no colours (PNG specification, 11.2)."""
    height, width = image.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in image)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 16, color, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def pnm(image: np.ndarray, most: int, comment: bytes = b"") -> bytes:
    """Encode as binary PGM or PPM."""
    kind = b"P6" if image.ndim == 3 else b"P5"
    head = b"%s\n%s%d %d\n%d\n" % (kind, comment, image.shape[1], image.shape[0], most)
    return head + image.astype(">u2" if most > 255 else "u1").tobytes()


def with_alpha(image: np.ndarray) -> np.ndarray:
    """Add a last channel that is not opaque."""
    return np.dstack([image, gray(8 * image.itemsize)[:, ::-1]])


G8, G16, C8, C16 = gray(8), gray(16), rgb(8), rgb(16)
PALETTE = Image.fromarray(C8).quantize(99)

LOSSLESS: dict[str, tuple[bytes, np.ndarray]] = {
    # Of a gray image the values are (height, width), of others (height, width, 3).
    "g8.png": (pillow(G8, "PNG"), G8),
    "g16.png": (pillow(G16, "PNG"), G16),
    "rgb16.png": (png(C16, 2), C16),
    "rgba16.png": (png(with_alpha(C16), 6), C16),
    "ga16.png": (png(with_alpha(G16), 4), G16),
    "ga8.png": (pillow(Image.fromarray(with_alpha(G8), "LA"), "PNG"), G8),
    "rgba8.png": (pillow(with_alpha(C8), "PNG"), C8),
    "palette.png": (pillow(PALETTE, "PNG"), np.asarray(PALETTE.convert("RGB"))),
    "1.png": (pillow(Image.fromarray(G8 > 99), "PNG"), np.uint8(255) * (G8 > 99)),
    "g8.tif": (tiff(G8), G8),
    "g16.tif": (tiff(G16), G16),
    "g16_big_endian.tif": (tiff(G16, byteorder=">"), G16),
    "g16_bigtiff_tiled.tif": (tiff(G16, bigtiff=True, tile=(16, 32)), G16),
    "g16_lzw.tif": (pillow(G16, "TIFF", compression="tiff_lzw"), G16),
    "g16_turned.tif": (tiff(G16, extratags=[(274, "H", 1, 6, True)]), np.rot90(G16, -1)),
    "rgb16.tif": (tiff(C16, rowsperstrip=7), C16),
    "rgba16.tif": (tiff(with_alpha(C16), extrasamples=["unassalpha"]), C16),
    "rgb8_planar.tif": (tiff(C8.transpose(2, 0, 1), planarconfig="separate"), C8),
    "g8_white_is_0.tif": (tiff(G8, photometric="miniswhite"), 255 - G8),
    "cmyk.tif": (pillow(Image.fromarray(C8).convert("CMYK"), "TIFF"), C8),
    "g8.jp2": (pillow(G8, "JPEG2000"), G8),
    "g16.jp2": (pillow(G16, "JPEG2000"), G16),
    "rgb8.jp2": (pillow(C8, "JPEG2000"), C8),
    "rgb8.j2k": (pillow(C8, "JPEG2000", no_jp2=True), C8),
    "g16.pgm": (pnm(G16, 65535, b"# 12 12\n"), G16),
    "rgb16.ppm": (pnm(C16, 65535), C16),
    "rgb8.ppm": (pnm(C8, 255), C8),
    "rgb8.bmp": (pillow(C8, "BMP"), C8),
    "g8.bmp": (pillow(G8, "BMP"), G8),
    "rgb8.webp": (pillow(C8, "WEBP", lossless=True), C8),
}
"""File name -> its bytes, and the values that it holds, as they are displayed."""


def refused() -> dict[str, tuple[bytes, str]]:
    """Return images that DALI 2.4 cannot decode, or not right, with what the refusal says."""
    jpeg = pillow(C8, "JPEG")
    frame = jpeg.index(b"\xff\xc0")
    jp2 = pillow(G16, "JPEG2000")
    size = jp2.index(b"\xff\x4f\xff\x51")
    masked = struct.pack("<IiiHHIIiiII", 40, 8, 8, 1, 16, 3, 128, 0, 0, 0, 0)
    masks = struct.pack("<III", 0xF800, 0x7E0, 0x1F) + bytes(128)
    return {
        "12.jpg": (patched(jpeg, frame + 4, 12), "a JPEG of 12 bits is not decoded, expected 8"),
        "lossless.jpg": (patched(jpeg, frame + 1, 0xC3), "a lossless JPEG is not decoded"),
        "no_end.png": (pillow(C8, "PNG")[:-1], "the file ends within the PNG chunk"),
        "i16.tif": (tiff(G16.view(np.int16)), "a TIFF of 16 bits, signed, is not decoded"),
        "f32.tif": (tiff(G16.astype("f4")), "a TIFF of 32 bits, floating-point, is not decoded"),
        "u32.tif": (tiff(G16.astype("u4")), "a TIFF of 32 bits, unsigned, is not decoded"),
        "f64.tif": (tiff(G16.astype("f8")), "a TIFF image of a kind that is not decoded"),
        "1.tif": (tiff(G8 > 99), "a TIFF of 1 bits, unsigned, is not decoded"),
        "white.tif": (tiff(G16, photometric="miniswhite"), "PhotometricInterpretation 0 is not"),
        "lab.tif": (tiff(C8, photometric="cielab"), "PhotometricInterpretation 8 is not decoded"),
        "planar.tif": (
            tiff(C16.transpose(2, 0, 1), photometric="rgb", planarconfig="separate"),
            "PlanarConfiguration 2 is not decoded, expected 1",
        ),
        "12.pgm": (pnm(gray(12), 4095), "largest value is 4095 is not decoded, expected 255 or"),
        "float.pfm": (b"Pf\n4 4\n-1.0\n" + bytes(64), "a PNM image of floats is not decoded"),
        "signed.jp2": (patched(jp2, size + 42, 0x8F), "1 components, 16 bits, signed, is not"),
        "ga.jp2": (pillow(Image.fromarray(with_alpha(G8), "LA"), "JPEG2000"), "2 components"),
        "offset.jp2": (
            pillow(C8, "JPEG2000", offset=(3, 5), tile_offset=(0, 0), tile_size=(64, 64)),
            "none subsampled or offset",
        ),
        "ycc.jp2": (pillow(Image.fromarray(C8).convert("YCbCr"), "JPEG2000"), "sRGB or gray"),
        "gray.j2k": (pillow(G8, "JPEG2000", no_jp2=True), "needs channels=1"),
        "565.bmp": (
            b"BM" + struct.pack("<IHHI", 194, 0, 0, 66) + masked + masks,
            "a BMP of 16 bits is not decoded",
        ),
    }


def patched(content: bytes, place: int, byte: int) -> bytes:
    """Change one byte."""
    return content[:place] + bytes((byte,)) + content[place + 1 :]
