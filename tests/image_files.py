"""Encoded images of all formats and depths, with the values that were encoded."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import tifffile
from PIL import Image, ImageCms, ImageOps

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


def raw_png(height: int, width: int, bits: int, color: int, rows: bytes) -> bytes:
    """Return a PNG of rows as they are before compression (PNG specification, 11.2)."""
    head = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def png(image: np.ndarray, color: int) -> bytes:
    """Encode 16 bits a sample: Pillow writes no colours of 16 bits."""
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in image)
    return raw_png(image.shape[0], image.shape[1], 16, color, rows)


def npy(array: Any) -> bytes:
    """Encode as NumPy does."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


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
    "rgb16_turned.tif": (tiff(C16, extratags=[(274, "H", 1, 6, True)]), np.rot90(C16, -1)),
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


def by_pillow() -> dict[str, bytes]:
    """Return images that DALI 2.4 does not decode, or not right, and that Pillow reads."""
    jp2, bilevel, turned = pillow(G16, "JPEG2000"), Image.fromarray(G8 > 99), exif(6)
    size = jp2.index(b"\xff\x4f\xff\x51")
    colours, other = Image.fromarray(C8), Image.fromarray(C8[::-1])
    jpeg = pillow(colours, "JPEG", quality=95)
    return {
        "gif.gif": pillow(PALETTE, "GIF"),
        "animated.gif": pillow(colours, "GIF", save_all=True, append_images=[other]),
        "tga.tga": pillow(with_alpha(C8), "TGA", compression="tga_rle"),
        "pcx.pcx": pillow(C8, "PCX"),
        "sgi.sgi": pillow(G8, "SGI"),
        "ico.ico": pillow(colours.resize((32, 32)), "ICO"),
        "dds.dds": pillow(with_alpha(C8), "DDS"),
        "animated.webp": pillow(
            colours, "WEBP", lossless=True, save_all=True, append_images=[other]
        ),
        "turned.avif": pillow(colours, "AVIF", exif=turned),
        "1.tif": tiff(G8 > 99),
        "fax.tif": pillow(bilevel, "TIFF", compression="group4"),
        "turned_fax.tif": pillow(bilevel, "TIFF", compression="group4", tiffinfo={274: 6}),
        "palette.tif": pillow(PALETTE, "TIFF"),
        "12.tif": pillow(G16, "TIFF").replace(
            struct.pack("<HHIHH", 258, 3, 1, 16, 0), struct.pack("<HHIHH", 258, 3, 1, 12, 0)
        ),
        "lab.tif": tiff(C8, photometric="cielab"),
        "cmyk.tif": pillow(colours.convert("CMYK"), "TIFF", compression="tiff_lzw"),
        "ycc.tif": pillow(colours.convert("YCbCr"), "TIFF"),
        "ga.tif": pillow(Image.fromarray(with_alpha(G8), "LA"), "TIFF"),
        "jpeg.tif": pillow(C8, "TIFF", compression="jpeg", quality=95),
        "premultiplied.tif": tiff(with_alpha(C8), extrasamples=["assocalpha"]),
        "12.pgm": pnm(gray(12), 4095),
        "7.ppm": pnm(C8 // 2, 127),
        "plain.pbm": b"P1 3 2 0 1 0 1 1 0",
        "packed.pbm": pillow(bilevel, "PPM"),
        "signed.jp2": patched(jp2, size + 42, 0x8F),
        "ga.jp2": pillow(Image.fromarray(with_alpha(G8), "LA"), "JPEG2000"),
        "offset.jp2": pillow(C8, "JPEG2000", offset=(3, 5), tile_offset=(0, 0), tile_size=(64, 64)),
        "ycc.jp2": pillow(colours.convert("YCbCr"), "JPEG2000"),
        "gray.j2k": pillow(G8, "JPEG2000", no_jp2=True),
        "large_box.jp2": jp2[: size - 8]
        + struct.pack(">I4sQ", 1, b"jp2c", len(jp2) - size + 16)
        + jp2[size:],
        "565.bmp": bmp(16, (0xF800, 0x7E0, 0x1F), 40),
        **{
            f"{name}_{size}.bmp": bmp(32, masks, size)
            for size in (40, 52, 56, 108, 124)
            for name, masks in (
                ("bgr", (0xFF0000, 0xFF00, 0xFF)),
                ("high", (0xFF000000, 0xFF0000, 0xFF00)),
            )
        },
        "rle.bmp": b"BM"
        + struct.pack("<IHHI", 62 + 14, 0, 0, 62)
        + struct.pack("<IiiHHIIiiII", 40, 8, 2, 1, 4, 2, 14, 0, 0, 2, 0)
        + bytes((0, 0, 255, 0, 255, 0, 0, 0, 8, 0x01, 0, 0, 8, 0x11, 0, 1)).ljust(22, b"\0"),
        "16_bit_tables.jpg": with_16_bit_tables(jpeg),
        "turned_tables.jpg": with_16_bit_tables(pillow(C8, "JPEG", exif=turned, quality=95)),
    }


def bmp(bits: int, masks: tuple[int, int, int], header: int) -> bytes:
    """Encode the 8-bit colours as BMP with masks of red, green and blue."""
    values = np.zeros(C8.shape[:2], np.uint32)
    for channel, mask in enumerate(masks):
        low = (mask & -mask).bit_length() - 1
        values |= C8[..., channel].astype(np.uint32) * (mask >> low) // 255 << low
    pixels = values[::-1].astype(f"<u{bits // 8}").tobytes()
    info = struct.pack("<IiiHHIIiiII", header, WIDTH, HEIGHT, 1, bits, 3, len(pixels), 0, 0, 0, 0)
    info = (info + struct.pack("<3I", *masks)).ljust(header, b"\0")
    start = 14 + len(info)
    return b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, start) + info + pixels


