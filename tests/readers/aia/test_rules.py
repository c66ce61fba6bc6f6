from __future__ import annotations

import inspect
import pickle
import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sunpy.map
from aiapy_releases import QUALITY_FLAG_MESSAGES
from hypothesis import given, settings
from hypothesis import strategies as st
from solar_files import changed, frame, full_header, hmi_header

from readers import HeaderRules
from readers.aia.rules import KEYS, OPTIONAL_KEYS


@pytest.mark.parametrize("header", [full_header(), hmi_header(), frame()[1]], ids=["", "hmi", "s"])
def test_sound_headers_are_accepted(header: Any) -> None:
    HeaderRules().check(header)


BROKEN: list[tuple[dict[str, Any], str, str]] = [
    ({"QUALITY": 1 << 17}, "QUALITY", r"QUALITY is 0x00020000.* 17 \(ISS loop open\)"),
    ({"QUALITY": -(2**31)}, "QUALITY", r"QUALITY is 0x80000000.* 31 \(no image\)"),
    ({"QUALITY": 1 << 31}, "QUALITY", r"QUALITY is 0x80000000.* 31 \(no image\)"),
    ({"QUALITY": 0x5301}, "QUALITY", r"8 \(.*\), 9 .*, 12 .*, 14 \("),
    ({"QUALITY": 1 << 29}, "QUALITY", "29$"),
    ({"QUALITY": None}, "QUALITY", "QUALITY is missing"),
    ({"LVL_NUM": 1.5}, "LVL_NUM", "LVL_NUM is 1.5, expected 1: .*registered"),
    ({"LVL_NUM": 0.5}, "LVL_NUM", "LVL_NUM is 0.5, expected 1$"),
    ({"LVL_NUM": None}, "LVL_NUM", "LVL_NUM is missing"),
    ({"IMG_TYPE": "DARK"}, "IMG_TYPE", "IMG_TYPE is 'DARK'.*'LIGHT'"),
    ({"EXPTIME": 0.0}, "EXPTIME", "EXPTIME is 0.0.*more than 0"),
    ({"EXPTIME": "nan"}, "EXPTIME", "EXPTIME is 'nan'"),
    ({"PERCENTD": 99.9}, "PERCENTD", "PERCENTD is 99.9.*100 %"),
    ({"INSTRUME": "EIT"}, "INSTRUME", "INSTRUME is 'EIT'.*AIA or HMI"),
    ({"INSTRUME": None}, "INSTRUME", "INSTRUME is missing"),
    ({"CROTA2": None}, "CROTA2", "CROTA2 is missing.*PCi_j and CDi_j"),
    ({"CRPIX2": None}, "CRPIX2", "CRPIX2 is missing"),
    ({"RSUN_OBS": None}, "RSUN_OBS", "RSUN_OBS is missing"),
    ({"NAXIS1": 769, "NAXIS2": 705}, "full disk", "769x705.*x 2047.5, y 2047.5.*radius is 971"),
]


def test_bits_are_shown_as_such() -> None:
    shown = str(inspect.signature(HeaderRules))  # by help, too
    assert "quality: 'int' = 0xbfffffe0, hmi_quality: 'int' = 0xfffe4220," in shown
    rules = HeaderRules(quality=1)
    assert repr(rules).startswith("HeaderRules(quality=0x00000001, hmi_quality=0xfffe4220, level")
    assert pickle.loads(pickle.dumps(rules)) == rules


@pytest.mark.parametrize(("words", "rule", "message"), BROKEN)
def test_each_rule_has_its_own_message(words: dict[str, Any], rule: str, message: str) -> None:
    header = full_header(**words)
    found = HeaderRules().violation(header)
    assert found is not None
    assert found.rule == rule
    with pytest.raises(ValueError, match=message):
        HeaderRules().check(header)


SWITCHED_OFF = [
    ({"QUALITY": 1 << 17}, {"quality": 0}),
    ({"QUALITY": None}, {"quality": 0}),
    ({"QUALITY": 1 << 17}, {"quality": 0xFFFFFFFF & ~(1 << 17)}),
    ({"LVL_NUM": 1.5}, {"level": 1.5}),
    ({"LVL_NUM": None}, {"level": None}),
    ({"IMG_TYPE": "DARK"}, {"img_type": "DARK"}),
    ({"IMG_TYPE": None}, {"img_type": None}),
    ({"EXPTIME": 0.0}, {"exposed": False}),
    ({"PERCENTD": 99.9}, {"percentd": 99.0}),
    ({"PERCENTD": None}, {"percentd": 0.0}),
    ({"NAXIS1": 769, "NAXIS2": 705}, {"full_disk": False}),
]


@pytest.mark.parametrize(("words", "changes"), SWITCHED_OFF)
def test_each_rule_can_be_changed(words: dict[str, Any], changes: dict[str, Any]) -> None:
    header = full_header(**words)
    assert HeaderRules().violation(header) is not None
    assert HeaderRules(**changes).violation(header) is None


def test_bits_of_quality() -> None:
    """Ancillary data are needed by none, and quicklook is no fault; all else is."""
    rejected = set()
    for bit in range(32):
        found = HeaderRules().violation(full_header(QUALITY=1 << bit))
        if found is not None:
            rejected.add(bit)
            assert bit not in QUALITY_FLAG_MESSAGES or f"{bit} (" in found.message
    assert rejected == {*range(32)} - {0, 1, 2, 3, 4, 30}


