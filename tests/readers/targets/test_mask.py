"""Masks of all formats, as they were written by others, and bad ones."""

from __future__ import annotations

import itertools
import pickle
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tifffile
from astropy.io import fits
from image_files import exif, pillow, raw_png
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
    """Encode gray of fewer than 8 bits: Pillow writes only 1."""
    values = LABELS & 2**bits - 1
    padded = np.pad(values, ((0, 0), (0, -values.shape[1] % (8 // bits))))
    packed = np.zeros((len(values), padded.shape[1] * bits // 8), np.uint8)
    for place in range(8 // bits):
        packed |= padded[:, place :: 8 // bits] << np.uint8(8 - bits * (place + 1))
    return raw_png(*SHAPE, bits, 0, b"".join(b"\0" + row.tobytes() for row in packed))


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
        *itertools.product(("uint8", "int8", "uint16", "int16", "int32", "float32"), "<>"),
        ("uint32", "<"),
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
            with pytest.raises(ValueError, match=r"compressed .*TIFF"):
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


@pytest.mark.parametrize(
    ("bits", "photometric", "fill"),
    [(1, 0, 1), (1, 1, 2), (2, 0, 2), (2, 1, 1), (4, 0, 1), (4, 1, 2)],
)
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
    with pytest.raises(ValueError, match=r"from \d+ to 5\d+.*int16"):
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
        with pytest.raises(ValueError, match=f"PGM of maxval {maxval}"):
            read(tmp_path / "m.pgm", dtype="int32")


@pytest.mark.parametrize(
    ("orientation", "as_text"), [(number, number % 3 == 0) for number in range(1, 9)]
)
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


FITS_MASKS: list[tuple[str, str | None]] = [
    *itertools.product(
        ("uint8", "int16", "int32", "float32", "float64"), (None, "RICE_1", "GZIP_1")
    ),
    *itertools.product(("uint16", "uint32"), (None, "RICE_1")),  # by BZERO
    ("int8", None),
    ("uint8", "PLIO_1"),
]


@pytest.mark.parametrize(("dtype", "codec"), FITS_MASKS)
def test_fits(tmp_path: Path, dtype: str, codec: str | None) -> None:
    values = {"uint8": LABELS, "int8": LABELS.astype(int) - 8, "uint32": WIDE * np.uint32(70000)}
    stored = values.get(dtype, WIDE if dtype == "uint16" else WIDE // 2).astype(dtype)
    hdu: Any = fits.PrimaryHDU(stored)
    if codec is not None:
        hdu = fits.CompImageHDU(stored, compression_type=codec, quantize_level=0)
    hdu.writeto(tmp_path / "m.fits")
    wanted = "float64" if stored.dtype.kind == "f" else "int64"
    for window, part in ((WINDOW, PART), (None, np.s_[:, :])):
        found = read(tmp_path / "m.fits", window, dtype=wanted)
        np.testing.assert_array_equal(found, stored[part])


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
def test_fits_values_are_those_of_astropy(tmp_path: Path, cards: dict[str, float]) -> None:
    for dtype in ("uint8", "int16", "int32", "float32"):
        path = tmp_path / f"{dtype}.fits"
        fits.ImageHDU(np.arange(LABELS.size).reshape(LABELS.shape).astype(dtype)).writeto(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of BLANK beside floats
            with fits.open(path, "update", do_not_scale_image_data=True) as hdus:
                hdus[1].header.update(cards)
            expected = fits.getdata(path, 1).astype("float64")
        for window, part in ((WINDOW, PART), (None, np.s_[:, :])):
            found = read(path, window, dtype="float64", hdu=1)
            np.testing.assert_array_equal(found, expected[part], err_msg=dtype)


def test_fits_hdus_and_gzip(tmp_path: Path) -> None:
    hdus = [fits.PrimaryHDU(), fits.ImageHDU(LABELS + 1, name="A"), fits.ImageHDU(LABELS, name="B")]
    for name in ("m.fits", "m.fits.gz"):
        fits.HDUList(hdus).writeto(tmp_path / name)
        np.testing.assert_array_equal(read(tmp_path / name), (LABELS + 1)[PART])
        for hdu in (2, "b", ("B", 1)):
            np.testing.assert_array_equal(read(tmp_path / name, hdu=hdu), LABELS[PART])
    with pytest.raises(ValueError, match="C"):
        read(tmp_path / "m.fits", hdu="C")


def test_windows_as_high_or_as_wide_as_the_mask(tmp_path: Path) -> None:
    fits.writeto(tmp_path / "m.fits", LABELS)
    fits.CompImageHDU(LABELS, compression_type="RICE_1").writeto(tmp_path / "rice.fits")
    np.save(tmp_path / "m.npy", LABELS)
    Image.fromarray(LABELS).save(tmp_path / "m.png")
    height, width = SHAPE
    for y, x, rows, columns in ((0, 11, height, 30), (7, 0, 20, width), (20, 20, 20, 30)):
        window = Window.at(y, x, rows, columns, image=SHAPE)
        expected = LABELS[y : y + rows, x : x + columns]
        for name in ("m.fits", "rice.fits", "m.npy", "m.png"):
            np.testing.assert_array_equal(read(tmp_path / name, window), expected, err_msg=name)


def test_fits_and_npy_read_only_their_window(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("form", ["PNG", "TIFF", "GIF", "BMP", "PPM", "TGA"])
def test_lossless_files(tmp_path: Path, form: str) -> None:
    options = {"compression": "tiff_lzw"} if form == "TIFF" else {}
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
    truncated(tmp_path / "cut.tif", pillow(LABELS, "TIFF"))
    truncated(tmp_path / "cut.bmp", pillow(LABELS, "BMP"))
    truncated(tmp_path / "cut.npy", (tmp_path / "big.npy").read_bytes())
    truncated(tmp_path / "cut.fits", (tmp_path / "small.fits").read_bytes())
    (tmp_path / "flipped.png").write_bytes(ok[:60] + bytes([ok[60] ^ 1]) + ok[61:])
    size = "39x50 .*40x50"
    reasons = {
        "none.png": "No such file",
        "big.npy": "from 300 to 300.*'uint8'.*0 to 255.*int32",
        "float.npy": "float64.*'uint8'.*'float32'",
        "cube.npy": r"shape \(40, 50, 3\)",
        "text.npy": "<U1, expected numbers",
        "objects.npy": "Python objects",
        "small.npy": size,
        "small.png": size,
        "small.fits": "40x49 .*40x50",
        "cube.fits": "2 planes, expected one",
        "blank.fits": "float32.*'uint8'",
        "rgb.png": r"several channels \(mode RGB\)",
        "text.png": "known format",
        "empty.png": "known format",
        "cut.png": "within the PNG chunk",
        "cut.tif": "truncated",
        "cut.bmp": "truncated",
        "cut.npy": "the file ends at",
        "cut.fits": "truncated",
        "flipped.png": "checksum",
        "": "is null for this row",
    }
    for name, reason in reasons.items():
        path = tmp_path / name if name else ""
        with pytest.raises(ValueError, match=reason) as caught:
            read(path)
        assert not name or str(caught.value).startswith(str(path)), caught.value
    with pytest.raises(ValueError, match="it is a directory"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["m.png", "m.tif", "m.bmp", "m.fits", "rice.fits", "m.npy"])
def test_masks_of_another_size_than_the_image(tmp_path: Path, name: str) -> None:
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
        for window in (None, WINDOW):
            with pytest.raises(ValueError, match=f"{path}.*{shape[0]}x{shape[1]} .*40x50"):
                read(path, window)


EXACT = {name: (np.iinfo(name).min, np.iinfo(name).max) for name in ("uint8", "int8", "uint16")}
EXACT |= {name: (np.iinfo(name).min, np.iinfo(name).max) for name in ("int16", "int32", "int64")}
EXACT |= {"float32": (-(2**24), 2**24), "float64": (-(2**53), 2**53)}


@pytest.mark.parametrize("dtype", EXACT)
def test_a_type_takes_all_integers_that_it_holds_and_no_more(tmp_path: Path, dtype: str) -> None:
    for limit, beyond in zip(EXACT[dtype], (-1, 1), strict=True):
        kind = "uint64" if limit > 0 else "int64"
        np.save(tmp_path / "m.npy", np.full(SHAPE, limit, kind))
        assert set(read(tmp_path / "m.npy", dtype=dtype).ravel().tolist()) == {limit}
        if limit > -(2**63):  # NumPy has no integers below
            stored = np.full(SHAPE, limit + beyond, kind)
            np.save(tmp_path / "m.npy", stored)
            with pytest.raises(ValueError, match=rf"{limit + beyond}.*{dtype}"):
                read(tmp_path / "m.npy", dtype=dtype)


def test_values_that_a_float_cannot_hold(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", np.full(SHAPE, 2**24 + 1))
    assert (read(tmp_path / "m.npy", dtype="float64") == 2**24 + 1).all()
    with pytest.raises(ValueError, match=r"16777217.*'float32'"):
        read(tmp_path / "m.npy", dtype="float32")
    np.save(tmp_path / "m.npy", np.full(SHAPE, 1e300))
    with pytest.raises(ValueError, match="up to 1e"):
        read(tmp_path / "m.npy", dtype="float32")
    np.save(tmp_path / "m.npy", np.where(LABELS, np.nan, -np.inf))
    assert np.isnan(read(tmp_path / "m.npy", dtype="float32")).any()


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("dtype", "uint32", "one of"),
        ("outside", -1, "uint8"),
        ("outside", 0.5, "uint8"),
        ("outside", True, "number"),
        ("outside", "0", "number"),
        ("hdu", 1.5, ""),
        ("column", None, "name of a column"),
    ],
)
def test_bad_settings(setting: str, value: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"{setting}.*{words}"):
        Mask(**{"column": "m", setting: value})


def test_the_column_must_hold_text() -> None:
    table = pa.table({"path": ["a"], "number": [1], "mask": ["m"]})
    assert Mask("mask").fitted(table) == Mask("mask")
    with pytest.raises(KeyError, match="'masks'"):
        Mask("masks").fitted(table)
    with pytest.raises(TypeError, match=r"'number'.*paths.*int64"):
        Mask("number").fitted(table)
    table = table.set_column(2, "mask", table["mask"].dictionary_encode())
    with pytest.raises(TypeError, match=r"'mask'.*dictionary<.*text.*cast"):
        Mask("mask").fitted(table)


def test_blank_samples_are_outside() -> None:
    blank = Mask("m", "int16", outside=-9).blank("mask", (3, 4))["mask"]
    assert blank.dtype == np.int16
    assert (blank == np.full((3, 4), -9)).all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "column.*variable"),
        ({"column": "m", "variable": "v"}, "column='m'.*variable='v'"),
        ({"column": 5}, "column must be a name"),
        ({"variable": ["v"]}, "variable must be a name"),
        ({"variable": "v", "hdu": 1}, "hdu=1.*needs its column"),
        ({"column": "m", "part": "a"}, "part='a'.*needs its variable"),
    ],
)
def test_a_mask_is_of_a_column_or_a_variable(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Mask(**settings)
