"""Facts of images from their headers: keywords as astropy has them, sizes as Readers see them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from fits_files import plain_hdu
from image_files import exif, pillow
from PIL import Image

from readers import FitsReader, ReadError, Row
from readers import header_scan as module
from readers.fits import metadata
from readers.header_scan import image_facts
from readers.index.fact_table import keys_to_read
from readers.places.opener import LOCAL

PIXELS = np.arange(20, dtype=np.int16).reshape(4, 5)


def image_metadata(*arguments: Any, **options: Any) -> dict[str, Any]:
    """Return the facts of a file with one image."""
    (found,) = metadata.image_metadata(*arguments, **options)
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
        words: dict[str, Any] = {"WAVELNTH": 171, "EXPTIME": 1.9996049999999999, "QUALITY": 0}
        words |= {"DATE-OBS": "2013-03-10T12:00:11.341", "T_OBS": "2013-03-10T12:00:12.341"}
        image = {"hdu": 1, "planes": 1, "height": 705, "width": 769, "bitpix": 16}
        found = image_metadata(f"{shared_data}/fits/aia_171_cutout.fits", tuple(words))
        assert found == {**words, **image, "codec": "RICE_1"}

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
        facts = image_metadata(f"{shared_data}/fits/{name}.fits")
        assert (facts["hdu"], facts["bitpix"], facts["codec"]) == (hdu, bitpix, codec)

    def test_the_reader_agrees(self, shared_data: Path) -> None:
        for path in map(str, shared_data.glob("fits/*")):
            facts = image_metadata(path)
            peek = FitsReader().peek(Row(0, path), None)
            assert (facts["height"], facts["width"]) == (peek.height, peek.width)
            assert facts["bitpix"] == fits.getheader(path, facts["hdu"])["BITPIX"]

    def test_inherited_from_the_primary_header(self, shared_data: Path) -> None:
        path = f"{shared_data}/fits/decam_dither1.fits.fz"
        assert "EXPTIME" not in fits.getheader(path, 1)
        assert image_metadata(path, ["EXPTIME"])["EXPTIME"] == 45.0

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
        path = with_header(tmp_path / "a.fits", {"KEY": value})
        found = image_metadata(path, ["key", "MISSING"])
        assert (found["key"], type(found["key"])) == (expected, type(expected))
        assert found["MISSING"] is None

    def test_nan_without_quotes_cannot_be_parsed(self, tmp_path: Path) -> None:
        path = tmp_path / "a.fits"
        path.write_bytes(plain_hdu(PIXELS, {"EXPTIME": float("nan"), "WAVELNTH": 171}))
        assert b"EXPTIME =                  NAN" in path.read_bytes()
        facts = image_metadata(str(path), ["EXPTIME", "WAVELNTH"])
        assert (facts["EXPTIME"], facts["WAVELNTH"]) == (None, 171)

    def test_history_is_text(self, tmp_path: Path) -> None:
        path = save(tmp_path / "a.fits", fits.PrimaryHDU(PIXELS))
        for text in ("one", "two"):
            with fits.open(path, "update") as hdus:
                hdus[0].header.add_history(text)
        facts = image_metadata(path, ["HISTORY"])
        assert facts["HISTORY"] == "one\ntwo"
        assert pickle.loads(pickle.dumps(facts)) == facts

    @pytest.mark.parametrize(("inherit", "expected"), [(True, 45.0), (False, None), (None, None)])
    def test_inherit(self, tmp_path: Path, inherit: bool | None, expected: float | None) -> None:
        primary = fits.PrimaryHDU(header=fits.Header({"EXPTIME": 45.0, "GAIN": 1.0}))
        own = {"GAIN": 3.0} | ({} if inherit is None else {"INHERIT": inherit})
        path = save(tmp_path / "a.fits", primary, fits.ImageHDU(PIXELS, fits.Header(own)))
        facts = image_metadata(path, ["EXPTIME", "GAIN"])
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
        found = metadata.image_metadata(path, keys, "all", inherit=inherit)
        scales = [[facts[key] for key in keys[2:]] for facts in found]
        assert scales == [["UTC", "TAI"], ["UTC", "UTC"]]

    @pytest.mark.parametrize("key", ["BZERO", "naxis2", "SIMPLE", "EXTNAME"])
    def test_keys_of_the_primary_data_are_not_inherited(self, tmp_path: Path, key: str) -> None:
        primary = fits.PrimaryHDU(PIXELS.astype(np.uint16), fits.Header({"EXTNAME": "FIRST"}))
        assert key in primary.header
        image = fits.ImageHDU(np.zeros(8, np.float32), fits.Header({"INHERIT": True}))
        path = save(tmp_path / "a.fits", primary, image)
        assert image_metadata(path, [key], 1)[key] is None
        del image.header["INHERIT"]
        path = save(tmp_path / "b.fits", primary, image)
        assert image_metadata(path, [key], 1, inherit=True)[key] is None

    @pytest.mark.parametrize(
        ("pixels", "odd"),
        [(PIXELS, {}), (None, {"HIERARCH LONGNAME9": 1}), (PIXELS, {"HIERARCH LONGNAME9": 1})],
    )
    def test_keys_of_an_array_are_inherited_where_there_is_none(
        self, tmp_path: Path, pixels: Any, odd: dict[str, Any]
    ) -> None:
        array = {"BUNIT": "adu", "DATAMAX": 9.0, "CRVAL1": 5.0, "CTYPE2A": "x", "CD1_2": 0.5}
        array |= {"A_0_2": 1e-6, "WCSAXES": 2, "CROTA2": 3.0}
        shared = {"EQUINOX": 2000.0, "CRVAL": "c", "GAIN": 2.0}
        primary = fits.PrimaryHDU(pixels, fits.Header(array | shared | odd))
        image = fits.ImageHDU(PIXELS, fits.Header({"INHERIT": True, "DATAMIN": 1.0}))
        path = save(tmp_path / "a.fits", primary, image)
        found = image_metadata(path, [*array, *shared, "DATAMIN"], 1)
        expected = array if pixels is None else dict.fromkeys(array)
        assert {key: found[key] for key in array} == expected
        assert {key: found[key] for key in shared} == shared
        assert found["DATAMIN"] == 1.0

    @pytest.mark.parametrize(
        ("kind", "card"), [(fits.ImageHDU, {}), (fits.CompImageHDU, {"INHERIT": False})]
    )
    def test_keys_that_an_extension_lacks(
        self, tmp_path: Path, kind: Any, card: dict[str, bool]
    ) -> None:
        primary = fits.Header({"EXPTIME": 45.0, "GAIN": 1.0, "DATE-OBS": "2013-03-10T12:00:11.34"})
        image = kind(PIXELS, fits.Header({"GAIN": 3.0, "EMPTY": None, **card}))
        path = save(tmp_path / "a.fits", fits.PrimaryHDU(header=primary), image)
        keys = ["EXPTIME", "GAIN", "date-obs", "EMPTY", "MISSING", "BITPIX"]
        first, own = fits.getheader(path, 0), fits.getheader(path, 1)
        expected = [own.get(key, first.get(key)) for key in keys]
        found = image_metadata(path, keys, inherit=True)
        assert [found[key] for key in keys] == [
            None if isinstance(value, fits.card.Undefined) else value for value in expected
        ]
        assert (found["EXPTIME"], found["GAIN"]) == (45.0, 3.0)
        assert file_facts(path, ["EXPTIME"], inherit=True)["EXPTIME"] == 45.0
        assert file_facts(path, ["EXPTIME"])["EXPTIME"] is None


class TestFileFacts:
    def test_fits(self, tmp_path: Path) -> None:
        path = with_header(tmp_path / "noise.dat", {"EXPTIME": 2.0})
        image = {"hdu": 0, "planes": 1, "plane": None, "height": 4, "width": 5, "bitpix": 16}
        file = {"path": path, "codec": "", "file_bytes": 5760, "EXPTIME": 2.0}
        assert file_facts(path, ["EXPTIME"]) == {**image, **file}

    def test_jpeg(self, tmp_path: Path) -> None:
        path = tmp_path / "a.JPEG"
        path.write_bytes(jpeg())
        nothing = dict.fromkeys(("hdu", "planes", "plane", "bitpix", "EXPTIME"))
        file = {"path": str(path), "codec": "JPEG", "file_bytes": len(jpeg())}
        expected = {**nothing, **file, "height": 4, "width": 6}
        assert file_facts(str(path), ["EXPTIME"], hdu=1) == expected

    def test_another_hdu(self, tmp_path: Path) -> None:
        hdus = fits.PrimaryHDU(PIXELS), fits.ImageHDU(PIXELS[:3, :2].astype(np.float32))
        found = image_metadata(save(tmp_path / "a.fits", *hdus), hdu=1)
        image = {"hdu": 1, "planes": 1, "height": 3, "width": 2, "bitpix": -32, "codec": ""}
        assert found == image

    def test_old_spelling_of_rice(self, tmp_path: Path) -> None:
        path = tmp_path / "a.fits"
        save(path, fits.PrimaryHDU(), fits.CompImageHDU(PIXELS))
        path.write_bytes(path.read_bytes().replace(b"'RICE_1  '", b"'RICE_ONE'"))
        assert image_metadata(str(path))["codec"] == "RICE_1"

    @pytest.mark.parametrize("kind", ["fits", "jpeg"])
    def test_members_of_containers(self, kind: str, tmp_path: Path) -> None:
        path = tmp_path / f"a.{kind}"
        if kind == "fits":
            with_header(path, {"EXPTIME": 2.5})
        else:
            path.write_bytes(pillow(np.zeros((4, 5, 3), np.uint8)))
        (tmp_path / "a.tar").write_bytes(b"before" + path.read_bytes() + b"after")
        member = LOCAL.at(str(tmp_path / "a.tar"), 6, path.stat().st_size)
        found, expected = file_facts(member, ["EXPTIME"]), file_facts(str(path), ["EXPTIME"])
        assert found == {**expected, "path": member.name}
        (tmp_path / "a.tar").write_bytes(b"")
        with pytest.raises(ReadError, match="file ends at"):
            file_facts(member)


class TestRefused:
    @pytest.mark.parametrize(
        ("hdus", "hdu", "words"),
        [
            ([fits.PrimaryHDU()], None, "no HDU .*image"),
            ([fits.PrimaryHDU(PIXELS)], 3, "no HDU 3, the file has 1"),
            ([fits.PrimaryHDU(), fits.ImageHDU(PIXELS)], 0, "HDU 0 .*no image"),
            ([fits.PrimaryHDU(PIXELS)], "SCI", "no HDU 'SCI', the file has PRIMARY"),
        ],
        ids=["none", "number", "empty", "name"],
    )
    def test_no_such_image(
        self, tmp_path: Path, hdus: list[Any], hdu: int | str | None, words: str
    ) -> None:
        path = save(tmp_path / "a.fits", *hdus)
        with pytest.raises(ReadError, match=words) as caught:
            image_metadata(path, hdu=hdu)
        assert caught.value.path == path

    @pytest.mark.parametrize("kind", [fits.CompImageHDU, fits.ImageHDU])
    def test_truncated(self, tmp_path: Path, kind: Any) -> None:
        noise = np.random.default_rng(1).integers(0, 1000, (100, 100), np.int16)
        path = save(tmp_path / "a.fits", fits.PrimaryHDU(), kind(noise))
        Path(path).write_bytes(Path(path).read_bytes()[:-2880])
        with pytest.raises(ReadError, match="truncated"):
            image_metadata(path)

    @pytest.mark.parametrize("content", [b"", b"no FITS file", b"SIMPLE  =", b"\x1f\x8bxx"])
    def test_something_else(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "a.fits"
        path.write_bytes(content)
        with pytest.raises(ReadError) as caught:
            image_metadata(str(path))
        assert caught.value.reason
        assert caught.value.row is None

    @pytest.mark.parametrize("facts", [image_metadata, image_facts, file_facts])
    def test_no_file(self, tmp_path: Path, facts: Callable[[str], Any]) -> None:
        with pytest.raises(ReadError, match="No such file"):
            facts(str(tmp_path / "gone.fits"))


def jpeg(size: tuple[int, int] = (6, 4), orientation: int = 1) -> bytes:
    return pillow(Image.new("RGB", size, (9, 8, 7)), exif=exif(orientation))


class TestImages:
    @pytest.mark.parametrize(("orientation", "size"), [(1, (4, 6)), (3, (4, 6)), (6, (6, 4))])
    def test_size_as_displayed(
        self, tmp_path: Path, orientation: int, size: tuple[int, int]
    ) -> None:
        path = tmp_path / "a.png"  # whatever the suffix says
        path.write_bytes(jpeg(orientation=orientation))
        facts = image_facts(str(path))
        assert facts == {"height": size[0], "width": size[1], "format": "JPEG"}

    def test_refused_without_a_row(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jpg"
        path.write_bytes(jpeg((200, 200))[:-600])
        with pytest.raises(ReadError, match=f"^{path}: ") as caught:
            image_facts(str(path))
        assert caught.value.row is None


class TestHdusAndPlanes:
    @pytest.fixture(params=["a.fits", "a.fits.gz"])
    def path(self, tmp_path: Path, request: pytest.FixtureRequest) -> str:
        """A primary header, images that inherit it or not, a table, an empty image and a cube."""
        table = fits.BinTableHDU.from_columns([fits.Column("x", "J", array=[1])])
        heirs = [fits.Header({"INHERIT": inherit, "GAIN": 3.0}) for inherit in (True, False)]
        hdus = [
            fits.PrimaryHDU(header=fits.Header({"EXPTIME": 45.0, "GAIN": 1.0})),
            fits.ImageHDU(PIXELS, heirs[0], name="SCI", ver=1),
            table,
            fits.ImageHDU(PIXELS[:2], heirs[1], name="SCI", ver=2),
            fits.ImageHDU(np.zeros((0, 3))),
            fits.CompImageHDU(np.zeros((3, 4, 5), np.int16), name="CUBE"),
        ]
        return save(tmp_path / request.param, *hdus)

    def test_all_hdus(self, path: str) -> None:
        found = metadata.image_metadata(path, ["EXPTIME", "GAIN", "EXTNAME"], "all")
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
        assert image_metadata(path, hdu=hdu)["hdu"] == number
        with fits.open(path) as hdus:
            assert hdu is None or hdus.index_of(hdu) == number

    @pytest.mark.parametrize("hdu", ["DQ", ("SCI", 3)])
    def test_no_such_name(self, path: str, hdu: str | tuple[str, int]) -> None:
        with pytest.raises(ReadError, match=r"no HDU .*, the file has PRIMARY, SCI, "):
            image_metadata(path, hdu=hdu)

    def test_a_row_for_each_plane(self, path: str) -> None:
        cases: list[tuple[Any, list[int]]] = [("all", [0, 1, 2]), ((2, 0), [2, 0])]
        for planes, expected in cases:
            found = module.file_facts(path, hdu="CUBE", planes=planes)
            assert [facts["plane"] for facts in found] == expected
        with pytest.raises(ReadError, match=r"\[1\]: .*no plane 1, the image has 1"):
            module.file_facts(path, hdu="all", planes=(0, 1))
