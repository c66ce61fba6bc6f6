"""Samples and sequences against a search of all pairs of files and times."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers import Index
from readers.index.grouping.groups import Grouping

EARLIEST, LATEST = (int(np.datetime64(text, "ns").astype(int)) for text in ("1700", "2199-12-31"))
# Small numbers make ties, large ones reach the limits of 64 bits.
TIMES = st.integers(-30, 30) | st.integers(EARLIEST, LATEST) | st.sampled_from([EARLIEST, LATEST])
FEW_TIMES = st.integers(-60, 60)


def nanoseconds(seconds: Any) -> int:
    return round(float(seconds) * 1e9)


def all_pairs(
    files: list[tuple[int, int | None]], grouping: Grouping, shifts: list[int] | None
) -> list[tuple[int, list[int | None]]]:
    """Return the time of each sample and the rows of its files."""
    times = {row: time for row, (_, time) in enumerate(files) if time is not None}
    rows_of = [
        [row for row in times if channel in (None, files[row][0])]
        for channel in grouping.channels or [None]
    ]
    if grouping.cadence is None:
        wanted = sorted({times[row] for row in rows_of[0]})
    else:
        step = nanoseconds(grouping.cadence)
        near = {times[row] - shift for rows in rows_of for row in rows for shift in shifts or [0]}
        wanted = sorted({(time // step + k) * step for time in near for k in (0, 1)})
    columns = []
    for shift, rows in itertools.product(shifts or [0], rows_of):
        away = {
            (sample, row): abs(times[row] - time - shift)
            for (sample, time), row in itertools.product(enumerate(wanted), rows)
        }
        found: dict[int, int] = {}
        for sample in range(len(wanted)):
            pairs = [(away[sample, row], times[row], row) for row in rows]
            if pairs and min(pairs)[0] <= nanoseconds(grouping.tolerance):
                found[sample] = min(pairs)[2]
        if shifts is None:  # each file is in one sample, the nearest: the later of two
            takers = {
                row: min((away[sample, row], -sample) for sample in found if found[sample] == row)
                for row in found.values()
            }
            found = {-sample: row for row, (_, sample) in takers.items()}
        columns.append([found.get(sample) for sample in range(len(wanted))])
    samples = [(time, list(sample)) for time, *sample in zip(wanted, *columns, strict=True)]
    is_whole = all if grouping.missing == "drop" else any
    return [(t, rows) for t, rows in samples if is_whole(row is not None for row in rows)]


@st.composite
def groupings(
    draw: st.DrawFn, *, with_offsets: bool
) -> tuple[list[Any], dict[str, Any], list[int] | None]:
    """Draw files, settings of `Index.group`, and the offsets in ns."""
    offsets = st.lists(st.integers(-40, 40), min_size=1, max_size=4, unique=True)
    shifts = draw(offsets) if with_offsets else None
    times = st.none() | (TIMES if shifts is None else FEW_TIMES)
    files = draw(st.lists(st.tuples(st.sampled_from([1, 2, 3]), times), min_size=1, max_size=30))
    tolerance = draw(st.integers(0, 40) | st.integers(0, 10**18))
    options: dict[str, Any] = {"missing": draw(st.sampled_from(["drop", "keep"]))}
    if shifts is None:
        timed = {channel for channel, time in files if time is not None}
        order = draw(st.permutations([1, 2, 3]))
        options["channels"] = [channel for channel in order if channel in timed] or order
    else:  # more than twice the tolerance apart
        options["channels"] = draw(st.sampled_from([None, [1], [2, 1]]))
        gaps = [b - a for a, b in itertools.pairwise(sorted(shifts))]
        tolerance = min([tolerance % 10, *((gap - 1) // 2 for gap in gaps)])
        options["offsets"] = [shift / 1e9 for shift in shifts]
    options["tolerance"] = tolerance / 1e9
    if draw(st.booleans()):
        spare = draw(st.integers(1, 21))
        options["cadence"] = (2 * nanoseconds(options["tolerance"]) + spare) / 1e9
    return files, options, shifts


@pytest.mark.parametrize("with_offsets", [False, True])
@given(data=st.data())
def test_against_all_pairs(data: st.DataObject, with_offsets: bool) -> None:
    files, options, shifts = data.draw(groupings(with_offsets=with_offsets))
    table = {
        "path": [f"/{number}" for number in range(len(files))],
        "wavelnth": [channel for channel, _ in files],
        "t_obs": pa.array([time for _, time in files], pa.timestamp("ns")),
    }
    index = Index(pa.table(table))
    timed = {channel for channel, time in files if time is not None}
    if not timed or not timed >= set(options["channels"] or timed):
        with pytest.raises(ValueError, match=r"is empty in all|has no "):
            index.group(**options)
        return
    try:
        grouping = Grouping(**options)
    except ValueError:  # a cadence that rounding made too small
        assert "cadence" in options
        return
    expected = all_pairs(files, grouping, shifts)
    if not expected:
        with pytest.raises(ValueError, match="no sample has all"):
            index.group(**options)
        return
    found = index.group(**options).table
    assert found["time"].cast(pa.int64()).to_pylist() == [time for time, _ in expected]
    for place, part in enumerate(index.group(**options).parts):
        rows = [sample[place] for _, sample in expected]
        paths = [None if row is None else f"/{row}" for row in rows]
        assert found[f"path_{part}"].to_pylist() == paths
        away = [
            np.nan if row is None else (files[row][1] - time) / 1e9
            for row, (time, _) in zip(rows, expected, strict=True)
        ]
        np.testing.assert_array_equal(found[f"dt_{part}"].to_numpy(), away)
    firsts = [next(f"/{row}" for row in sample if row is not None) for _, sample in expected]
    assert found["path"].to_pylist() == firsts