def with_16_bit_tables(jpeg: bytes) -> bytes:
    """Rewrite the quantisation tables of a JPEG with 16 bits a value, as few encoders do."""
    at = jpeg.index(b"\xff\xdb")
    while jpeg[at : at + 2] == b"\xff\xdb":
        (length,) = struct.unpack_from(">H", jpeg, at + 2)
        tables = jpeg[at + 4 : at + 2 + length]
        wide = b"".join(
            bytes((0x10 | tables[start],))
            + np.frombuffer(tables, np.uint8, 64, start + 1).astype(">u2").tobytes()
            for start in range(0, len(tables), 65)
        )
        segment = b"\xff\xdb" + struct.pack(">H", len(wide) + 2) + wide
        jpeg = jpeg[:at] + segment + jpeg[at + 2 + length :]
        at += len(segment)
    return jpeg


def as_pillow(content: bytes, channels: int) -> np.ndarray:
    """Return an image as torchvision's default loader gives it, turned; 16 bits are kept.

    Shape (height, width, channels). Gray of a JPEG is the luma that it stores.
    """
    with Image.open(io.BytesIO(content)) as opened:
        if channels == 1 and opened.format == "JPEG":
            opened.draft("L", None)
        image = ImageOps.exif_transpose(opened)
    if image.mode == "LAB":
        lab, srgb = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
        converted = ImageCms.profileToProfile(image, lab, srgb, outputMode="RGB")
        assert converted is not None
        image = converted
    if image.mode.startswith("I"):
        return np.repeat(np.asarray(image).astype(np.int64)[..., None], channels, axis=2)
    image = image.convert("RGB") if image.mode != "L" else image
    return np.atleast_3d(np.asarray(image.convert("RGB" if channels == 3 else "L")))


def refused() -> dict[str, tuple[bytes, str]]:
    """Return images that neither DALI 2.4 nor Pillow reads right, with what the refusal says."""
    jpeg = pillow(C8, "JPEG")
    frame = jpeg.index(b"\xff\xc0")
    return {
        "12.jpg": (patched(jpeg, frame + 4, 12), "such as a 12-bit JPEG"),
        "lossless.jpg": (patched(jpeg, frame + 1, 0xC3), "broken data stream"),
        "no_end.png": (pillow(C8, "PNG")[:-1], "the file ends within the PNG chunk"),
        "i8.tif": (tiff(G8.view(np.int8)), "a TIFF of signed samples is not decoded"),
        "i16.tif": (tiff(G16.view(np.int16)), "a TIFF of signed samples is not decoded"),
        "f32.tif": (tiff(G16.astype("f4")), "a TIFF of floats is not decoded"),
        "u32.tif": (tiff(G16.astype("u4")), "a TIFF of integers of 32 bits is not decoded"),
        "f64.tif": (tiff(G16.astype("f8")), "or a 64-bit TIFF: convert it"),
        "white.tif": (tiff(G16, photometric="miniswhite"), "more than 8 bits"),
        "planar.tif": (
            tiff(C16.transpose(2, 0, 1), photometric="rgb", planarconfig="separate"),
            "a TIFF of 16 bits per sample is not decoded",
        ),
        "premultiplied.tif": (
            tiff(with_alpha(C16), extrasamples=["assocalpha"]),
            "a TIFF of 16 bits per sample is not decoded",
        ),
        "12.ppm": (pnm(rgb(12), 4095), "a PPM of 12 bits per sample is not decoded"),
        "float.pfm": (b"Pf\n4 4\n-1.0\n" + bytes(64), "a PPM of floats is not decoded"),
        "text.eps": (
            b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n",
            "EPS is a program",
        ),
        "stub.grib": (b"GRIB" + bytes(3) + b"\1" + bytes(64), "cannot find loader"),
    }


def patched(content: bytes, place: int, byte: int) -> bytes:
    """Change one byte."""
    return content[:place] + bytes((byte,)) + content[place + 1 :]


def undecodable_jpeg() -> bytes:
    """Return a JPEG whose first Huffman table has three codes of one bit: only decoders look."""
    jpeg = bytearray(pillow(C8, "JPEG"))
    counts = jpeg.index(b"\xff\xc4") + 5
    longest = max(place for place in range(counts, counts + 16) if jpeg[place])
    jpeg[counts], jpeg[longest] = 3, jpeg[longest] - 1
    jpeg[counts + 2] -= 2
    return bytes(jpeg)
