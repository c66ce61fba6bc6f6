from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits
from astropy.time import Time
from fits_files import plain_hdu
from hypothesis import given, settings
from hypothesis import strategies as st
from image_files import exif, pillow
from PIL import Image

from readers import FitsReader, ReadError, Row
from readers import header_scan as module
from readers.fits.facts import images
from readers.header_scan import image_facts
from readers.index.fact_table import COLUMNS, FactTable, column_name, keys_to_read
from readers.places.opener import LOCAL

PIXELS = np.arange(20, dtype=np.int16).reshape(4, 5)
AIA_KEYS = ("DATE-OBS", "T_OBS", "WAVELNTH", "EXPTIME", "QUALITY")


def fits_facts(*arguments: Any, **options: Any) -> dict[str, Any]:
    """Return the facts of a file with one image."""
    (found,) = images.fits_facts(*arguments, **options)
    return found


def file_facts(*arguments: Any, **options: Any) -> dict[str, Any]:
    (found,) = module.file_facts(*arguments, **options)
    return found


def save(path: Path, *hdus: Any) -> str:
    fits.HDUList([*hdus]).writeto(path, overwrite=True)
    return str(path)


def with_header(path: Path, cards: dict[str, Any]) -> str:
    return save(path, fits.PrimaryHDU(PIXELS, fits.Header(cards)))


class TestRealFiles:
    def test_aia(self, shared_data: Path) -> None:
        assert fits_facts(f"{shared_data}/fits/aia_171_cutout.fits", AIA_KEYS) == {
            "DATE-OBS": "2013-03-10T12:00:11.341",
            "T_OBS": "2013-03-10T12:00:12.341",
            "WAVELNTH": 171,
            "EXPTIME": 1.9996049999999999,
            "QUALITY": 0,
            "hdu": 1,
            "planes": 1,
            "height": 705,
            "width": 769,
            "bitpix": 16,
            "codec": "RICE_1",
        }

    @pytest.mark.parametrize(
        ("name", "hdu", "bitpix", "codec"),
        [
            ("m13", 0, 16, ""),
            ("m13_rice", 1, 16, "RICE_1"),
            ("m13_gzip", 1, 16, "GZIP_1"),
            ("m13_hcomp", 1, 16, "HCOMPRESS_1"),
            ("m13_plio", 1, 16, "PLIO_1"),
            ("hmi_sharp_br", 1, 32, "RICE_1"),
            ("compressed_with_nan", 1, -64, "RICE_1"),
        ],
    )
    def test_codecs(self, shared_data: Path, name: str, hdu: int, bitpix: int, codec: str) -> None:
        facts = fits_facts(f"{shared_data}/fits/{name}.fits")
        assert (facts["hdu"], facts["bitpix"], facts["codec"]) == (hdu, bitpix, codec)

    def test_the_reader_agrees(self, shared_data: Path) -> None:
        for path in map(str, shared_data.glob("fits/*")):
            facts = fits_facts(path)
            peek = FitsReader().peek(Row(0, path), None)
            assert (facts["height"], facts["width"]) == (peek.height, peek.width)
            assert facts["bitpix"] == fits.getheader(path, facts["hdu"])["BITPIX"]

    def test_inherited_from_the_primary_header(self, shared_data: Path) -> None:
        path = f"{shared_data}/fits/decam_dither1.fits.fz"
        assert "EXPTIME" not in fits.getheader(path, 1)
        assert fits_facts(path, ["EXPTIME"])["EXPTIME"] == 45.0

    def test_photograph(self, shared_data: Path) -> None:
        path = next(shared_data.glob("jpeg/*/swan-*.jpg"))
        assert image_facts(str(path)) == {"height": 408, "width": 640, "format": "JPEG"}


