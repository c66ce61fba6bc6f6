"""Columns of header keywords, against astropy."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits
from astropy.time import Time
from PIL import Image

from dali_pipelines import Index, with_keys
from readers.fits.metadata import image_metadata
from readers.index import keywords

PIXELS = np.zeros((4, 5), np.int16)


@pytest.fixture
def archive(tmp_path: Path) -> Index:
    for number in range(6):
        start = {"DATE-OBS": f"2024-05-10T23:5{number}:00", "TIMESYS": "TAI"}
        primary = fits.Header({**start, "GAIN": 1.0})
        image = fits.Header({"WAVELNTH": 171 + number, "GAIN": 2.0, "TIMESYS": "UTC"})
        hdus = [
            fits.PrimaryHDU(header=primary),
            fits.ImageHDU(PIXELS, image),
            fits.ImageHDU(PIXELS),
        ]
        fits.HDUList(hdus).writeto(tmp_path / f"{number}.fits")
    return Index.scan(tmp_path)


def test_values_are_those_of_astropy(archive: Index) -> None:
    index = with_keys(archive, ["wavelnth", "DATE-OBS", "GAIN"], inherit=True)
    assert index.table.column_names == ["path", "wavelnth", "date_obs", "gain"]
    assert index.table.select(["path"]).equals(archive.table)
    paths = archive.table["path"].to_pylist()
    for column, hdu in ("wavelnth", 1), ("gain", 1):
        expected = [fits.getval(path, column, hdu) for path in paths]
        assert index.table[column].to_pylist() == expected
    times = [Time(fits.getval(path, "DATE-OBS", 0), scale="tai").utc.isot for path in paths]
    np.testing.assert_array_equal(index.table["date_obs"].to_numpy(), np.array(times, "M8[ns]"))
    assert len(index.group([171, 172], time="date_obs", tolerance="1min")) == 1


def test_the_hdu_of_a_row_is_read(archive: Index) -> None:
    second = archive.with_column("hdu", [2, 1] * 3)
    expected = [None, 172, None, 174, None, 176]
    assert with_keys(second, ["WAVELNTH"]).table["wavelnth"].to_pylist() == expected
    assert with_keys(archive, ["WAVELNTH"], hdu=2).table["wavelnth"].null_count == 6
    with pytest.raises(ValueError, match="names HDUs 1 to 2, but hdu=1: leave out hdu"):
        with_keys(second, ["WAVELNTH"], hdu=1)
    with pytest.raises(ValueError, match="hdu must be one HDU, got 'all'"):
        with_keys(archive, ["WAVELNTH"], hdu="all")


def test_a_scan_with_keys(archive: Index, tmp_path: Path) -> None:
    """In one step, of a folder, of an Index file, and of other files than FITS."""
    expected = with_keys(archive, ["WAVELNTH", "GAIN"])
    assert Index.scan(tmp_path, keys=["wavelnth", "GAIN"]).table.equals(expected.table)
    archive.save(tmp_path / "a.parquet")
    assert Index.scan(tmp_path / "a.parquet", keys=["WAVELNTH", "GAIN"]).table.equals(
        expected.table
    )
    expected.save(tmp_path / "b.parquet")
    with pytest.raises(ValueError, match="two columns gain"):
        Index.scan(tmp_path / "b.parquet", keys=["GAIN"])
    with pytest.raises(ValueError, match="keys must be a sequence of keywords, got 'GAIN'"):
        Index.scan(tmp_path / "none", keys="GAIN")
    Image.new("L", (3, 3)).save(tmp_path / "c.png")
    mixed = Index.scan([tmp_path / "c.png", tmp_path / "0.fits"], keys=["WAVELNTH"])
    assert mixed.table["wavelnth"].to_pylist() == [None, 171]


def test_an_image_is_read_once_for_all_its_rows(
    archive: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = mock.Mock(side_effect=image_metadata)
    monkeypatch.setattr(keywords, "image_metadata", read)
    rows = archive.select([5, 0, 5, 0, 0])
    assert with_keys(rows, ["WAVELNTH"]).table["wavelnth"].to_pylist() == [176, 171, 176, 171, 171]
    assert read.call_count == 2


def test_what_cannot_be_read_is_null_and_counted(
    archive: Index, caplog: pytest.LogCaptureFixture
) -> None:
    paths = archive.table["path"].to_pylist()
    Path(paths[1]).write_text("no FITS file")
    fits.setval(paths[2], "T_OBS", value="now", ext=1)
    index = with_keys(archive, ["WAVELNTH", "T_OBS", "T_OBSS"])
    assert index.table["wavelnth"].to_pylist() == [171, None, 173, 174, 175, 176]
    assert index.table["t_obss"].type == pa.float64()
    unread, absent, no_time = caplog.messages
    assert unread.startswith("1 of 6 images cannot be read")
    assert paths[1] in unread
    assert absent.startswith("key T_OBSS has no value in the header of any image; if")
    assert no_time.startswith("t_obs: 1 of 6 values")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["GAIN", "gain"], "there would be two columns gain"),
        (["PLANE"], "there would be two columns plane"),
        (["LABEL"], "there would be two columns label"),
        ([5], r"keys must be a sequence of keywords, got \[5\]"),
        (["OFFSET", "NBYTES"], "offset and nbytes .*Index.with_column"),
        (["ETAG"], "ETAG.*Index.with_column"),
        ("GAIN", "keys must be a sequence of keywords, got 'GAIN'"),
    ],
)
def test_names_that_are_taken(archive: Index, keys: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        with_keys(archive.with_column("label", [0] * 6), keys)


def test_by_an_executor(archive: Index) -> None:
    with ThreadPoolExecutor(1) as executor:
        found = with_keys(archive, ["WAVELNTH"], executor=executor)
    assert found.table.equals(with_keys(archive, ["WAVELNTH"]).table)