def test_hmi_has_rules_of_its_own() -> None:
    rules = HeaderRules()
    for fine in (0x400, 0x8000, 0x10000):
        assert rules.violation(hmi_header(QUALITY=fine)) is None
    for bad in (0x20, 0x200, 0x4000, 0x20000, -(2**31)):
        assert broken(rules, QUALITY=bad) == "QUALITY"
    assert broken(rules, NAXIS2=2000) == "full disk"
    assert broken(rules, CROTA2=None) == "CROTA2"


def broken(rules: HeaderRules, **changes: Any) -> str | None:
    """Return the rule that a header of HMI breaks."""
    found = rules.violation(hmi_header(**changes))
    return None if found is None else found.rule


@settings(max_examples=25)
@given(
    st.floats(-20, 150),
    st.floats(-20, 150),
    st.floats(-180, 180),
    st.floats(15, 40),
    st.integers(100, 140),
)
def test_the_disk_is_full_as_sunpy_sees_it(
    x: float, y: float, angle: float, scale: float, width: int
) -> None:
    header = changed(frame()[1], CRPIX1=x, CRPIX2=y, CROTA2=angle, CDELT1=scale, CDELT2=scale)
    header["NAXIS1"] = width
    # The Sun as sunpy sees it: as large as its distance makes it, not RSUN_OBS.
    rsun = np.rad2deg(np.arcsin(header["RSUN_REF"] / header["DSUN_OBS"])) * 3600
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        smap = sunpy.map.Map(np.zeros((128, width)), header)
        rsun = smap.rsun_obs.to_value("arcsec")
        expected = sunpy.map.contains_full_disk(smap)
    near = [HeaderRules().violation(changed(header, RSUN_OBS=rsun + d)) is None for d in (-1, 1)]
    assert near[0] >= expected >= near[1]


@pytest.mark.parametrize(
    ("edge", "angle"), [("left", 0.0), ("right", 33.0), ("bottom", 33.0), ("top", 180.0)]
)
def test_the_limb_must_be_inside_the_edge_pixels(edge: str, angle: float) -> None:
    header = full_header(CROTA2=angle)
    radius = header["RSUN_OBS"] / header["CDELT1"]
    axis = "CRPIX1" if edge in ("left", "right") else "CRPIX2"
    for inside in (-0.01, 0.01):
        near = 1 + radius + inside
        header[axis] = near if edge in ("left", "bottom") else 4097 - near
        assert (HeaderRules().violation(header) is None) == (inside > 0)


# ---- Of an Index ---------------------------------------------------------------------------------


def table(headers: Any) -> Any:
    columns = {key.lower(): [header.get(key) for header in headers] for key in KEYS}
    sizes = {"width": "NAXIS1", "height": "NAXIS2"}
    columns |= {name: [header[key] for header in headers] for name, key in sizes.items()}
    return pa.table({"path": [f"/{n}.fits" for n in range(len(headers))], **columns})


HEADERS = [
    full_header(),
    full_header(QUALITY=1 << 12),
    hmi_header(),
    full_header(LVL_NUM=1.5),
    full_header(CROTA2=None),
    full_header(CROTA2=None, PC1_1=1.0),
    full_header(NAXIS1=769, NAXIS2=705),
]


def test_an_index_is_asked_the_same() -> None:
    selection = HeaderRules().select(table(HEADERS))
    np.testing.assert_array_equal(selection.rows, [0, 2, 5], strict=True)
    assert sorted(selection.refused) == [1, 3, 4, 6]
    for row, violation in selection.refused.items():
        assert violation == HeaderRules().violation(HEADERS[row])


def test_many_rows() -> None:
    many = table(HEADERS[:2]).take(np.arange(20_000) % 2)
    selection = HeaderRules(full_disk=False).select(many)
    np.testing.assert_array_equal(selection.rows, np.arange(0, 20_000, 2))


def test_all_and_none() -> None:
    assert list(HeaderRules().select(table(HEADERS[:1])).rows) == [0]
    assert list(HeaderRules().select(table(HEADERS[1:2])).rows) == []
    assert HeaderRules().select(table(HEADERS[1:2])).rows.dtype == np.int64


def test_columns_that_may_be_missing() -> None:
    some = table([HEADERS[0], HEADERS[3]]).drop_columns(["pc1_1", "cd2_2", "ctype1"])
    assert list(HeaderRules().select(some).rows) == [0]


def test_columns_that_may_not() -> None:
    for key in (key for key in KEYS if key not in OPTIONAL_KEYS):
        with pytest.raises(ValueError, match=f"'{key.lower()}'.*scan"):
            HeaderRules().select(table(HEADERS).drop_columns([key.lower()]))


@pytest.mark.parametrize(
    ("rule", "value", "remedy"),
    [
        ("quality", "all", "integer"),
        ("quality", True, "integer"),
        ("level", "1", "number"),
        ("img_type", 1, "text"),
        ("exposed", None, "True or False"),
        ("percentd", True, ""),
        ("percentd", None, ""),
    ],
)
def test_rules_of_wrong_types(rule: str, value: Any, remedy: str) -> None:
    rules: dict[str, Any] = {rule: value}
    with pytest.raises(ValueError, match=f"{rule} must be.*{remedy}.*got {value!r}"):
        HeaderRules(**rules)
