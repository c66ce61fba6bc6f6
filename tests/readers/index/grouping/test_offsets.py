"""Sequences: frames at several times of each sample, against pandas."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from astropy import units
from hypothesis import example, given
from hypothesis import strategies as st

from readers import Index, TimeBlocks, TimeOrder
from readers.index.grouping.groups import Grouping

START = int(np.datetime64("2015-01-01", "ns").astype(int))
MINUTE = 60 * 10**9


def index_of(rows: list[Any]) -> Index:
    """Return the Index of files of (channel, minutes since 2015 or None)."""
    times = [None if m is None else START + round(m * MINUTE) for _, m in rows]
    table = {
        "path": [f"/{number}" for number in range(len(rows))],
        "wavelnth": [channel for channel, _ in rows],
        "t_obs": pa.array(times, pa.timestamp("ns")),
    }
    return Index(pa.table(table))


def files_of(index: Index, *parts: str) -> list[tuple[int | None, ...]]:
    """Return the numbers of the files of each sample, None for a missing one."""
    columns = [index.table[f"path_{part}"].to_pylist() for part in parts or index.parts]
    return [
        tuple(None if path is None else int(path[1:]) for path in sample)
        for sample in zip(*columns, strict=True)
    ]


EVERY_12 = [(171, 12 * number) for number in range(6)]
TWO = [(channel, 12 * number) for number in range(4) for channel in (171, 193)]


class TestOffsets:
    def test_one_channel(self) -> None:
        grouped = index_of(EVERY_12).group(offsets=("-24min", "-12min", "0", "+12min"))
        assert grouped.parts == ("-24min", "-12min", "0", "+12min") == grouped.offsets
        assert grouped.channels == ()
        assert files_of(grouped) == [(0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5)]
        assert grouped.table["time"].to_numpy()[0] == np.datetime64("2015-01-01T00:24")
        assert grouped.table["path"].to_pylist() == ["/0", "/1", "/2"]
        assert grouped.table["dt_-24min"].to_pylist() == [-1440.0] * 3
        assert grouped.table["dt_+12min"].to_pylist() == [720.0] * 3

    def test_offsets_are_major_and_channels_minor(self) -> None:
        grouped = index_of(TWO).group([193, 171], offsets=("0", "-12min"))
        assert grouped.parts == ("193+0", "171+0", "193-12min", "171-12min")
        assert (grouped.channels, grouped.offsets) == (("193", "171"), ("0", "-12min"))
        assert files_of(grouped) == [(3, 2, 1, 0), (5, 4, 3, 2), (7, 6, 5, 4)]

    def test_one_named_channel(self) -> None:
        grouped = index_of(TWO).group([171], offsets=["-12min"])
        assert (grouped.parts, grouped.channels) == (("171-12min",), ("171",))
        assert files_of(grouped) == [(0,), (2,), (4,)]

    def test_without_offsets_channels_are_the_parts(self) -> None:
        grouped = index_of(TWO).group([193, 171])
        assert (grouped.channels, grouped.offsets) == (("193", "171"), ())
        assert grouped.table.schema.metadata is None
        assert (index_of(TWO).channels, index_of(TWO).offsets) == ((), ())

    @pytest.mark.parametrize(
        ("offset", "name"),
        [
            ("12min", "+12min"),
            ("+12 min", "+12min"),
            (720, "+720s"),
            ("-720", "-720s"),
            (-0.2 * units.h, "-0.2h"),
            (np.float64(-720), "-720s"),
            ("1e-3s", "+0.001s"),
            (0, "0"),
            ("-0.0min", "0"),
            (0 * units.day, "0"),
        ],
    )
    def test_names_do_not_depend_on_the_spelling(self, offset: Any, name: str) -> None:
        assert Grouping(channels=None, offsets=[offset]).frames.parts == (name,)

    def test_a_quantity_of_several(self) -> None:
        grouping = Grouping(channels=None, offsets=[-24, 0, 12] * units.min)
        assert grouping.frames.offsets == ("-24min", "0", "+12min")

    def test_the_order_is_kept_and_zero_is_not_needed(self) -> None:
        grouped = index_of(EVERY_12).group(offsets=("+12min", "-24min", 720 * 2))
        assert grouped.offsets == ("+12min", "-24min", "+1440s")
        assert files_of(grouped) == [(3, 0, 4), (4, 1, 5)]

    def test_missing_frames_are_kept(self) -> None:
        rows = [row for row in EVERY_12 if row[1] != 24]
        grouped = index_of(rows).group(offsets=("-12min", "0"), missing="keep")
        assert files_of(grouped) == [(None, 0), (0, 1), (None, 2), (2, 3), (3, 4)]
        assert grouped.table["path"].to_pylist()[0] == "/0"
        assert np.isnan(grouped.table["dt_-12min"].to_numpy()[[0, 2]]).all()

    def test_cadence(self) -> None:
        """Samples for each multiple at which any frame exists, beyond the files, too."""
        rows = [(1, 0.1), (1, 11.9), (1, 24)]
        grouped = index_of(rows).group(offsets=("-12min", "+12min"), cadence="12min")
        assert files_of(grouped) == [(0, 2)]
        kept = index_of(rows).group(offsets=("-12min", "+12min"), cadence="12min", missing="keep")
        assert files_of(kept) == [(None, 0), (None, 1), (0, 2), (1, None), (2, None)]
        assert kept.table["time"].to_numpy()[0] == np.datetime64("2014-12-31T23:48")

    def test_a_file_is_in_all_samples_near_it(self) -> None:
        rows = [(1, 0), (1, 0.1), (2, -1)]
        grouped = index_of(rows).group([1, 2], offsets=["-1min"], missing="keep", tolerance=10)
        assert files_of(grouped) == [(None, 2), (None, 2)]

    def test_rows_without_a_time_and_duplicates(self) -> None:
        rows = [(1, None), (1, 0), (1, 0), (1, 12), (1, None), (1, 12)]
        assert files_of(index_of(rows).group(offsets=("-12min", 0))) == [(1, 3)]

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({}, "channels.*offsets"),
            ({"channels": [], "offsets": [0]}, "channels.*at least one"),
            ({"offsets": "-12min"}, "offsets.*sequence.*'-12min'"),
            ({"offsets": []}, "offsets.*sequence"),
            ({"offsets": 12}, "offsets.*sequence.*12"),
            ({"offsets": ["soon"]}, "offsets.*seconds.*'soon'"),
            ({"offsets": ["3 m"]}, "offsets.*seconds.*'3 m'"),
            ({"offsets": [float("nan")]}, "offsets.*from -9e.09 to 9e9 s.*nan"),
            ({"offsets": ["1min", 0, 60]}, r"offsets.*\+1min"),
            ({"offsets": [0, -0.0]}, "offsets.* 0 "),
            ({"offsets": ["-24s", 0]}, "twice the tolerance of 12 s apart.*-24s and 0"),
            ({"offsets": ["-2h", "0"]}, "within 12 s.*6 times, 0 have '-2h' .*3600 s"),
        ],
    )
    def test_errors(self, arguments: dict[str, Any], words: str) -> None:
        with pytest.raises(ValueError, match=words):
            index_of(EVERY_12).group(**arguments)

    @pytest.mark.parametrize("arguments", [{"time": "time"}, {}])
    def test_samples_are_not_grouped_again(self, arguments: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=r"already .*\(171, 193\)"):
            index_of(TWO).group([171, 193]).group(offsets=["-12min", 0], **arguments)

    def test_no_times(self) -> None:
        with pytest.raises(ValueError, match="'t_obs' is empty in all 1 rows"):
            index_of([(1, None)]).group(offsets=[0])

    def test_the_column_of_channels_is_not_needed(self) -> None:
        table = index_of(EVERY_12).table.drop_columns("wavelnth")
        assert len(Index(table).group(offsets=["-12min", 0])) == 5


class TestKept:
    """What the channels and offsets were goes with the Index."""

    @pytest.fixture
    def grouped(self) -> Index:
        return index_of(TWO).group([171, 193], offsets=("-12min", "0"), missing="keep")

    @pytest.mark.parametrize("suffix", ["parquet", "arrow"])
    def test_saved_and_loaded(self, grouped: Index, tmp_path: Path, suffix: str) -> None:
        grouped.save(tmp_path / f"samples.{suffix}")
        again = Index.load(tmp_path / f"samples.{suffix}")
        assert (again.channels, again.offsets) == (("171", "193"), ("-12min", "0"))
        assert again.digest == grouped.digest
        assert files_of(again) == files_of(grouped)
        parts = again.columns(parts=again.parts).row(0).parts
        assert [part is not None for part in parts.values()] == [False, False, True, True]

    def test_selected_and_labelled(self, grouped: Index) -> None:
        labelled = grouped.with_column("label", [0, 1, 0, 1]).with_column("label", [1, 1, 1, 0])
        for index in (
            grouped.select([2, 0]),
            grouped.where('"dt_171+0" = 0'),
            labelled,
            Index.concat([grouped, grouped.select([1])]),
            grouped.split({"a": 0.5, "b": 0.5}, by="time")["a"],
        ):
            assert (index.channels, index.offsets) == (("171", "193"), ("-12min", "0"))

    def test_others_are_not_put_together(self, grouped: Index) -> None:
        other = index_of(TWO).group([193, 171], offsets=("-12min", "0"), missing="keep")
        with pytest.raises(ValueError, match="171, 193 at -12min, 0 and 193, 171 at"):
            Index.concat([grouped, other])
        with pytest.raises(ValueError, match="at -12min, 0 and one channel"):
            Index.concat([grouped, index_of(TWO)], fill=True)


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=6),
    st.sampled_from([-8e9, -1.0, 0.0, 8e9]),
)
@example([-(2**63), 2**63 - 8 * 10**18], -8e9)  # a file where a time would wrap around to
def test_at_the_limits_of_64_bits(times: list[int], offset: float) -> None:
    """A frame whose time no column can hold is missing; no time wraps around."""
    index = Index(
        pa.table({"path": list(map(str, times)), "t_obs": pa.array(times, pa.timestamp("ns"))})
    )
    shift = round(offset * 1e9)
    expected = [
        t
        for t in sorted(set(times))
        if -(2**63) <= t + shift < 2**63 and any(abs(t + shift - u) <= 10**9 for u in times)
    ]
    if not expected:
        with pytest.raises(ValueError, match="no sample has all frames"):
            index.group(offsets=[offset], tolerance=1)
    else:
        grouped = index.group(offsets=[offset], tolerance=1)
        assert grouped.table["time"].cast(pa.int64()).to_pylist() == expected


def test_against_pandas() -> None:
    random = np.random.default_rng(0)
    minutes = np.sort(random.choice(np.arange(3000), 2000, replace=False)) * 12.0
    rows = [(171, minute) for minute in minutes + random.uniform(-0.1, 0.1, 2000)]
    rows = [rows[n] for n in random.permutation(len(rows))]
    index = index_of(rows)
    grouped = index.group(offsets=("-24min", 0, "+12min"), missing="keep", tolerance="10s")
    frame = index.table.to_pandas().sort_values("t_obs")
    for part, minutes_later in (("-24min", -24), ("0", 0), ("+12min", 12)):
        left = frame[["t_obs"]] + pd.Timedelta(minutes=minutes_later)
        merged = pd.merge_asof(
            left, frame, on="t_obs", direction="nearest", tolerance=pd.Timedelta("10s")
        )
        found = grouped.table[f"path_{part}"].to_pandas()
        pd.testing.assert_series_equal(found, merged["path"], check_names=False)
    assert grouped.table["path_-24min"].null_count > 100


def test_a_gap_keeps_the_files_of_parts_apart(caplog: pytest.LogCaptureFixture) -> None:
    """The gap that the documentation of `group` names is enough; a shorter one is reported."""
    index = index_of([(1, 12 * number) for number in range(3000)])
    grouped = index.group(offsets=("-24min", "-12min", 0, "+12min"))

    def shared(gap: str) -> int:
        blocks = TimeBlocks("time", "10h", gap)
        parts = grouped.split({"train": 0.5, "val": 0.5}, by=blocks)
        train, val = (
            {file for sample in files_of(part) for file in sample} for part in parts.values()
        )
        return len(train & val)

    assert not shared("36.4min")
    assert "sequences" not in caplog.text
    count = shared("24min")
    assert count > 0
    assert re.search(f"{count} frames .*sequences.*TimeBlocks", caplog.text)
    caplog.clear()
    index.group([1]).split({"train": 0.5, "val": 0.5})
    assert "sequences" not in caplog.text


def test_shared_files_of_samples_that_lack_frames(caplog: pytest.LogCaptureFixture) -> None:
    rows = [(1, 12 * number) for number in range(40) if number % 3]
    grouped = index_of(rows).group(offsets=("-12min", "0"), missing="keep")
    parts = grouped.split({"train": 0.5, "val": 0.5}, by="time")
    train, val = ({file for sample in files_of(part) for file in sample} for part in parts.values())
    count = len((train & val) - {None})
    assert count > 0
    assert re.search(f"{count} frames .*sequences", caplog.text)


def test_frames_of_one_file_are_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    """As in a Zarr store, whose rows all have its path."""
    times = np.datetime64("2015-01-01", "ns") + np.arange(40) * np.timedelta64(6, "h")
    planes = pa.array(np.arange(40, dtype=np.int32))
    index = Index(pa.table({"path": ["/a.zarr"] * 40, "plane": planes, "time": times}))
    pairs = index.group(time="time", offsets=("0", "6h"), tolerance="1min")
    pairs.split({"train": 0.5, "val": 0.5}, by=TimeOrder("time", gap="7h"))
    assert "sequences" not in caplog.text
    pairs.split({"train": 0.5, "val": 0.5}, by=TimeOrder("time", gap="1h"))
    assert re.search("1 frames .*sequences", caplog.text)
