"""Masks of all formats, as they were written by others, and bad ones."""

from __future__ import annotations

import io
import itertools
import pickle
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tifffile
from astropy.io import fits
from image_files import exif
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from readers import Mask
from readers.places.opener import LOCAL
from readers.sampling.placement import Placement
from readers.targets.mask_files import read_mask
from readers.window import Box, Window

SHAPE = (40, 50)
LABELS = np.random.default_rng(0).integers(0, 16, SHAPE).astype(np.uint8)
WIDE = np.random.default_rng(1).integers(0, 60000, SHAPE, np.uint16)
WINDOW = Window.at(7, 11, 20, 30, image=SHAPE)
PART = np.s_[7:27, 11:41]


def read(path: Path | str, window: Window | None = WINDOW, **options: Any) -> NDArray[Any]:
    mask = pickle.loads(pickle.dumps(Mask("m", **options)))
    placement = Placement.of(window, SHAPE, None, (False, False))
    sample = mask.read("mask", {"m": LOCAL.at(str(path)) if path else None}, placement)
    (spec,) = mask.specs("mask")
    spec.check(sample["mask"])
    assert sample.input_bytes > 0
    found: NDArray[Any] = sample["mask"]
    return found


def palette(bits: int) -> Image.Image:
    image = Image.new("P", SHAPE[::-1])
    image.putdata((LABELS & 2**bits - 1).ravel().tolist())
    image.putpalette(np.random.default_rng(2).integers(0, 256, 3 * 2**bits).tolist())
    return image