class TestKeys:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (171, 171),
            (-2147483648, -2147483648),
            (2.5, 2.5),
            (True, True),
            ("AIA_3  ", "AIA_3"),
            ("2013-03-10T12:00:11.34Z", "2013-03-10T12:00:11.34Z"),
            ("nan", "nan"),
            ("  NaN ", "  NaN"),
            ("", None),
            ("  ", None),
            pytest.param(fits.card.Undefined(), None, id="undefined"),
            (1 + 2j, "(1+2j)"),
        ],
        ids=repr,
    )
    def test_value(self, tmp_path: Path, value: Any, expected: Any) -> None:
        found = fits_facts(with_header(tmp_path / "a.fits", {"KEY": value}), ["KEY"])["KEY"]
        assert found == expected
        assert type(found) is type(expected)

    def test_missing(self, tmp_path: Path) -> None:
        assert fits_facts(with_header(tmp_path / "a.fits", {}), ["EXPTIME"])["EXPTIME"] is None

    def test_any_case_and_name_as_given(self, tmp_path: Path) -> None:
        path = with_header(tmp_path / "a.fits", {"EXPTIME": 2.0})
        assert fits_facts(path, ["exptime"])["exptime"] == 2.0

    def test_nan_without_quotes_cannot_be_parsed(self, tmp_path: Path) -> None:
        path = tmp_path / "a.fits"
        path.write_bytes(plain_hdu(PIXELS, {"EXPTIME": float("nan"), "WAVELNTH": 171}))
        assert b"EXPTIME =                  NAN" in path.read_bytes()
        facts = fits_facts(str(path), ["EXPTIME", "WAVELNTH"])
        assert (facts["EXPTIME"], facts["WAVELNTH"]) == (None, 171)

    def test_history_is_text(self, tmp_path: Path) -> None:
        header = fits.Header()
        header.add_history("one")
        header.add_history("two")
        path = save(tmp_path / "a.fits", fits.PrimaryHDU(PIXELS, header))
        facts = fits_facts(path, ["HISTORY"])
        assert facts["HISTORY"] == "one\ntwo"
        assert pickle.loads(pickle.dumps(facts)) == facts

    @pytest.mark.parametrize(("inherit", "expected"), [(True, 45.0), (False, None), (None, None)])
    def test_inherit(self, tmp_path: Path, inherit: bool | None, expected: float | None) -> None:
        primary = fits.PrimaryHDU(header=fits.Header({"EXPTIME": 45.0, "GAIN": 1.0}))
        own = {"GAIN": 3.0} | ({} if inherit is None else {"INHERIT": inherit})
        path = save(tmp_path / "a.fits", primary, fits.ImageHDU(PIXELS, fits.Header(own)))
        facts = fits_facts(path, ["EXPTIME", "GAIN"])
        assert (facts["EXPTIME"], facts["GAIN"]) == (expected, 3.0)

    @pytest.mark.parametrize(("inherit", "card"), [(True, {}), (False, {"INHERIT": True})])
    def test_a_time_has_the_scale_of_its_header(
        self, tmp_path: Path, inherit: bool, card: dict[str, bool]
    ) -> None:
        primary = fits.Header({"DATE-OBS": "2020-01-01T00:00:00", "TIMESYS": "UTC"})
        own = {"T_OBS": "2020-01-01T00:00:37", "TIMESYS": "TAI", "EXTNAME": "A", **card}
        heir = {"T_OBS": "2020-01-01", "EXTNAME": "B", **card}
        hdus = [fits.ImageHDU(PIXELS, fits.Header(one)) for one in (own, heir)]
        path = save(tmp_path / "a.fits", fits.PrimaryHDU(header=primary), *hdus)
        keys = keys_to_read(["DATE-OBS", "T_OBS"])
        scales = [
            [facts[key] for key in keys[2:]]
            for facts in images.fits_facts(path, keys, "all", inherit=inherit)
        ]
        assert scales == [["UTC", "TAI"], ["UTC", "UTC"]]

    @pytest.mark.parametrize("key", ["BZERO", "naxis2", "SIMPLE", "EXTNAME"])
    def test_keys_of_the_primary_data_are_not_inherited(self, tmp_path: Path, key: str) -> None:
        primary = fits.PrimaryHDU(PIXELS.astype(np.uint16), fits.Header({"EXTNAME": "FIRST"}))
        assert key in primary.header
        image = fits.ImageHDU(np.zeros(8, np.float32), fits.Header({"INHERIT": True}))
        path = save(tmp_path / "a.fits", primary, image)
        assert fits_facts(path, [key], 1)[key] is None
        del image.header["INHERIT"]
        path = save(tmp_path / "b.fits", primary, image)
        assert fits_facts(path, [key], 1, inherit=True)[key] is None

    @pytest.mark.parametrize("odd", [{}, {"HIERARCH LONGNAME9": 1}])
    @pytest.mark.parametrize("pixels", [PIXELS, None])
    def test_keys_of_an_array_are_inherited_where_there_is_none(
        self, tmp_path: Path, pixels: Any, odd: dict[str, Any]
    ) -> None:
        array = {"BUNIT": "adu", "DATAMAX": 9.0, "CRVAL1": 5.0, "CTYPE2A": "x", "CD1_2": 0.5}
        array |= {"A_0_2": 1e-6, "WCSAXES": 2, "CROTA2": 3.0}
        shared = {"EQUINOX": 2000.0, "CRVAL": "c", "GAIN": 2.0}
        primary = fits.PrimaryHDU(pixels, fits.Header(array | shared | odd))
        image = fits.ImageHDU(PIXELS, fits.Header({"INHERIT": True, "DATAMIN": 1.0}))
        path = save(tmp_path / "a.fits", primary, image)
        found = fits_facts(path, [*array, *shared, "DATAMIN"], 1)
        expected = array if pixels is None else dict.fromkeys(array)
        assert {key: found[key] for key in array} == expected
        assert {key: found[key] for key in shared} == shared
        assert found["DATAMIN"] == 1.0

    @pytest.mark.parametrize("card", [{}, {"INHERIT": False}])
    @pytest.mark.parametrize("kind", [fits.ImageHDU, fits.CompImageHDU])
    def test_keys_that_an_extension_lacks(
        self, tmp_path: Path, kind: Any, card: dict[str, bool]
    ) -> None:
        primary = fits.Header({"EXPTIME": 45.0, "GAIN": 1.0, "DATE-OBS": "2013-03-10T12:00:11.34"})
        image = kind(PIXELS, fits.Header({"GAIN": 3.0, "EMPTY": None, **card}))
        path = save(tmp_path / "a.fits", fits.PrimaryHDU(header=primary), image)
        keys = ["EXPTIME", "GAIN", "date-obs", "EMPTY", "MISSING", "BITPIX"]
        first, own = fits.getheader(path, 0), fits.getheader(path, 1)
        expected = [own.get(key, first.get(key)) for key in keys]
        found = fits_facts(path, keys, inherit=True)
        assert [found[key] for key in keys] == [
            None if isinstance(value, fits.card.Undefined) else value for value in expected
        ]
        assert (found["EXPTIME"], found["GAIN"]) == (45.0, 3.0)
        assert file_facts(path, ["EXPTIME"], inherit=True)["EXPTIME"] == 45.0
        assert file_facts(path, ["EXPTIME"])["EXPTIME"] is None


