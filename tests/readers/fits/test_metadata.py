"""Facts without astropy: always those that astropy gives, and for usual files never by it."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from fits_files import card
from hypothesis import example, given
from hypothesis import strategies as st

from readers.errors import ReadError
from readers.fits import metadata
from readers.fits.file import FitsFile
from readers.fits.headers import Cards, NeedsAstropy, Value

INTEGERS = np.arange(192, dtype=np.int16).reshape(12, 16)
FLOATS = np.linspace(0, 1, 384, dtype=np.float32).reshape(2, 12, 16)
OWN = fits.Header(
    {"EXPTIME": 2.5, "T_OBS": "2013-03-10T12:00:11.34", "FLAG": True, "QUALITY": -5, "EMPTY": ""}
)
HEIR = OWN.copy()
HEIR["INHERIT"] = True
HEIR["EXTNAME"] = "SCI"
KEYS = (
    "EXPTIME",
    "t_obs",
    "FLAG",
    "QUALITY",
    "EMPTY",
    "EXTNAME",
    "INHERIT",
    "GAIN",
    "MISSING",
    "TIMESYS:t_obs",
    "TIMESYS:GAIN",
)


def content(*hdus: Any) -> bytes:
    file = io.BytesIO()
    fits.HDUList([*hdus]).writeto(file)
    return file.getvalue()


def table(name: str) -> Any:
    return fits.BinTableHDU.from_columns([fits.Column("x", "J", array=[1, 2])], name=name)


FILES = {
    "primary": content(fits.PrimaryHDU(INTEGERS, OWN), fits.ImageHDU(FLOATS)),
    "extensions": content(
        fits.PrimaryHDU(header=fits.Header({"GAIN": 1.5, "TIMESYS": "TAI"})),
        table("T"),
        fits.ImageHDU(INTEGERS, HEIR),
        fits.ImageHDU(FLOATS, name="SCI", ver=2),
    ),
    "compressed": content(
        fits.PrimaryHDU(header=fits.Header({"GAIN": 1.5, "TIMESYS": "TAI"})),
        fits.CompImageHDU(INTEGERS, HEIR),
        fits.CompImageHDU(FLOATS, OWN, compression_type="GZIP_2", dither_seed=5),
    ),
}
# fmt: off
VALUES = [
    "'it''s'", "''", "'' / it's", "'a' / 'b'", "'a'b", "'''", "'a&'", "'A: b'", "'AXIS.1: 2'",
    "'A.B: 2.5' / c", "'nan'", "'  x '", "", " / c", "(1.0, 2)", "1.5D+03", "1.5 d 3", "-.5E1",
    "+007", "1.", "-0", "1E999", "99999999999999999999", "NAN", "12 34", "T", "F/", "TF",
    "                   T", "                  16", "                   3", "'COMPRESSED_IMAGE'",
    "'PRIMARY'",
]
NAMES = [
    "EXPTIME ", "EXPTIME=", " EXPTIME", "EXP TIM", "exptime ", "T_OBS   ", "FLAG    ", "INHERIT ",
    "EXTNAME ", "EXTVER  ", "EXTEND  ", "CONTINUE", "HIERARCH", "COMMENT ", "END     ",
    "BSCALE  ", "BZERO   ", "BLANK   ", "NAXIS1  ", "NAXIS3  ", "BITPIX  ", "SIMPLE  ",
    "XTENSION", "GROUPS  ", "PCOUNT  ", "GCOUNT  ", "ZIMAGE  ", "ZCMPTYPE", "ZQUANTIZ",
    "ZNAXIS2 ", "ZTILE1  ", "ZNAME1  ", "ZVAL1   ", "ZBLANK  ", "ZBITPIX ", "ZDITHER0",
    "TTYPE1  ", "ZTENSION", "CHECKSUM", "        ",
]
# fmt: on

names = st.sampled_from(NAMES)
values = st.sampled_from(VALUES) | st.text("'=/ .TFED+-019AZa&:,()", max_size=24)
drawn_cards = st.tuples(names, st.sampled_from(["= ", "= ", "= ", "=", "  "]), values)


def by_astropy(card_text: str) -> Value:
    """Return the value that astropy parses; text ends with its last character."""
    header = fits.Header.fromstring(card_text.encode() + b"END".ljust(80))
    try:
        value = header.get("KEY")
    except fits.VerifyError:  # NaN without quotes
        return None
    if value is None or isinstance(value, fits.card.Undefined):
        return None
    return value if isinstance(value, bool | int | float) else str(value).rstrip()


@given(values)
@example("'2013-03-10T12:00:11.34' / [UTC] it's")
@example("                   -5 / five")
def test_a_value_is_astropys_or_left_to_it(value: str) -> None:
    text = f"KEY     = {value}".ljust(80)[:80]
    cards = Cards(text.encode() + b"END".ljust(80))
    try:
        found = cards.value(b"KEY     ")
    except NeedsAstropy:
        return
    expected = by_astropy(text)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("'2013-03-10'        / day", "2013-03-10"),
        ("'a/b  '", "a/b"),
        ("''", ""),
        ("'NaN'", "NaN"),
        ("'  a  '", "  a"),
        ("'    '", ""),
        ("/ nothing", None),
        ("                  171", 171),
        ("-7.5D-01 / D", -0.75),
        ("T", True),
    ],
)
def test_usual_values_are_not_left_to_astropy(value: str, expected: Value) -> None:
    text = f"KEY     = {value}".ljust(80).encode() + b"END".ljust(80)
    assert Cards(text).value(b"KEY     ") == expected


def facts(path: Path, *chosen: Any, inherit: bool = False) -> Any:
    try:
        return metadata.image_metadata(str(path), KEYS, *chosen, inherit=inherit)
    except ReadError as error:
        return error.reason, error.hdu


def leave(*_: Any, **__: Any) -> Any:
    raise NeedsAstropy


edits = st.tuples(
    st.integers(0, 3), st.integers(0, 40), st.sampled_from(["insert", "replace"]), drawn_cards
)


@given(
    st.sampled_from(sorted(FILES)),
    st.lists(edits, min_size=1, max_size=2),
    st.sampled_from([(), (), ("all",), (2,), ("SCI",), (("SCI", 2),), (None, ["S*"])]),
    st.booleans(),
)
@example("compressed", [(1, 20, "insert", ("HIERARCH", "  ", "EXPTIME = 3"))], (), False)
@example("compressed", [(1, 30, "insert", ("XTENSION", "= ", "'IMAGE   '"))], (), False)
@example("compressed", [(1, 30, "insert", ("EXTNAME ", "= ", "'COMPRESSED_IMAGE'"))], (), False)
@example("compressed", [(1, 10, "insert", ("ZNAXIS2 ", "= ", "'x'"))], (), False)
@example("primary", [(0, 5, "replace", ("EXTEND  ", "= ", "12 34"))], (), False)
@example("extensions", [(0, 4, "insert", ("CHECKSUM", "= ", "'x' y"))], (), True)
@example("extensions", [(2, 8, "insert", ("BSCALE  ", "= ", "NAN"))], (), True)
def test_facts_of_damaged_headers_are_those_of_astropy(
    tmp_path: Path, name: str, changes: list[Any], chosen: tuple[Any, ...], inherit: bool
) -> None:
    path = tmp_path / "a.fits"
    path.write_bytes(edited(FILES[name], changes))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = facts(path, *chosen, inherit=inherit)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(metadata, "_parsed", leave)
            assert repr(found) == repr(facts(path, *chosen, inherit=inherit))


def edited(file: bytes, changes: list[Any]) -> bytes:
    """Insert and replace cards of the headers of a file, at places that wrap around."""
    for hdu, place, kind, (name, between, value) in changes:
        starts = [at for at in range(0, len(file), 2880) if file[at : at + 8] in HEADS]
        start = starts[hdu % len(starts)]
        end = start
        while file[end : end + 80] != b"END".ljust(80):
            end += 80
        cards = [file[at : at + 80] for at in range(start, end, 80)]
        place %= len(cards)
        cards[place : place + (kind == "replace")] = [f"{name}{between}{value}".encode().ljust(80)]
        text = b"".join(cards) + b"END".ljust(80)
        after = start + -(-(end + 80 - start) // 2880) * 2880
        file = file[:start] + text.ljust(-(-len(text) // 2880) * 2880) + file[after:]
    return file


HEADS = (b"SIMPLE  ", b"XTENSION")


@pytest.mark.parametrize("name", FILES)
def test_usual_files_are_read_without_astropy(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.fits"
    path.write_bytes(edited(FILES[name], [(0, -1, "insert", ("HIERARCH", " ", "ESO A = 3"))]))

    def everything() -> list[Any]:
        return [facts(path), facts(path, "all"), facts(path, "all", inherit=True)]

    found = everything()
    with monkeypatch.context() as patch:
        patch.setattr(metadata, "_parsed", leave)
        assert found == everything()
    monkeypatch.setattr(FitsFile, "by_astropy", leave)
    assert found == everything()


def test_real_files(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = sorted(shared_data.glob("fits/*"))
    everything = [facts(path) for path in paths]
    monkeypatch.setattr(metadata, "_parsed", leave)
    assert everything == [facts(path) for path in paths]


def test_a_card_that_goes_on_is_left_to_astropy() -> None:
    text = card("KEY", "abc&") + "CONTINUE  'def'".ljust(80) + "END".ljust(80)
    with pytest.raises(NeedsAstropy):
        Cards(text.encode()).value(b"KEY     ")


@pytest.mark.parametrize("hdu", [fits.ImageHDU, fits.CompImageHDU])
@pytest.mark.parametrize("of_primary", [{"TIMESYS": "TAI"}, {}])
def test_the_scale_of_a_time_is_that_of_its_own_header(
    tmp_path: Path, hdu: Any, of_primary: dict[str, Any]
) -> None:
    """An inherited time is not in the scale of the image's own times."""
    own = {"TIMESYS": "UTC", "T_OBS": "2013-03-10T12:00:11"}
    primary = fits.Header({"DATE-OBS": "2013-03-10T12:00:11", **of_primary})
    hdus = [fits.PrimaryHDU(header=primary), hdu(INTEGERS, fits.Header(own))]
    path = tmp_path / "a.fits"
    path.write_bytes(content(*hdus))
    keys = ("DATE-OBS", "TIMESYS:DATE-OBS", "T_OBS", "TIMESYS:T_OBS", "TIMESYS")
    for chosen in ((), (1,), ("all",)):
        (found,) = metadata.image_metadata(str(path), keys, *chosen, inherit=True)
        assert found["DATE-OBS"] == found["T_OBS"] == "2013-03-10T12:00:11"
        assert found["TIMESYS:DATE-OBS"] == of_primary.get("TIMESYS")
        assert found["TIMESYS:T_OBS"] == found["TIMESYS"] == "UTC"
