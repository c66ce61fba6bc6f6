from __future__ import annotations

import hashlib
import pickle
import warnings
from pathlib import Path

import astropy.units as u
import numpy as np
import pytest
from aiapy.calibrate import degradation
from aiapy_releases import IS_LATER, get_correction_table
from astropy.io import ascii as tables
from astropy.table import vstack
from astropy.time import Time

from readers import CorrectionTable

CHANNELS = (94, 131, 171, 193, 211, 304, 335, 1600, 1700)


@pytest.fixture(scope="module")
def official(shared_data: Path) -> Path:
    return shared_data / "tables" / "aia_V10_20201119_190000_response_table.txt"


def by_aiapy(path: Path, channel: int, time: str) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of years to come
        table = get_correction_table(path)
        return degradation(channel * u.angstrom, Time(time), correction_table=table).value.item()


@pytest.mark.parametrize("channel", CHANNELS)
def test_each_epoch_is_as_aiapy_has_it(official: Path, channel: int) -> None:
    """At its first moment, somewhere in it, and at its last millisecond."""
    table = CorrectionTable.read(official)
    rows = tables.read(official)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of years to come
        reference = get_correction_table(official)
        of_channel = rows[rows["WAVELNTH"] == channel]
        starts, stops = Time(of_channel["T_START"]), Time(of_channel["T_STOP"])
        assert len(of_channel) >= 4
        length = stops - starts
        times = [starts, starts + 0.37 * length, stops - 1 * u.ms]
        times = Time(np.concatenate([time.isot for time in times]))
        texts = times.isot
        expected = degradation(channel * u.angstrom, times, correction_table=reference)
    found = [table.degradation(channel, text) for text in texts]
    np.testing.assert_allclose(found, expected.value, rtol=1e-12, atol=0)


# What aiapy's own tests expect of SolarSoft's table on 2015-01-01, and the document of version 10.
KNOWN = {94: 0.9031773, 131: 0.5, 171: 0.7869, 193: 0.8618, 211: 0.83, 304: 0.1493, 335: 0.3269}


@pytest.mark.parametrize("channel", [94, 171, 193, 211, 304, 335])
def test_known_values(official: Path, channel: int) -> None:
    table = CorrectionTable.read(official)
    assert table.degradation(channel, "2015-01-01T00:00:00") == pytest.approx(
        KNOWN[channel], abs=2e-4
    )


@pytest.mark.parametrize("words", ["csv", "ecsv"])
def test_other_formats_of_the_same(official: Path, tmp_path: Path, words: str) -> None:
    path = tmp_path / f"table.{words}"
    tables.write(tables.read(official), path, format=words)
    found, expected = CorrectionTable.read(path), CorrectionTable.read(official)
    assert found.curves == expected.curves
    assert found.version == 10


def test_a_table_as_aiapy_gives_it(official: Path, tmp_path: Path) -> None:
    path = tmp_path / "table.ecsv"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of years to come
        get_correction_table(official).write(path)
    assert CorrectionTable.read(path).curves == CorrectionTable.read(official).curves


def test_other_versions_do_not_count(official: Path, tmp_path: Path) -> None:
    new = tables.read(official)
    old = new.copy()
    old["VER_NUM"] = 8
    old["DATE"] = "2017-12-10T05:06:27.000"
    old["EFF_AREA"] *= 1.1
    tables.write(vstack([old, new]), tmp_path / "both.csv", format="csv")
    both = tmp_path / "both.csv"
    time = "2015-01-01T00:00:00"
    expected = CorrectionTable.read(official).degradation(94, time)
    assert CorrectionTable.read(both).degradation(94, time) == expected
    assert CorrectionTable.read(both, version=8).degradation(94, time) == pytest.approx(expected)
    # aiapy 0.10 mixes them.
    assert (by_aiapy(both, 94, time) == pytest.approx(expected, rel=0.05)) == IS_LATER


def test_the_row_added_last_wins(official: Path, tmp_path: Path) -> None:
    """As for aiapy, where a table has two rows for a time; it may want the order of DATE."""
    table = tables.read(official)
    extra = table[(table["WAVELNTH"] == 171)][2:3]
    extra["DATE"] = "2025-01-01T00:00:00.000"
    extra["EFF_AREA"] *= 0.5
    time = Time(extra["T_START"][0]) + 3 * u.day
    for name, rows in (("in_order", [table, extra]), ("mixed", [extra, table])):
        path = tmp_path / f"{name}.csv"
        tables.write(vstack(rows), path, format="csv")
        found = CorrectionTable.read(path).degradation(171, time.isot)
        assert found < 0.6
        assert found == pytest.approx(by_aiapy(tmp_path / "in_order.csv", 171, time), rel=1e-12)