def gray_png(bits: int) -> bytes:
    """Encode gray of fewer than 8 bits, of which Pillow writes only 1 (PNG specification, 11.2)."""
    values = LABELS & 2**bits - 1
    padded = np.pad(values, ((0, 0), (0, -values.shape[1] % (8 // bits))))
    packed = np.zeros((len(values), padded.shape[1] * bits // 8), np.uint8)
    for place in range(8 // bits):
        packed |= padded[:, place :: 8 // bits] << np.uint8(8 - bits * (place + 1))
    rows = b"".join(b"\0" + row.tobytes() for row in packed)
    head = struct.pack(">IIBBBBB", SHAPE[1], SHAPE[0], bits, 0, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_palettes_give_their_indices(tmp_path: Path, bits: int) -> None:
    for name in ("m.png", "m.bmp", "m.tif"):
        palette(bits).save(tmp_path / name, bits=bits)
        np.testing.assert_array_equal(read(tmp_path / name), (LABELS & 2**bits - 1)[PART])


@pytest.mark.parametrize("bits", [2, 4])
def test_gray_of_few_bits_is_not_stretched(tmp_path: Path, bits: int) -> None:
    (tmp_path / "m.png").write_bytes(gray_png(bits))
    assert Image.open(tmp_path / "m.png").getextrema()[1] == 255  # Pillow stretches it
    np.testing.assert_array_equal(read(tmp_path / "m.png"), (LABELS & 2**bits - 1)[PART])


def test_one_bit(tmp_path: Path) -> None:
    for name in ("m.png", "m.bmp", "m.tif", "m.pbm"):
        Image.fromarray(LABELS > 7).save(tmp_path / name)
        np.testing.assert_array_equal(read(tmp_path / name), (LABELS > 7)[PART])


@pytest.mark.parametrize(
    ("dtype", "order"),
    [
        *(("uint8", order) for order in "<>"),
        *(("int8", order) for order in "<>"),
        *(("uint16", order) for order in "<>"),
        *(("int16", order) for order in "<>"),
        ("uint32", "<"),
        *(("int32", order) for order in "<>"),
        *(("float32", order) for order in "<>"),
    ],
)
def test_tiff(tmp_path: Path, dtype: str, order: Any) -> None:
    values = WIDE.astype(np.int64) * (70000 if dtype == "uint32" else 1)
    if dtype.startswith("int"):
        values -= 30000
    stored = values.astype(dtype)
    wanted = "float32" if dtype == "float32" else "int64"
    for compression in (None, "zlib"):
        tifffile.imwrite(tmp_path / "m.tif", stored, byteorder=order, compression=compression)
        if compression and order == ">" and dtype in ("int16", "int32", "float32"):
            with pytest.raises(ValueError, match="is a compressed TIFF, big-endian"):
                read(tmp_path / "m.tif", dtype=wanted)
            continue
        found = read(tmp_path / "m.tif", dtype=wanted)
        np.testing.assert_array_equal(found, stored.astype(wanted)[PART])


@pytest.mark.parametrize("photometric", ["miniswhite", "minisblack"])
@pytest.mark.parametrize("bits", [1, 8, 16])
def test_tiff_of_white_is_zero_is_not_inverted(tmp_path: Path, photometric: str, bits: int) -> None:
    stored = {1: LABELS > 7, 8: LABELS, 16: WIDE}[bits]
    for compression in (None, "zlib"):
        tifffile.imwrite(
            tmp_path / "m.tif", stored, photometric=photometric, compression=compression
        )
        np.testing.assert_array_equal(read(tmp_path / "m.tif", dtype="int32"), stored[PART])


@pytest.mark.parametrize("fill", [1, 2])
@pytest.mark.parametrize("photometric", [0, 1])
@pytest.mark.parametrize("bits", [1, 2, 4])
def test_tiff_of_few_bits(tmp_path: Path, bits: int, photometric: int, fill: int) -> None:
    """Written by hand, as tifffile writes none (TIFF 6.0, section 4): width of whole bytes."""
    values = (LABELS & 2**bits - 1)[:, :48]
    each = np.unpackbits(values[..., None], axis=-1)[..., 8 - bits :]
    data = np.packbits(each.ravel(), bitorder="big" if fill == 1 else "little").tobytes()
    tags = {256: 48, 257: 40, 258: bits, 259: 1, 262: photometric, 266: fill, 273: 8, 277: 1}
    tags |= {278: 40, 279: len(data)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    (tmp_path / "m.tif").write_bytes(
        struct.pack("<2sHI", b"II", 42, 8 + len(data))
        + data
        + struct.pack("<H", len(tags))
        + entries
        + bytes(4)
    )
    found, _ = read_mask(LOCAL.at(str(tmp_path / "m.tif")), None, (40, 48), Box(0, 0, 40, 48))
    np.testing.assert_array_equal(found, values)


def test_16_bit_png(tmp_path: Path) -> None:
    Image.fromarray(WIDE).save(tmp_path / "m.png")
    for dtype in ("uint16", "int32", "float32"):
        np.testing.assert_array_equal(read(tmp_path / "m.png", dtype=dtype), WIDE[PART])
    with pytest.raises(ValueError, match=r"holds values from \d+ to 5\d+, and dtype 'int16' has"):
        read(tmp_path / "m.png", dtype="int16")


def pgm(maxval: int, *, plain: bool) -> tuple[bytes, NDArray[Any]]:
    """Encode gray by hand, with the values that were encoded (Netpbm's pgm)."""
    values = WIDE.astype(int) % (maxval + 1)
    head = f"P{2 if plain else 5}\n{SHAPE[1]} {SHAPE[0]}\n{maxval}\n".encode()
    if plain:
        return head + " ".join(map(str, values.ravel().tolist())).encode(), values
    return head + values.astype(">u2" if maxval > 255 else "u1").tobytes(), values


@pytest.mark.parametrize("plain", [False, True])
def test_pgm_gives_stored_values_or_is_rejected(tmp_path: Path, plain: bool) -> None:
    for maxval in (255, 65535):
        encoded, values = pgm(maxval, plain=plain)
        (tmp_path / "m.pgm").write_bytes(encoded)
        np.testing.assert_array_equal(read(tmp_path / "m.pgm", dtype="int32"), values[PART])
    for maxval in (3, 15, 1000):
        (tmp_path / "m.pgm").write_bytes(pgm(maxval, plain=plain)[0])
        with pytest.raises(ValueError, match=f"is a PGM of maxval {maxval}, which Pillow"):
            read(tmp_path / "m.pgm", dtype="int32")


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_turns_masks_as_it_does_images(
    tmp_path: Path, orientation: int, as_text: bool
) -> None:
    """A mask that was saved with the EXIF data of its image."""
    stored = LABELS if orientation < 5 else LABELS.T
    options: dict[str, Any] = {"exif": exif(orientation)}
    if as_text:  # as ImageMagick wrote them
        block, text = options.pop("exif").tobytes(), PngInfo()
        text.add_text("Raw profile type exif", f"\nexif\n{len(block):8}\n{block.hex()}\n")
        options["pnginfo"] = text
    Image.fromarray(np.ascontiguousarray(stored)).save(tmp_path / "m.png", **options)
    with Image.open(tmp_path / "m.png") as image:
        from PIL import ImageOps

        expected = np.asarray(ImageOps.exif_transpose(image))
    assert expected.shape == SHAPE
    np.testing.assert_array_equal(read(tmp_path / "m.png"), expected[PART])


@pytest.mark.parametrize(
    ("dtype", "codec"),
    [
        *itertools.product(
            ("uint8", "int16", "int32", "float32", "float64"), (None, "RICE_1", "GZIP_1")
        ),
        ("uint8", "PLIO_1"),
    ],
)
def test_fits(tmp_path: Path, dtype: str, codec: str | None) -> None:
    stored = (LABELS if dtype == "uint8" else WIDE // 2).astype(dtype)
    hdu: Any = fits.PrimaryHDU(stored)
    if codec is not None:
        hdu = fits.CompImageHDU(stored, compression_type=codec, quantize_level=0)
    hdu.writeto(tmp_path / "m.fits")
    wanted = "float64" if stored.dtype.kind == "f" else "int32"
    for window, part in ((WINDOW, PART), (None, np.s_[:, :])):
        found = read(tmp_path / "m.fits", window, dtype=wanted)
        np.testing.assert_array_equal(found, stored[part])


@pytest.mark.parametrize(
    ("dtype", "codec"),
    [*itertools.product(("uint16", "uint32"), (None, "RICE_1")), ("int8", None)],
)
def test_fits_types_by_bzero(tmp_path: Path, dtype: str, codec: str | None) -> None:
    stored = WIDE.astype(np.int64) * (1 if dtype == "uint16" else 70000)
    stored = (LABELS.astype(int) - 8 if dtype == "int8" else stored).astype(dtype)
    hdu: Any = fits.PrimaryHDU(stored) if codec is None else fits.CompImageHDU(stored)
    hdu.writeto(tmp_path / "m.fits")
    np.testing.assert_array_equal(read(tmp_path / "m.fits", dtype="int64"), stored[PART])


@pytest.mark.parametrize(
    "cards",
    [
        {"BSCALE": 1.0, "BZERO": 0.0},
        {"BSCALE": 0.5},
        {"BZERO": 7},
        {"BZERO": 32768.0},
        {"BZERO": -32768},
        {"BSCALE": 2.0, "BZERO": 32768},
        {"BLANK": 5},
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32"])
def test_fits_values_are_those_of_astropy(
    tmp_path: Path, dtype: str, cards: dict[str, float]
) -> None:
    stored = np.arange(LABELS.size).reshape(LABELS.shape).astype(dtype)
    fits.ImageHDU(stored).writeto(tmp_path / "m.fits")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of BLANK beside floats
        with fits.open(tmp_path / "m.fits", "update", do_not_scale_image_data=True) as hdus:
            hdus[1].header.update(cards)
        expected = fits.getdata(tmp_path / "m.fits", 1).astype("float64")
    for window, part in ((WINDOW, PART), (None, np.s_[:, :])):
        found = read(tmp_path / "m.fits", window, dtype="float64", hdu=1)
        np.testing.assert_array_equal(found, expected[part])


def test_fits_hdus_and_gzip(tmp_path: Path) -> None:
    hdus = [fits.PrimaryHDU(), fits.ImageHDU(LABELS + 1, name="A"), fits.ImageHDU(LABELS, name="B")]
    for name in ("m.fits", "m.fits.gz"):
        fits.HDUList(hdus).writeto(tmp_path / name)
        np.testing.assert_array_equal(read(tmp_path / name), (LABELS + 1)[PART])
        for hdu in (2, "b", ("B", 1)):
            np.testing.assert_array_equal(read(tmp_path / name, hdu=hdu), LABELS[PART])
    with pytest.raises(ValueError, match="C"):
        read(tmp_path / "m.fits", hdu="C")


def test_fits_and_npy_read_their_window_alone(tmp_path: Path) -> None:
    large = np.zeros((1000, 1000), np.uint8)
    fits.CompImageHDU(large, tile_shape=(50, 50)).writeto(tmp_path / "m.fits")
    np.save(tmp_path / "m.npy", large)
    small = Placement.of(
        Window.at(500, 500, 10, 10, image=large.shape), large.shape, None, (False, False)
    )
    values = Mask("m").read("m", {"m": LOCAL.at(str(tmp_path / "m.npy"))}, small)
    assert values.input_bytes == 10 * 1000


@pytest.mark.parametrize("dtype", ["bool", "uint8", ">i2", "int64", "float32"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy(tmp_path: Path, dtype: str, order: Any) -> None:
    stored = np.asarray(LABELS % 2 if dtype == "bool" else LABELS, dtype, order=order)
    np.save(tmp_path / "m.npy", stored)
    wanted = "float32" if dtype == "float32" else "uint8"
    np.testing.assert_array_equal(read(tmp_path / "m.npy", dtype=wanted), stored[PART])


def truncated(path: Path, content: bytes) -> Path:
    path.write_bytes(content[: len(content) * 2 // 3])
    return path


def encoded(image: Image.Image, form: str) -> bytes:
    stream = io.BytesIO()
    image.save(stream, form)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("JPEG", {}),
        ("MPO", {"save_all": True}),
        ("TIFF", {"compression": "jpeg"}),
        ("JPEG2000", {"irreversible": True}),
        ("JPEG2000", {"irreversible": True, "no_jp2": True}),
        ("JPEG2000", {"quality_mode": "rates", "quality_layers": [30]}),
        ("AVIF", {}),
    ],
)
def test_lossy_files_have_values_but_no_classes(
    tmp_path: Path, form: str, options: dict[str, Any]
) -> None:
    path = tmp_path / "mask"
    Image.fromarray(LABELS * np.uint8(17)).save(path, form, **options)
    with Image.open(path) as image:
        stored = np.asarray(image)
    with pytest.raises(ValueError, match=r"PNG.*float32"):
        read(path)
    np.testing.assert_array_equal(read(path, dtype="float32"), stored[PART])


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("PNG", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("GIF", {}),
        ("BMP", {}),
        ("PPM", {}),
        ("TGA", {}),
    ],
)
def test_lossless_files(tmp_path: Path, form: str, options: dict[str, Any]) -> None:
    Image.fromarray(LABELS).save(tmp_path / "mask", form, **options)
    np.testing.assert_array_equal(read(tmp_path / "mask"), LABELS[PART])


@pytest.mark.parametrize(
    ("mode", "form"),
    [("RGB", "PNG"), ("RGBA", "PNG"), ("LA", "PNG"), ("CMYK", "TIFF"), ("RGB", "WEBP")],
)
def test_masks_of_several_channels_are_refused(tmp_path: Path, mode: str, form: str) -> None:
    Image.new(mode, SHAPE[::-1]).save(tmp_path / "mask", form)
    with pytest.raises(ValueError, match=r"several channels .* PNG"):
        read(tmp_path / "mask")


def test_bad_masks(tmp_path: Path) -> None:
    np.save(tmp_path / "big.npy", np.full(SHAPE, 300))
    np.save(tmp_path / "float.npy", np.ones(SHAPE))
    np.save(tmp_path / "cube.npy", np.ones((*SHAPE, 3), np.uint8))
    np.save(tmp_path / "text.npy", np.full(SHAPE, "a"))
    np.save(tmp_path / "objects.npy", np.full(SHAPE, None), allow_pickle=True)
    np.save(tmp_path / "small.npy", LABELS[1:])
    fits.writeto(tmp_path / "cube.fits", np.zeros((2, *SHAPE), np.uint8))
    fits.writeto(tmp_path / "small.fits", LABELS[:, 1:])
    blank = fits.PrimaryHDU(WIDE.astype(np.int16))
    blank.header["BLANK"] = int(np.int16(WIDE[10, 20].astype(np.int16)))
    blank.writeto(tmp_path / "blank.fits")
    Image.fromarray(LABELS).save(tmp_path / "ok.png")
    Image.fromarray(LABELS[1:]).save(tmp_path / "small.png")
    Image.fromarray(np.dstack([LABELS] * 3)).save(tmp_path / "rgb.png")
    (tmp_path / "text.png").write_text("a mask")
    (tmp_path / "empty.png").write_bytes(b"")
    ok = (tmp_path / "ok.png").read_bytes()
    truncated(tmp_path / "cut.png", ok)
    truncated(tmp_path / "cut.tif", encoded(Image.fromarray(LABELS), "TIFF"))
    truncated(tmp_path / "cut.bmp", encoded(Image.fromarray(LABELS), "BMP"))
    truncated(tmp_path / "cut.npy", (tmp_path / "big.npy").read_bytes())
    truncated(tmp_path / "cut.fits", (tmp_path / "small.fits").read_bytes())
    (tmp_path / "flipped.png").write_bytes(ok[:60] + bytes([ok[60] ^ 1]) + ok[61:])
    size = "has 39x50 pixels, and the image 40x50"
    reasons = {
        "none.png": "No such file",
        "big.npy": "holds values from 300 to 300, and dtype 'uint8' has 0 to 255",
        "float.npy": "holds float64, and dtype is 'uint8': give dtype='float32'",
        "cube.npy": r"has shape \(40, 50, 3\), expected \(height, width\)",
        "text.npy": "holds values of type <U1, expected numbers",
        "objects.npy": "Python objects",
        "small.npy": size,
        "small.png": size,
        "small.fits": "has 40x49 pixels, and the image 40x50",
        "cube.fits": "has 2 planes, expected one",
        "blank.fits": "holds float32, and dtype is 'uint8'",
        "rgb.png": r"has several channels \(mode RGB\), expected one",
        "text.png": "not a mask of a known format",
        "empty.png": "not a mask of a known format",
        "cut.png": "ends within the PNG chunk",
        "cut.tif": "truncated",
        "cut.bmp": "truncated",
        "cut.npy": "the file ends at",
        "cut.fits": "truncated",
        "flipped.png": "checksum",
        "": "names no mask for this row",
    }
    for name, reason in reasons.items():
        path = tmp_path / name if name else ""
        with pytest.raises(ValueError, match=reason) as caught:
            read(path)
        assert not name or str(caught.value).startswith(str(path)), caught.value
    with pytest.raises(ValueError, match="it is a directory"):
        read(tmp_path)


@pytest.mark.parametrize("window", [None, WINDOW])
@pytest.mark.parametrize("name", ["m.png", "m.tif", "m.bmp", "m.fits", "rice.fits", "m.npy"])
def test_masks_of_another_size_than_the_image(
    tmp_path: Path, name: str, window: Window | None
) -> None:
    """Smaller, larger, and turned: a window would lie in the last two."""
    for number, shape in enumerate([(39, 50), (80, 100), SHAPE[::-1]]):
        path = tmp_path / f"{number}_{name}"
        mask = np.zeros(shape, np.uint8)
        if name == "rice.fits":
            fits.CompImageHDU(mask, compression_type="RICE_1").writeto(path)
        elif name == "m.fits":
            fits.writeto(path, mask)
        elif name == "m.npy":
            np.save(path, mask)
        else:
            Image.fromarray(mask).save(path)
        with pytest.raises(ValueError, match=f"{shape[0]}x{shape[1]} .*40x50") as caught:
            read(path, window)
        assert str(path) in str(caught.value)


def test_values_that_a_float_cannot_hold(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", np.full(SHAPE, 2**24 + 1))
    assert (read(tmp_path / "m.npy", dtype="float64") == 2**24 + 1).all()
    with pytest.raises(ValueError, match="from 16777217 to 16777217, and dtype 'float32' has"):
        read(tmp_path / "m.npy", dtype="float32")
    np.save(tmp_path / "m.npy", np.full(SHAPE, 1e300))
    with pytest.raises(ValueError, match="holds values up to 1e"):
        read(tmp_path / "m.npy", dtype="float32")
    np.save(tmp_path / "m.npy", np.where(LABELS, np.nan, -np.inf))
    assert np.isnan(read(tmp_path / "m.npy", dtype="float32")).any()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dtype": "uint32"}, "dtype of a Mask must be one of"),
        ({"outside": -1}, "outside=-1 is no uint8"),
        ({"outside": 0.5}, "outside=0.5 is no uint8"),
        ({"outside": True}, "outside must be a number"),
        ({"outside": "0"}, "outside must be a number"),
        ({"hdu": 1.5}, "hdu"),
        ({"column": None}, "column must be the name of a column"),
    ],
)
def test_bad_settings(options: dict[str, Any], reason: str) -> None:
    with pytest.raises((ValueError, TypeError), match=reason):
        Mask(**{"column": "m", **options})


def test_the_column_must_hold_text() -> None:
    table = pa.table({"path": ["a"], "number": [1], "mask": ["m"]})
    assert Mask("mask").fitted(table) == Mask("mask")
    with pytest.raises(KeyError, match="no column 'masks'"):
        Mask("masks").fitted(table)
    with pytest.raises(TypeError, match="column 'number' must hold paths of masks, got int64"):
        Mask("number").fitted(table)
    table = table.set_column(2, "mask", table["mask"].dictionary_encode())
    with pytest.raises(TypeError, match=r"got dictionary<.*>: give text, e\.g\. by column\.cast"):
        Mask("mask").fitted(table)


def test_blank_samples_are_outside() -> None:
    blank = Mask("m", "int16", outside=-9).blank("mask", (3, 4))["mask"]
    assert blank.dtype == np.int16
    assert (blank == np.full((3, 4), -9)).all()
