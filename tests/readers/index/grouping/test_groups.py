"""Samples of several files: columns, errors, and pandas' merge_asof."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from astropy import units

from readers import Index


def index_of(rows: list[Any], **columns: Any) -> Index:
    """Return the Index of files of (channel, seconds since 2015 or None)."""
    start = int(np.datetime64("2015-01-01", "ns").astype(int))
    times = [None if s is None else start + round(s * 1e9) for _, s in rows]
    paths = [f"/{number}_{channel}" for number, (channel, _) in enumerate(rows)]
    table = {"path": paths, "wavelnth": [channel for channel, _ in rows], **columns}
    return Index(pa.table({**table, "t_obs": pa.array(times, pa.timestamp("ns"))}))


def chosen(index: Index, *channels: Any) -> list[Any]:
    """Return the numbers of the files of each sample, None for a missing one."""
    paths = [index.table[f"path_{channel}"].to_pylist() for channel in channels]
    return [
        tuple(None if path is None else int(path[1:].split("_")[0]) for path in sample)
        for sample in zip(*paths, strict=True)
    ]


TRIPLE = [(171, 0), (193, 1.5), (211, -2), (171, 12), (193, 13.5), (211, 10), (171, 24), (211, 22)]


class TestGroup:
    def test_columns(self) -> None:
        grouped = index_of(TRIPLE, hdu=[1, 0, None, 1, 1, 1, 1, 1]).group([171, 193, 211])
        channels = ("171", "193", "211")
        assert grouped.parts == channels
        assert grouped.table.column_names == [
            *("path", "hdu", "time"),
            *(f"{name}_{c}" for c in channels for name in ("path", "hdu", "dt")),
        ]
        assert grouped.table.to_pylist()[0] == {
            "path": "/0_171",
            "hdu": 1,
            "time": pd.Timestamp("2015-01-01"),
            "path_171": "/0_171",
            "hdu_171": 1,
            "dt_171": 0,
            "path_193": "/1_193",
            "hdu_193": 0,
            "dt_193": 1.5,
            "path_211": "/2_211",
            "hdu_211": None,
            "dt_211": -2,
        }
        assert chosen(grouped, *channels) == [(0, 1, 2), (3, 4, 5)]

    def test_missing_is_kept(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, "readers.index.grouping"):
            grouped = index_of(TRIPLE).group([171, 193, 211], missing="keep")
        assert not caplog.records
        assert chosen(grouped, 171, 193, 211) == [(0, 1, 2), (3, 4, 5), (6, None, 7)]
        assert np.isnan(grouped.table["dt_193"].to_numpy()[2])
        assert grouped.table["dt_193"].null_count == 0
        assert "hdu" not in grouped.table.column_names

    def test_order_of_rows_does_not_matter(self) -> None:
        ordered = index_of(TRIPLE).group([171, 193, 211], missing="keep").table
        backwards = index_of(TRIPLE[::-1]).group([171, 193, 211], missing="keep").table
        assert backwards["time"].equals(ordered["time"])
        assert backwards["dt_211"].equals(ordered["dt_211"])

    def test_each_file_once(self) -> None:
        rows = [(1, 0), (1, 5), (1, 9), (2, 6)]
        assert chosen(index_of(rows).group([1, 2], missing="keep"), 1, 2) == [
            (0, None),
            (1, 3),
            (2, None),
        ]

    def test_ties(self) -> None:
        """The earlier file, the later sample: on half the cadence no file is left over."""
        rows = [(1, 0), (1, 10), (1, 20), (2, 5), (2, 15), (2, 25)]
        assert chosen(index_of(rows).group([1, 2], missing="keep"), 1, 2) == [
            (0, None),
            (1, 3),
            (2, 4),
        ]

    def test_duplicates(self) -> None:
        rows = [(2, 1), (1, 0), (1, 0), (2, 1)]
        assert chosen(index_of(rows).group([1, 2]), 1, 2) == [(1, 0)]

    def test_rows_without_a_time_or_a_channel(self) -> None:
        rows = [(1, None), (1, 0), (2, 3), (2, None), (None, 0)]
        assert chosen(index_of(rows).group([1, 2]), 1, 2) == [(1, 2)]

    def test_rows_in_no_sample_are_counted(self, caplog: pytest.LogCaptureFixture) -> None:
        rows = [(1, 0), (2, 1), (1, 0), (2, 1), (1, 0), (2, None), (3, None), (3, 0), (3, 0)]
        with caplog.at_level(logging.WARNING):
            index_of(rows).group([1, 2], missing="keep")
        untimed, same = caplog.messages
        assert re.match("1 of 6 rows .*no 't_obs'.*/5_2$", untimed)
        assert re.match("3 of 6 rows .*'t_obs' as another.*/2_1$", same)

    def test_rows_of_the_same_date_are_counted(self, caplog: pytest.LogCaptureFixture) -> None:
        days = pa.array(["2015-01-01"] * 3 + ["2015-01-02"]).cast(pa.date32())
        with caplog.at_level(logging.WARNING):
            assert len(index_of([(1, 0)] * 4, day=days).group([1], time="day")) == 2
        [message] = caplog.messages
        assert re.match("2 of 4 rows .*'day' as another", message)

    @pytest.mark.parametrize(
        ("arguments", "count"),
        [({}, 4), ({"missing": "keep"}, 2), ({"cadence": "2min", "tolerance": 1}, 6)],
    )
    def test_rows_left_out_on_purpose_are_not_a_warning(
        self, caplog: pytest.LogCaptureFixture, arguments: dict[str, Any], count: int
    ) -> None:
        rows = [(1, 0), (2, 0), (1, 24), (2, 24), (2, 36), (2, 60), (1, 80), (1, 100)]
        with caplog.at_level(logging.INFO, "readers.index.grouping"):  # commands set its level
            index_of(rows).group([1, 2], **{"tolerance": 3, **arguments})
        first, *others = caplog.records
        assert first.levelno == logging.INFO
        assert first.message.startswith(f"{count} of 8 rows are in no sample")
        assert all("samples dropped" in record.message for record in others)

    @pytest.mark.parametrize(
        ("arguments", "level", "message"),
        [
            ({}, logging.INFO, "2 of 4 .*2 is missing in 2; .*tolerance"),
            ({"tolerance": 0}, logging.WARNING, "3 of 4 .*2 is missing in 3"),
            ({"tolerance": 5}, logging.INFO, "1 of 4 .*2 is missing in 1"),
            # There is no file at 72, 96 and other multiples, and so no sample.
            ({"cadence": "8s"}, logging.INFO, "1 of 3 .*2 is missing in 1"),
        ],
    )
    def test_dropped_samples_are_counted(
        self, caplog: pytest.LogCaptureFixture, arguments: dict[str, Any], level: int, message: str
    ) -> None:
        """And what they lack: a warning, if more than half are lost."""
        rows = [(1, 0), (2, 1), (1, 24), (2, 24), (1, 80), (2, 75), (1, 100)]
        with caplog.at_level(logging.INFO, "readers.index.grouping"):
            index_of(rows).group([1, 2], **{"tolerance": 2, **arguments})
        [record] = (record for record in caplog.records if "dropped" in record.message)
        assert record.levelno == level
        assert re.match(message, record.message)

    def test_many_dropped_frames_take_one_line(self, caplog: pytest.LogCaptureFixture) -> None:
        offsets = range(0, 300, 12)
        index_of([(1, 12 * number) for number in range(30)]).group(
            [1], offsets=offsets, tolerance=1
        )
        [message] = caplog.messages
        assert re.match(r"24 of 30 .*1\+12s is missing in 1, .*1\+240s .* 20, .* 4 more", message)

    @pytest.mark.parametrize(
        ("tolerance", "found"),
        [(3, 1), (2.999999999, 0), ("3 s", 1), ("0.05min", 1), (0.05 * units.min, 1)],
    )
    def test_tolerance_is_included(self, tolerance: Any, found: int) -> None:
        index = index_of([(1, 0), (2, 3), (1, 100), (2, 100)])
        assert len(index.group([1, 2], tolerance=tolerance)) == 1 + found

    def test_cadence(self) -> None:
        rows = [(1, 1), (2, -1), (2, 719), (1, 1440), (1, 1000), (2, 1300)]
        grouped = index_of(rows).group([1, 2], cadence="12min", missing="keep")
        assert chosen(grouped, 1, 2) == [(0, 1), (None, 2), (3, None)]
        assert grouped.table["path"].to_pylist() == ["/0_1", "/2_2", "/3_1"]
        minutes = [f"2015-01-01T00:{minute}" for minute in ("00", "12", "24")]
        np.testing.assert_array_equal(grouped.table["time"].to_numpy(), np.array(minutes, "M8[ns]"))
        assert grouped.table["dt_2"].to_numpy()[:2].tolist() == [-1, -1]

    def test_the_least_cadence_is_twice_the_tolerance(self) -> None:
        """Then all files are in samples, and one in the middle between two is in one of them."""
        rows = [(1, 0), (2, 6), (1, 18), (2, 24)]
        grouped = index_of(rows).group([1, 2], cadence="12s", tolerance="6s", missing="keep")
        parts = chosen(grouped, 1, 2)
        assert sorted(row for row, _ in parts if row is not None) == [0, 2]
        assert sorted(row for _, row in parts if row is not None) == [1, 3]
        with pytest.raises(ValueError, match=r"cadence.*11\.9"):
            index_of(rows).group([1, 2], cadence=11.9, tolerance="6s")

    @pytest.mark.parametrize(
        ("values", "channels"),
        [
            ([171, 193], [171, 193]),
            ([171, 193], ["171", "193"]),
            ([171.0, 193.0], [171, 193]),
            (["171", "193"], [171, 193]),
            (["171", "193"], np.array([171, 193])),
            (pa.array(["171", "193"]).dictionary_encode(), ["171", "193"]),
        ],
    )
    def test_channels_of_any_type(self, values: Any, channels: Any) -> None:
        index = Index(
            pa.table({"path": ["/a", "/b"], "c": values, "t": pa.array([0, 1], pa.timestamp("s"))})
        )
        grouped = index.group(channels, by="c", time="t")
        assert grouped.parts == ("171", "193")
        assert grouped.table["path_193"].to_pylist() == ["/b"]

    def test_a_grouped_index_is_saved_and_loaded(self, tmp_path: Path) -> None:
        grouped = index_of(TRIPLE, hdu=[1] * 8).group([171, 193], missing="keep")
        grouped.save(tmp_path / "samples.parquet")
        again = Index.load(tmp_path / "samples.parquet")
        # nan is not equal to itself
        pd.testing.assert_frame_equal(again.table.to_pandas(), grouped.table.to_pandas())
        assert again.digest == grouped.digest


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"channels": "171"}, ValueError, "channels.*'171'"),
    ({"channels": 171}, ValueError, "channels.*171"),
    ({"channels": []}, ValueError, "channels.*at least one"),
    ({"channels": [171, "171"]}, ValueError, "channels.*differ.*171"),
    ({"channels": [171, 94]}, ValueError, r"'wavelnth' has no 94, it has 171 \(3 rows\), "),
    ({"channels": [171, "x"]}, ValueError, r"'wavelnth' has no 'x', it has 171 \(3 rows\), "),
    ({"channels": [171, 17.5]}, ValueError, "has no 17.5"),
    ({"missing": "nan"}, ValueError, "missing.*'drop', 'keep'.*'nan'"),
    ({"tolerance": "12 m"}, ValueError, "tolerance.*seconds.*'12 m'"),
    ({"tolerance": "soon"}, ValueError, "tolerance.*seconds.*'soon'"),
    ({"tolerance": [1, 2]}, ValueError, r"tolerance.*seconds.*\[1, 2\]"),
    ({"tolerance": -1}, ValueError, "tolerance.*from 0.*-1"),
    ({"tolerance": float("nan")}, ValueError, "tolerance.*from 0.*nan"),
    ({"tolerance": 1}, ValueError, r"within 1 s.*193 .*1.5 s.*211 .*2 s"),
    ({"cadence": 23}, ValueError, "cadence.*twice the tolerance of 12 s.*23"),
    ({"cadence": 0, "tolerance": 0}, ValueError, "cadence.*twice"),
    ({"by": "channel"}, KeyError, "'channel'.*path.*with_keys"),
    ({"by": "WAVELNHT"}, KeyError, "'WAVELNHT': did you mean wavelnth"),
    ({"time": "date_obs"}, KeyError, "'date_obs'.*--keys"),
    ({"time": "wavelnth"}, TypeError, "'wavelnth'.*times.*int64"),
]


class TestErrors:
    @pytest.mark.parametrize(("options", "error", "words"), BAD)
    def test_arguments(self, options: dict[str, Any], error: type[Exception], words: str) -> None:
        with pytest.raises(error, match=words):
            index_of(TRIPLE).group(**{"channels": [171, 193, 211], **options})

    def test_no_times(self) -> None:
        rows = [(171, 0), (193, None), (193, None)]
        with pytest.raises(ValueError, match="'t_obs' is empty in all 2 rows of 193"):
            index_of(rows).group([171, 193])

    def test_many_channels(self) -> None:
        rows = [(number, 0) for number in range(30)]
        with pytest.raises(ValueError, match=r"1 rows\), 10 more$"):
            index_of(rows).group([171])


def test_against_pandas() -> None:
    """The same as merge_asof, unless two samples want one file."""
    random = np.random.default_rng(0)
    step = np.arange(2000) * 12
    rows = [(171, s) for s in step + random.uniform(0, 0.5, 2000)]
    rows += [(193, s) for s in (step + 4 + random.uniform(0, 0.5, 2000))[random.random(2000) < 0.9]]
    rows = [rows[n] for n in random.permutation(len(rows))]
    grouped = index_of(rows).group([171, 193], tolerance=5, missing="keep").table.to_pandas()
    frame = index_of(rows).table.to_pandas().sort_values("t_obs")
    left, right = (frame[frame.wavelnth == channel] for channel in (171, 193))
    merged = pd.merge_asof(
        left, right, on="t_obs", direction="nearest", tolerance=pd.Timedelta("5s")
    )
    assert grouped["path_193"].isna().sum() > 100
    pd.testing.assert_series_equal(grouped["path_171"], merged["path_x"], check_names=False)
    pd.testing.assert_series_equal(grouped["path_193"], merged["path_y"], check_names=False)