class TestWhichImage:
    def test_first_with_an_image(self, tmp_path: Path) -> None:
        table = fits.BinTableHDU.from_columns([fits.Column("x", "J", array=[1])])
        path = save(tmp_path / "a.fits", fits.PrimaryHDU(), table, fits.ImageHDU(PIXELS))
        assert fits_facts(path)["hdu"] == 2

    def test_named(self, tmp_path: Path) -> None:
        hdus = fits.PrimaryHDU(PIXELS), fits.ImageHDU(PIXELS[:3, :2].astype(np.float32))
        path = save(tmp_path / "a.fits", *hdus)
        assert fits_facts(path, hdu=1) == {
            "hdu": 1,
            "planes": 1,
            "height": 3,
            "width": 2,
            "bitpix": -32,
            "codec": "",
        }

    def test_gzipped_file(self, tmp_path: Path) -> None:
        path = save(tmp_path / "a.fits.gz", fits.PrimaryHDU(PIXELS))
        assert fits_facts(path)["codec"] == ""

    def test_old_spelling_of_rice(self, tmp_path: Path) -> None:
        path = tmp_path / "a.fits"
        save(path, fits.PrimaryHDU(), fits.CompImageHDU(PIXELS))
        path.write_bytes(path.read_bytes().replace(b"'RICE_1  '", b"'RICE_ONE'"))
        assert fits_facts(str(path))["codec"] == "RICE_1"