def test_it_is_known_by_name_and_content(official: Path) -> None:
    table = CorrectionTable.read(official)
    assert table.name == official.name
    assert table.version == 10
    assert table.sha256 == hashlib.sha256(official.read_bytes()).hexdigest()
    # The hash that aiapy pins for version 10.
    assert table.sha256.startswith("0a3f2db39d05c44185f6fdeec928089f")
    assert pickle.loads(pickle.dumps(table)) == table
    assert len(pickle.dumps(table)) < 20_000


FACTORS = "date,factor\n2010-05-01,1.0\n2010-05-02,0.9\n2010-05-04T12:00:00,0.4\n"


@pytest.fixture
def factors(tmp_path: Path) -> Path:
    path = tmp_path / "degrad_171.csv"
    path.write_text(FACTORS)
    return path


class TestFactors:
    @pytest.mark.parametrize(
        ("time", "expected"),
        [
            ("2010-05-01", 1.0),
            ("2010-05-01T12:00:00", 0.95),
            ("2010-05-02T00:00:00Z", 0.9),
            ("2010-05-03T06:00:00", 0.65),
            ("2010-05-04T12:00:00", 0.4),
        ],
    )
    def test_straight_lines_between_dates(self, factors: Path, time: str, expected: float) -> None:
        table = CorrectionTable.read(factors, channel=171)
        assert table.degradation(171, time) == pytest.approx(expected, rel=1e-12)
        assert table.version is None

    @pytest.mark.parametrize("time", ["2010-04-30T23:59:59", "2010-05-04T12:00:00.001"])
    def test_nothing_outside(self, factors: Path, time: str) -> None:
        table = CorrectionTable.read(factors, channel=171)
        with pytest.raises(ValueError, match=r"degrad_171.csv .*171 at 2010-0"):
            table.degradation(171, time)

    def test_the_channel_must_be_told(self, factors: Path, official: Path) -> None:
        with pytest.raises(ValueError, match="channel=171"):
            CorrectionTable.read(factors)
        with pytest.raises(ValueError, match=r"leave out channel=171"):
            CorrectionTable.read(official, channel=171)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (FACTORS.replace("05-02", "05-09"), "ascending"),
            (FACTORS.replace("05-02", "05-01"), "ascending"),
            (FACTORS.replace("0.9", "0"), "factors above 0"),
            (FACTORS.replace("0.9", ""), "factors above 0"),
            (FACTORS.replace("0.9", "high"), "factor .*numbers"),
            (FACTORS.replace("2010-05-02", "monday"), "date: .*time such as"),
            ("date,factor\n", "no rows"),
        ],
    )
    def test_wrong_tables(self, tmp_path: Path, text: str, message: str) -> None:
        (tmp_path / "table.csv").write_text(text)
        with pytest.raises(ValueError, match=f"table.csv: .*{message}"):
            CorrectionTable.read(tmp_path / "table.csv", channel=171)


class TestErrors:
    def test_a_channel_without_entry(self, official: Path) -> None:
        with pytest.raises(ValueError, match=r"response_table.txt .*4500.* 94, 131, 171"):
            CorrectionTable.read(official).degradation(4500, "2015-01-01")

    @pytest.mark.parametrize("time", ["2010-03-23T23:59:59", "2030-05-01T00:00:00"])
    def test_a_date_outside(self, official: Path, time: str) -> None:
        with pytest.raises(ValueError, match=f"171 at {time}"):
            CorrectionTable.read(official).degradation(171, time)

    def test_another_version(self, official: Path) -> None:
        with pytest.raises(ValueError, match=r"VER_NUM 9, .*10"):
            CorrectionTable.read(official, version=9)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"T_START,A_171_X0\n2010-05-13,1\n", "response table.*DATE"),
            (b"<html><body>404 Not Found</body></html>\n", "expected a"),
            (b"\x89PNG\r\n\x1a\n\0\0", "CSV or ECSV"),
            (b"", "expected a"),
        ],
    )
    def test_another_file(self, tmp_path: Path, content: bytes, message: str) -> None:
        (tmp_path / "table.txt").write_bytes(content)
        with pytest.raises(ValueError, match=f"table.txt: .*{message}"):
            CorrectionTable.read(tmp_path / "table.txt")

    def test_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"missing\.txt") as caught:
            CorrectionTable.read(tmp_path / "missing.txt")
        assert "Index" not in str(caught.value)  # which lists images

    @pytest.mark.parametrize("column", ["EFF_AREA", "EFFA_P2"])
    def test_a_value_is_missing(self, official: Path, tmp_path: Path, column: str) -> None:
        table = tables.read(official)
        table[column] = [float("nan"), *table[column][1:]]
        tables.write(table, tmp_path / "table.csv", format="csv")
        with pytest.raises(ValueError, match=r"EFF_AREA.*EFFA_P1 to P3"):
            CorrectionTable.read(tmp_path / "table.csv")