class TestRefused:
    @pytest.mark.parametrize(
        ("hdus", "hdu", "reason"),
        [
            ([fits.PrimaryHDU()], None, "no HDU holds an image"),
            ([fits.PrimaryHDU(PIXELS)], 3, "there is no HDU 3, the file has 1"),
            ([fits.PrimaryHDU(), fits.ImageHDU(PIXELS)], 0, "HDU 0 holds no image"),
            ([fits.PrimaryHDU(PIXELS)], "SCI", "there is no HDU 'SCI', the file has PRIMARY"),
        ],
        ids=["none", "number", "empty", "name"],
    )
    def test_no_such_image(
        self, tmp_path: Path, hdus: list[Any], hdu: int | str | None, reason: str
    ) -> None:
        path = save(tmp_path / "a.fits", *hdus)
        with pytest.raises(ReadError, match=reason) as caught:
            fits_facts(path, hdu=hdu)
        assert caught.value.path == path

    @pytest.mark.parametrize("compressed", [False, True])
    def test_truncated(self, tmp_path: Path, compressed: bool) -> None:
        noise = np.random.default_rng(1).integers(0, 1000, (100, 100), np.int16)
        hdu = fits.CompImageHDU(noise) if compressed else fits.ImageHDU(noise)
        path = save(tmp_path / "a.fits", fits.PrimaryHDU(), hdu)
        whole = (tmp_path / "a.fits").read_bytes()
        (tmp_path / "a.fits").write_bytes(whole[:-2880])
        with pytest.raises(ReadError, match="File may have been truncated"):
            fits_facts(path)

    @pytest.mark.parametrize("content", [b"", b"no FITS file", b"SIMPLE  =", b"\x1f\x8bxx"])
    def test_something_else(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "a.fits"
        path.write_bytes(content)
        with pytest.raises(ReadError) as caught:
            fits_facts(str(path))
        assert caught.value.reason
        assert caught.value.row is None

    def test_no_file(self, tmp_path: Path) -> None:
        for facts in fits_facts, image_facts, file_facts:
            with pytest.raises(ReadError, match="No such file"):
                facts(str(tmp_path / "gone.fits"))


def jpeg(size: tuple[int, int] = (6, 4), orientation: int = 1, kind: str = "JPEG") -> bytes:
    return pillow(Image.new("RGB", size, (9, 8, 7)), kind, exif=exif(orientation))


class TestImages:
    @pytest.mark.parametrize(("orientation", "size"), [(1, (4, 6)), (3, (4, 6)), (6, (6, 4))])
    def test_size_as_displayed(
        self, tmp_path: Path, orientation: int, size: tuple[int, int]
    ) -> None:
        path = tmp_path / "a.jpg"
        path.write_bytes(jpeg(orientation=orientation))
        facts = image_facts(str(path))
        assert (facts["height"], facts["width"]) == size

    def test_png_whatever_the_suffix_says(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jpg"
        path.write_bytes(jpeg(kind="PNG"))
        assert image_facts(str(path))["format"] == "PNG"

    def test_refused_without_a_row(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jpg"
        path.write_bytes(jpeg((200, 200))[:-600])
        with pytest.raises(ReadError) as caught:
            image_facts(str(path))
        assert caught.value.row is None
        assert str(caught.value).startswith(f"{path}: ")


class TestFileFacts:
    def test_fits(self, tmp_path: Path) -> None:
        path = with_header(tmp_path / "noise.dat", {"EXPTIME": 2.0})
        assert file_facts(path, ["EXPTIME"]) == {
            "path": path,
            "hdu": 0,
            "planes": 1,
            "plane": None,
            "height": 4,
            "width": 5,
            "bitpix": 16,
            "codec": "",
            "file_bytes": 5760,
            "EXPTIME": 2.0,
        }

    def test_jpeg(self, tmp_path: Path) -> None:
        path = tmp_path / "a.JPEG"
        path.write_bytes(jpeg())
        assert file_facts(str(path), ["EXPTIME"], hdu=1) == {
            "path": str(path),
            "hdu": None,
            "planes": None,
            "plane": None,
            "height": 4,
            "width": 6,
            "bitpix": None,
            "codec": "JPEG",
            "file_bytes": len(jpeg()),
            "EXPTIME": None,
        }


class TestHdusAndPlanes:
    @pytest.fixture(params=["a.fits", "a.fits.gz"])
    def path(self, tmp_path: Path, request: pytest.FixtureRequest) -> str:
        """A primary header, images that inherit it or not, a table, an empty image and a cube."""
        table = fits.BinTableHDU.from_columns([fits.Column("x", "J", array=[1])])
        heirs = [fits.Header({"INHERIT": inherit, "GAIN": 3.0}) for inherit in (True, False)]
        cube = fits.CompImageHDU(np.zeros((3, 4, 5), np.int16), name="CUBE")
        hdus = [
            fits.PrimaryHDU(header=fits.Header({"EXPTIME": 45.0, "GAIN": 1.0})),
            fits.ImageHDU(PIXELS, heirs[0], name="SCI", ver=1),
            table,
            fits.ImageHDU(PIXELS[:2], heirs[1], name="SCI", ver=2),
            fits.ImageHDU(np.zeros((0, 3))),
            cube,
        ]
        return save(tmp_path / request.param, *hdus)

    def test_all_hdus(self, path: str) -> None:
        found = images.fits_facts(path, ["EXPTIME", "GAIN", "EXTNAME"], "all")
        names = ("hdu", "planes", "height", "EXPTIME", "GAIN", "EXTNAME")
        assert [tuple(facts[name] for name in names) for facts in found] == [
            (1, 1, 4, 45.0, 3.0, "SCI"),
            (3, 1, 2, None, 3.0, "SCI"),
            (5, 3, 4, None, None, "CUBE"),
        ]
        for facts in found:
            hdu = facts["hdu"]
            assert isinstance(hdu, int)
            peek = FitsReader(planes=0).peek(Row(0, path, hdu), None)
            assert (peek.height, peek.width) == (facts["height"], facts["width"])

    @pytest.mark.parametrize(
        ("hdu", "number"), [("sci ", 1), (("SCI", 2), 3), ("CUBE", 5), (None, 1), (3, 3)]
    )
    def test_an_hdu_by_its_name(self, path: str, hdu: Any, number: int) -> None:
        assert fits_facts(path, hdu=hdu)["hdu"] == number
        with fits.open(path) as hdus:
            assert hdu is None or hdus.index_of(hdu) == number

    @pytest.mark.parametrize("hdu", ["DQ", ("SCI", 3)])
    def test_no_such_name(self, path: str, hdu: str | tuple[str, int]) -> None:
        with pytest.raises(ReadError, match=r"there is no HDU .*, the file has PRIMARY, SCI, "):
            fits_facts(path, hdu=hdu)

    def test_a_row_for_each_plane(self, path: str) -> None:
        found = module.file_facts(path, hdu="CUBE", planes="all")
        assert [facts["plane"] for facts in found] == [0, 1, 2]
        found = module.file_facts(path, hdu="CUBE", planes=(2, 0))
        assert [facts["plane"] for facts in found] == [2, 0]
        with pytest.raises(ReadError, match=r"\[1\]: there is no plane 1, the image has 1"):
            module.file_facts(path, hdu="all", planes=(0, 1))


BASE = dict.fromkeys(COLUMNS) | {"path": "/a.fits"}


def column(key: str, values: list[Any]) -> tuple[pa.ChunkedArray, FactTable]:
    facts = FactTable([key])
    for value in values:
        facts.add({**dict.fromkeys(keys_to_read([key])), **BASE, key: value})
    found = facts.table()[column_name(key)]
    return found, facts


def times(
    texts: list[Any], scales: list[Any], key: str = "DATE-OBS"
) -> tuple[pa.ChunkedArray, FactTable]:
    """Return the column of a keyword of times, beside TIMESYS."""
    facts = FactTable([key])
    for text, scale in zip(texts, scales, strict=True):
        facts.add({**BASE, key: text, f"TIMESYS:{key}": scale})
    return facts.table()[column_name(key)], facts


class TestTable:
    def test_types_of_the_fixed_columns(self) -> None:
        for rows in 0, 2:
            facts = FactTable([])
            for _ in range(rows):
                facts.add(BASE)
            table = facts.table()
            assert table.num_rows == rows
            expected = {name: kind for name, kind in COLUMNS.items() if name != "plane"}
            assert {name: str(table[name].type) for name in expected} == expected
            assert "plane" not in table.column_names

    # A batch has 8192 rows: values far apart meet only when the batches are joined.
    @pytest.mark.parametrize("apart", [0, 9000], ids=["one batch", "two batches"])
    @pytest.mark.parametrize(
        ("values", "expected", "kind"),
        [
            ([1, 2], [1, 2], pa.int64()),
            ([1, 2.5], [1.0, 2.5], pa.float64()),
            ([1, "a"], ["1", "a"], pa.string()),
            ([2.0, "a"], ["2.0", "a"], pa.string()),
            ([True, False], [True, False], pa.bool_()),
            ([True, 2], [1.0, 2.0], pa.float64()),
            ([1 << 70, 1], [float(1 << 70), 1.0], pa.float64()),
            ([(1 << 70) + 1, 1], [str((1 << 70) + 1), "1"], pa.string()),
            ([(1 << 53) + 1, 0.5], [str((1 << 53) + 1), "0.5"], pa.string()),
            (["NaN", 171], [None, 171], pa.int64()),
            ([0.5, "nan"], [0.5, None], pa.float64()),
            (["NaN", "NaN"], ["NaN", "NaN"], pa.string()),
            (["NaN", "x"], ["NaN", "x"], pa.string()),
            ([" 7", 7], [" 7", "7"], pa.string()),
            ([None, None], [None, None], pa.null()),
        ],
        ids=repr,
    )
    def test_types_are_promoted(
        self, apart: int, values: list[Any], expected: list[Any], kind: Any
    ) -> None:
        found, _ = column("KEY", [values[0], *[None] * apart, values[1]])
        assert found.type == kind
        assert [found[0].as_py(), found[-1].as_py()] == expected
        assert len(found) == apart + 2

    @settings(max_examples=60)
    @given(
        st.lists(
            st.sampled_from(
                [
                    None,
                    True,
                    False,
                    0,
                    1,
                    2**53 + 1,
                    -(2**63),
                    2**63,
                    10**30,
                    0.5,
                    1.0,
                    1e300,
                    "nan",
                    "x",
                ]
            ),
            max_size=8,
        ),
        st.integers(1, 4),
    )
    def test_batches_change_nothing(self, values: list[Any], batch_rows: int) -> None:
        """Text is that of each value, and floats equal the integers, wherever batches end."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("readers.index.fact_table._BATCH_ROWS", batch_rows)
            found = column("KEY", values)[0].to_pylist()
        known = [value for value in values if value is not None]
        if "x" not in known and {*known} > {"nan"}:  # a missing number
            values = [None if value == "nan" else value for value in values]
            known = [value for value in values if value is not None]
        convert: Any = known and type(known[0])
        if any(isinstance(value, str) for value in known):
            convert = str
        elif len({*map(type, known)}) > 1 or any(type(v) is int and v >= 2**63 for v in known):
            exact = all(float(value) == value for value in known if type(value) is int)
            convert = float if exact else str
        assert found == [None if value is None else convert(value) for value in values]
        assert {*map(type, found)} <= {type(convert(value)) for value in known} | {type(None)}

    def test_quality_is_unsigned(self) -> None:
        found, _ = column("QUALITY", [0, 5, -1, -2147483648, 1 << 31, None])
        assert found.type == pa.int64()
        assert found.to_pylist() == [0, 5, 0xFFFFFFFF, 0x80000000, 0x80000000, None]

    @pytest.mark.parametrize(
        ("values", "kind"),
        [
            ([0, 1.0], pa.int64()),
            ([0.5], pa.float64()),
            (["good"], pa.string()),
            ([None], pa.int64()),
        ],
    )
    def test_quality_of_other_kinds(self, values: list[Any], kind: Any) -> None:
        assert column("QUALITY", values)[0].type == kind

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("2013-03-10T12:00:11.341", "2013-03-10T12:00:11.341"),
            ("2013-03-10T12:00:11.34Z", "2013-03-10T12:00:11.34"),
            ("2015-01-01T00:00:00.00_TAI", "2014-12-31T23:59:25"),
            ("2015-01-01_TAI", "2014-12-31T23:59:25"),
            ("2013-03-10 12:00:11", "2013-03-10T12:00:11"),
            ("2013-03-10T12:00", "2013-03-10T12:00"),
            ("2013-03-10", "2013-03-10"),
            ("2017-11-13T06:03:40.123456789", "2017-11-13T06:03:40.123456789"),
            ("2017-11-13T06:03:40.1234567891", "2017-11-13T06:03:40.123456789"),
            (None, None),
        ],
    )
    def test_times(self, text: str | None, expected: str | None) -> None:
        found, facts = column("DATE-OBS", [text])
        assert found.type == pa.timestamp("ns")
        nanoseconds = None if expected is None else np.datetime64(expected, "ns").astype(int)
        assert found.cast(pa.int64()).to_pylist() == [nanoseconds]
        assert not facts.not_times

    @pytest.mark.parametrize(
        "text",
        [
            "2011.02.15_01:59:54_TAI",
            "2011.02.15_01:59:54.123456_TAI",
            "2015.06.30_12:00_TAI",
            "2015.07.01_00:00:34.999_TAI",
            "2015.07.01_00:00:36_TAI",
            "2026.11.21_00:00:00_TAI",
            "1972.01.01_00:00:10_TAI",
        ],
    )
    def test_times_of_hmi_become_utc(self, text: str) -> None:
        iso = text.removesuffix("_TAI").replace(".", "-", 2).replace("_", "T")
        expected = Time(iso, scale="tai").utc.to_value("isot", subfmt="date_hms")
        found, facts = column("T_OBS", [text])
        milliseconds = found.cast(pa.int64()).to_numpy() // 10**6
        assert milliseconds[0] == np.datetime64(expected, "ms").astype(np.int64)
        assert not facts.not_times

    def test_within_a_leap_second(self) -> None:
        """UTC has 23:59:60 there; like POSIX, NumPy has the second after it twice."""
        found, facts = column(
            "T_OBS",
            ["2015.07.01_00:00:35.5_TAI", "2015-06-30T23:59:60.5", "2015-06-30 23:59:60.5Z"],
        )
        assert set(found.to_numpy()) == {np.datetime64("2015-07-01T00:00:00.5", "ns")}
        assert not facts.not_times

    @pytest.mark.parametrize("scale", ["UTC", "TAI", "TT", "TDT", "ET", "IAT", "GMT", "tt(TAI) "])
    @pytest.mark.parametrize(
        "text",
        ["2024-05-10T23:50:00.25", "2016-12-31T23:59:59", "2017-01-01T00:00:38", "1985-07-01"],
    )
    def test_times_of_a_time_scale_become_utc(self, text: str, scale: str) -> None:
        named = scale.partition("(")[0].upper()
        known = {"TDT": "tt", "ET": "tt", "IAT": "tai", "GMT": "utc"}.get(named, named.lower())
        expected = Time(text, scale=known, precision=9).utc.isot
        found, facts = times([text], [scale])
        assert found.to_numpy()[0] == np.datetime64(expected, "ns")
        assert not facts.not_times

    def test_tdb_and_gps(self) -> None:
        """GPS is 19 s behind TAI; TDB is compared with astropy, to 2 ms."""
        text = "2024-05-10T23:50:37"
        found, _ = times([text, text, text], ["GPS", "TAI", "TDB"])
        gps, tai, tdb = found.to_numpy()
        assert gps - tai == np.timedelta64(19, "s")
        away = tdb - np.datetime64(Time(text, scale="tdb", precision=9).utc.isot)
        assert np.abs(away) < np.timedelta64(2, "ms")

    def test_timesys_is_read_for_times_and_no_column_of_its_own(self) -> None:
        assert keys_to_read(["WAVELNTH"]) == ("WAVELNTH",)
        assert keys_to_read(["DATE", "T_OBS"]) == ("DATE", "T_OBS", "TIMESYS:T_OBS")
        assert "timesys" not in column("DATE-OBS", [None])[1].table().column_names

    def test_each_row_has_its_time_scale(self) -> None:
        text = "2024-05-10T23:50:37"
        found, facts = times(
            [text, text, text, f"{text}Z", "2024.05.10_23:50:37_TAI", None, text],
            ["TAI", None, "UTC", "TAI", "UTC", "UT1", "UT1"],
        )
        seconds = (found.to_numpy() - np.datetime64(text)) / np.timedelta64(1, "s")
        np.testing.assert_equal(seconds, [-37, 0, 0, 0, -37, np.nan, np.nan])
        assert facts.not_times == {"date_obs": (1, f"{text} (TIMESYS UT1)")}

    def test_the_date_of_a_file_is_in_utc(self) -> None:
        found, _ = times(["2024-05-10"], ["TAI"], "DATE")
        assert found.to_numpy()[0] == np.datetime64("2024-05-10", "ns")

    @pytest.mark.parametrize(
        ("text", "scale"),
        [("2024-05-10", "LOCAL"), ("1971-12-31", "TAI"), ("now", "TT"), ("2024-05-10", 5)],
    )
    def test_time_scales_that_are_not_converted(self, text: str, scale: Any) -> None:
        found, facts = times([text], [scale])
        assert found.null_count == 1
        assert facts.not_times == {"date_obs": (1, f"{text} (TIMESYS {scale})")}

    @pytest.mark.parametrize(
        "text",
        [
            "2011.02.30_02:00:00_TAI",
            "1971.12.31_02:00:00_TAI",
            "2011.02.15_02:00:00_UT",
            "2011.02.15_02:00:00_TAI_",
            "10/03/13",
            "2013-02-30",
            "2015-12-31T23:59:60",
            "2016-12-31T22:59:60",
            "2016-12-31T23:59:61",
            "2015-06-30T23:59:60.5_TAI",
            "1500-01-01",
            "3000-01-01",
            "now",
            "NaT",
            "2013",
            "2013-03-10T12:00:11+01:00",
        ],
    )
    def test_what_is_no_time_is_counted(self, text: str) -> None:
        found, facts = column("T_REC", ["2013-03-10", text, None, text])
        assert [value is None for value in found.to_pylist()] == [False, True, True, True]
        assert facts.not_times == {"t_rec": (2, text)}

    def test_only_keys_that_name_a_time_and_hold_text(self) -> None:
        for key in "DATE", "DATE-END", "DATE__OBS", "T_OBS", "T_STOP":
            assert column(key, ["2013-03-10"])[0].type == pa.timestamp("ns")
            assert column(key, [None])[0].type == pa.timestamp("ns")
            assert column(key, [56000.5])[0].type == pa.float64()
        for key in "TIME-OBS", "T_REC_unit", "MDATE":
            assert column(key, ["2013-03-10"])[0].type == pa.string()

    def test_names(self) -> None:
        assert [column_name(key) for key in ("DATE-OBS", "T_OBS", "ESO DET ID")] == [
            "date_obs",
            "t_obs",
            "eso_det_id",
        ]


@pytest.mark.parametrize("kind", ["fits", "jpeg"])
def test_members_of_containers(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{kind}"
    if kind == "fits":
        with_header(path, {"EXPTIME": 2.5})
    else:
        path.write_bytes(pillow(np.zeros((4, 5, 3), np.uint8)))
    (tmp_path / "a.tar").write_bytes(b"before" + path.read_bytes() + b"after")
    member = LOCAL.at(str(tmp_path / "a.tar"), 6, path.stat().st_size)
    found = file_facts(member, ["EXPTIME"])
    assert found.pop("path") == member.name
    expected = file_facts(str(path), ["EXPTIME"])
    assert found == {name: fact for name, fact in expected.items() if name != "path"}
    (tmp_path / "a.tar").write_bytes(b"")
    with pytest.raises(ReadError, match="the file ends at"):
        file_facts(member)
