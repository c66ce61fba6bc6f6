from __future__ import annotations

import re
import subprocess
from collections import Counter
from hashlib import blake2b
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from readers import Index, TimeBlocks, TimeOrder

SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}
DAY = 86_400_000_000_000


def index(paths: Any, **columns: Any) -> Index:
    return Index(pa.table({"path": paths, **columns}))


def many(count: int = 20_000) -> Index:
    return index([f"/archive/é{row}.fits" for row in range(count)])


def part_of(parts: dict[str, Index], column: str = "path") -> dict[Any, str]:
    """Return the part of each value; each lies in one."""
    found: dict[Any, str] = {}
    for name, part in parts.items():
        for value in part.table[column].to_pylist():
            assert found.setdefault(value, name) == name
    return found


def days(numbers: Any) -> Index:
    times = pa.array((np.asarray(numbers, float) * DAY).astype(np.int64), pa.timestamp("ns"))
    return index([f"/{row}" for row in range(len(times))], t_obs=times)


class TestByHash:
    def test_fractions(self) -> None:
        """Within four standard deviations of a binomial distribution."""
        parts = many().split(SHARES)
        assert [*parts] == [*SHARES]
        assert sum(map(len, parts.values())) == 20_000
        for name, share in SHARES.items():
            spread = (20_000 * share * (1 - share)) ** 0.5
            assert abs(len(parts[name]) - 20_000 * share) < 4 * spread

    def test_the_hash_is_that_of_b2sum(self) -> None:
        """Which anybody can compute again, in any language."""
        paths = [f"/é{row}.fits" for row in range(50)]
        hashes = [
            int(
                subprocess.run(
                    ["b2sum", "-l", "64"], input=path.encode(), capture_output=True, check=True
                ).stdout.split()[0],
                16,
            )
            for path in paths
        ]
        found = part_of(index(paths).split({"low": 0.3, "high": 0.7}))
        assert found == {
            path: "low" if hash_ < 0.3 * 2**64 else "high"
            for path, hash_ in zip(paths, hashes, strict=True)
        }

    @given(st.data())
    def test_rows_keep_their_part(self, data: st.DataObject) -> None:
        """Whatever other rows there are, and in whatever order, repeated or not."""
        before = part_of(many(300).split(SHARES))
        rows = data.draw(st.lists(st.integers(0, 299), min_size=100))
        added = index([f"/new{number}" for number in range(30)])
        mixed = Index.concat([added, many(300).select(rows)])
        try:
            after = part_of(mixed.split(SHARES))
        except ValueError:  # a part has no row
            assume(False)
        assert {path: part for path, part in after.items() if path in before}.items() <= (
            before.items()
        )

    @pytest.mark.parametrize(
        "values",
        [
            [f"nuit-é{n}" for n in range(40)],
            [*range(-20, 20)],
            [b"\xff" * n for n in range(1, 41)],
            np.datetime64("2015-01-01") + np.arange(40),
        ],
    )
    def test_rows_of_one_value_stay_together(self, values: Any) -> None:
        nights = np.tile(values, 50) if not isinstance(values[0], bytes) else list(values) * 50
        given = many(2000).with_column("night", nights)
        parts = given.split({"a": 0.5, "b": 0.5}, by="night")
        assert len(part_of(parts, "night")) == 40
        assert sum(map(len, parts.values())) == 2000

    def test_equal_values_of_other_types(self) -> None:
        """So that a catalogue that was stored in another way splits alike."""
        given = many(2000)
        numbers = np.arange(2000)
        expected = part_of(given.with_column("x", numbers).split(SHARES, by="x"))
        times = numbers * 1000
        for values in (
            pa.array(numbers, pa.uint16()),
            numbers.astype(str),
            pa.array(numbers.astype(str)).dictionary_encode(),
        ):
            assert part_of(given.with_column("x", values).split(SHARES, by="x")) == expected
        parts = [
            part_of(
                given.with_column("x", pa.array(found, pa.timestamp(unit))).split(SHARES, by="x")
            )
            for found, unit in ((times, "ns"), (times // 1000, "us"))
        ]
        assert parts[0] == parts[1]

    @pytest.mark.parametrize(
        ("columns", "by"),
        [
            ({}, "path"),
            ({"key": ["night"] * 90}, "path"),  # the user's own
            ({"key": [None, *range(89)]}, "path"),
            ({"key": [0.5] * 90, "offsets": [0] * 90}, "path"),
            ({"offset": [512] * 90, "nbytes": [9] * 90}, "path"),
            ({"key": [*range(90)], "offset": [512] * 90, "nbytes": [9] * 90}, "key"),
        ],
        ids=lambda value: value if isinstance(value, str) else ",".join(value),
    )
    def test_the_usual_column_is_key_only_for_members_of_containers(
        self, columns: dict[str, Any], by: str
    ) -> None:
        given = index([f"/{row}" for row in range(90)], **columns)
        shares = {"a": 0.5, "b": 0.5}
        assert part_of(given.split(shares)) == part_of(given.split(shares, by=by))

    def test_plain_files_beside_members_of_containers(self) -> None:
        """Members stay in the part of their key, and files in that of their path."""
        keys = [None if row % 3 else f"k{row // 6}" for row in range(90)]
        offsets = [None if key is None else 512 for key in keys]
        columns = {"key": keys, "offset": offsets, "nbytes": offsets}
        given, shares = index([f"/{row}" for row in range(90)], **columns), {"a": 0.5, "b": 0.5}
        parts = part_of(given.split(shares))
        members = np.flatnonzero(np.arange(90) % 3 == 0)
        files = np.flatnonzero(np.arange(90) % 3)
        for rows, by in ((members, "key"), (files, "path")):
            expected = part_of(Index(given.table.take(rows)).split(shares, by=by))
            assert {path: parts[path] for path in expected} == expected

    def test_other_seeds(self) -> None:
        splits = [
            tuple(len(part) for part in many(1000).split(SHARES, seed=n).values()) for n in range(5)
        ]
        assert len(set(splits)) > 1
        assert part_of(many(100).split(SHARES, seed=7)) == part_of(
            many(100).split(SHARES, seed=np.int64(7))  # type: ignore[arg-type]
        )

    def test_columns_and_order_are_kept(self) -> None:
        parts = many(500).with_column("x", range(500)).split(SHARES)
        for part in parts.values():
            assert part.table["x"].to_pylist() == sorted(part.table["x"].to_pylist())

    @pytest.mark.parametrize(
        ("fractions", "words"),
        [
            ({"a": 0.8, "b": 0.1}, "add up to 1.*'a': 0.8, 'b': 0.1.*0.9"),
            ({"a": 80, "b": 20}, "add up to 1"),
            ({"a": 1, "b": 0}, "above 0"),
            ({"a": 1.5, "b": -0.5}, "above 0"),
            ({"a": float("nan"), "b": 1}, "above 0"),
            ({"a": "1"}, "above 0"),
            ({"a": True}, "above 0"),
            ({}, "dict"),
            ([0.8, 0.2], "dict"),
        ],
    )
    def test_invalid_fractions(self, fractions: Any, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            many(10).split(fractions)

    @pytest.mark.parametrize(
        ("column", "by", "error", "words"),
        [
            ([1, 2, 3], "nigth", KeyError, "'nigth': did you mean night"),
            ([1, None, None], "night", ValueError, r"empty in 2 rows, .*row 1 \(/b\)"),
            ([1.5, 2, 3], "night", TypeError, "'night' is double.*text, bytes, int"),
            ([1, 1, 1], "night", ValueError, "none of 3 rows"),
            ([1, 2, 3], TimeBlocks("night", "1 d"), TypeError, "'night'.*times"),
            ([1, 2, 3], TimeBlocks("T", "1 d"), KeyError, "'T'"),
            (
                pa.array([0, 0, None], pa.timestamp("s")),
                TimeBlocks("night", "1 d"),
                ValueError,
                r"'night' is empty in 1 rows, .*row 2 \(/c\)",
            ),
        ],
    )
    def test_errors(self, column: Any, by: Any, error: type[Exception], words: str) -> None:
        with pytest.raises(error, match=words):
            index(["/a", "/b", "/c"], night=column).split({"a": 0.5, "b": 0.5}, by=by)

    def test_one_row(self) -> None:
        assert len(index(["/a"]).split({"all": 1})["all"]) == 1
        with pytest.raises(ValueError, match="none of 1 rows"):
            index(["/a"]).split(SHARES)

    def test_a_seed_that_fills_each_part_is_named(self) -> None:
        """Where one of the next seeds does, also for blocks of time; not where none can."""
        shares = {"a": 0.9, "b": 0.1}
        blocks = TimeBlocks("t_obs", "10 d")
        cases: list[tuple[Index, Any]] = [
            (index([f"/{row % 6}" for row in range(480)]), None),
            (days(np.arange(0, 25, 0.25)), blocks),
        ]
        for rows, by in cases:
            seeds = []
            for seed in range(30):
                try:
                    rows.split(shares, by=by, seed=seed)
                except ValueError as error:
                    found = re.search(r"seed=(\d+)", str(error))
                    assert found is not None
                    seeds.append(int(found[1]))
                    assert int(found[1]) > seed
            assert seeds
            for seed in set(seeds):
                assert all(map(len, rows.split(shares, by=by, seed=seed).values()))
        with pytest.raises(ValueError, match="none of 3 rows: use fewer parts") as caught:
            index(["/a"] * 3).split(shares)
        assert "seed" not in str(caught.value)


class TestTimeOrder:
    @given(
        st.lists(st.integers(0, 30), min_size=2, max_size=60),
        st.sampled_from([{"a": 0.5, "b": 0.5}, SHARES, {"a": 0.34, "b": 0.33, "c": 0.33}]),
        st.sampled_from([0, 1, 3]),
    )
    def test_no_row_is_later_than_one_of_the_next_part(
        self, numbers: list[int], shares: dict[str, float], gap: int
    ) -> None:
        """Parts follow each other, at least a gap apart; rows of one time stay together."""
        given = days(numbers)
        try:
            parts = given.split(shares, by=TimeOrder("t_obs", f"{gap} d"))
        except ValueError:  # a part has no row
            assume(False)
        times = [part.table["t_obs"].to_numpy().astype(np.int64) // DAY for part in parts.values()]
        for before, after in pairwise(times):
            assert before.max() + gap < after.min()
        kept = np.concatenate(times)
        starts = [part.min() for part in times[1:]]
        left = [day for day in numbers if day not in kept]
        assert len(kept) + len(left) == len(numbers)
        for day in left:
            assert any(day < start <= day + gap for start in [*starts, *numbers])

    def test_fractions(self, caplog: pytest.LogCaptureFixture) -> None:
        """As scikit-learn's split without shuffling has them, of rows in the order of time."""
        order = np.random.default_rng(0).permutation(200)
        parts = days(order).split(SHARES, by=TimeOrder("t_obs"))
        assert [len(part) for part in parts.values()] == [160, 20, 20]
        assert sorted(parts["val"].table["path"].to_pylist()) == sorted(
            f"/{row}" for row in np.flatnonzero((order >= 160) & (order < 180))
        )
        with caplog.at_level("INFO"):
            parts = days(order).split(SHARES, by=TimeOrder("t_obs", "2 d"))
        assert [len(part) for part in parts.values()] == [158, 18, 20]
        [message] = caplog.messages
        assert re.match("4 of 200 rows .*gaps", message)

    def test_a_gap_that_is_longer_than_a_part(self) -> None:
        with pytest.raises(ValueError, match=r"'val' would get none.*shorter gap"):
            days(np.arange(100)).split(SHARES, by=TimeOrder("t_obs", "11 d"))
        shares = {"a": 0.5, "b": 0.1, "c": 0.4}
        late = days([*range(50), *[58] * 10, *range(60, 100)])
        parts = late.split(shares, by=TimeOrder("t_obs", "1 d"))
        assert [len(part) for part in parts.values()] == [50, 10, 40]
        with pytest.raises(ValueError, match="'b' would get none"):
            late.split(shares, by=TimeOrder("t_obs", "8.9e9 s"))

    @pytest.mark.parametrize(
        ("column", "by", "seed", "error", "words"),
        [
            ([1, 2, 3], TimeOrder("night"), 0, TypeError, "'night'.*times"),
            ([1, 2, 3], TimeOrder("T"), 0, KeyError, "'T'"),
            (pa.array([0, None, 1], pa.timestamp("s")), TimeOrder("night"), 0, ValueError, "row 1"),
            (pa.array([0, 2, 1], pa.timestamp("s")), TimeOrder("night"), 1, ValueError, "seed=1"),
            (pa.array([0, 0, 0], pa.timestamp("s")), TimeOrder("night"), 0, ValueError, "'a'"),
        ],
    )
    def test_errors(
        self, column: Any, by: TimeOrder, seed: int, error: type[Exception], words: str
    ) -> None:
        with pytest.raises(error, match=words):
            index(["/a", "/b", "/c"], night=column).split({"a": 0.5, "b": 0.5}, by=by, seed=seed)
        with pytest.raises(ValueError, match="gap"):
            TimeOrder("night", gap="-1 d")


class TestTimeBlocks:
    def test_fractions_of_few_blocks(self) -> None:
        """Three years of blocks of 30 days: whole blocks, as many as wanted, but for one."""
        parts = days(np.arange(0, 1080, 0.25)).split(SHARES, by=TimeBlocks("t_obs", "30 d"))
        blocks = {
            name: Counter(part.table["t_obs"].to_numpy().astype(np.int64) // (30 * DAY))
            for name, part in parts.items()
        }
        assert sorted(block for part in blocks.values() for block in part) == [*range(36)]
        assert all(count == 120 for part in blocks.values() for count in part.values())
        for name, share in SHARES.items():
            assert abs(len(blocks[name]) - 36 * share) <= 1

    def test_each_ten_blocks_have_the_fractions(self) -> None:
        by = TimeBlocks("t_obs", "1 d")
        parts = days(np.arange(-3000, 3000)).split(SHARES, by=by, seed=3)
        numbers = {
            name: part.table["t_obs"].to_numpy().astype(np.int64) // DAY
            for name, part in parts.items()
        }
        for name, share in SHARES.items():
            assert (np.unique(numbers[name] // 10, return_counts=True)[1] == 10 * share).all()
        small = days(np.arange(-3000, 3000)).split({"a": 0.95, "b": 0.05}, by=by, seed=3)["b"]
        numbers["b"] = small.table["t_obs"].to_numpy().astype(np.int64) // DAY
        assert (np.diff(numbers["b"] // 20) == 1).all()
        assert len(numbers["b"]) == 300
        # 600 runs: in each place of a run 60 blocks, with a standard deviation of 7.3.
        assert np.abs(np.bincount(numbers["val"] % 10) - 60).max() < 4 * 7.3

    @pytest.mark.parametrize("block", ["7 d", "14 d", "27 d", "36.525 d", "60 d"])
    def test_seeds_and_seasons(self, block: str) -> None:
        """Ten years: seeds have few rows in common, and no block length favours months."""
        given, by = days(np.arange(14975, 14975 + 3652)), TimeBlocks("t_obs", block)
        parts = [given.split(SHARES, by=by, seed=seed)["val"].table["t_obs"] for seed in range(12)]
        times = [part.to_numpy() for part in parts]
        shared = [len(np.intersect1d(*two)) / len(two[0]) for two in combinations(times, 2)]
        assert 0 < np.mean(shared) < 0.2
        months = [len({*(part.astype("M8[M]").astype(int) % 12)}) for part in times]
        assert np.mean(months) > 10

    @pytest.mark.parametrize("seed", [0, 2**64 - 1])
    def test_the_hash_is_as_documented(self, seed: int) -> None:
        """Computed again with the integers of Python."""
        mask = 2**64 - 1
        salt = seed.to_bytes(8, "little")
        start = int.from_bytes(blake2b(b"", digest_size=8, salt=salt).digest())

        def mix(value: int) -> int:
            value &= mask
            value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & mask
            value = ((value ^ value >> 27) * 0x94D049BB133111EB) & mask
            return value ^ value >> 31

        def h(number: int) -> int:
            return mix(number * 0x9E3779B97F4A7C15 + start)

        def part(block: int) -> str:
            run = block // 10
            r = sum(h(10 * run + other) < h(block) for other in range(10))
            twentieth = 2 * r + (mix(h(run // 2) + r) + run) % 2
            hash_ = twentieth * (2**64 // 20) + h(block) % 2**32 * (2**32 // 20)
            return "low" if hash_ < 0.37 * 2**64 else "high"

        numbers = range(-60, 60)
        by = TimeBlocks("t_obs", "1 d")
        found = part_of(days(numbers).split({"low": 0.37, "high": 0.63}, by=by, seed=seed))
        assert found == {f"/{row}": part(number) for row, number in enumerate(numbers)}

    @given(
        st.lists(st.floats(-5000, 20000), min_size=100, max_size=300),
        st.floats(0.01, 0.99),
        st.integers(0, 2**64 - 1),
    )
    def test_parts_are_a_gap_apart(self, numbers: list[float], gap: float, seed: int) -> None:
        given = days(numbers)
        by = TimeBlocks("t_obs", 20 * 86400, gap * 20 * 86400)
        try:
            parts = given.split({"a": 0.6, "b": 0.4}, by=by, seed=seed)
        except ValueError:  # a part has no row
            assume(False)
        first, second = (part.table["t_obs"].to_numpy().astype(np.int64) for part in parts.values())
        assert np.abs(first[:, None] - second).min() >= round(gap * 20 * 86400 * 1e9)

    def test_rows_in_gaps_are_counted(self, caplog: pytest.LogCaptureFixture) -> None:
        given = days(np.arange(0, 300, 0.5))
        with caplog.at_level("INFO"):
            parts = given.split(SHARES, by=TimeBlocks("t_obs", "10 d", "2 d"))
        left = len(given) - sum(map(len, parts.values()))
        [message] = caplog.messages
        assert re.match(f"{left} of 600 rows .*gaps", message)
        # Only where the part changes: 4 rows each, at a third of 30 borders or so.
        assert left % 4 == 0
        assert 4 * 4 < left < 20 * 4

    def test_gaps_make_small_parts_smaller(self) -> None:
        parts = days(np.arange(30_000)).split(SHARES, by=TimeBlocks("t_obs", "10 d", "2 d"))
        sizes = np.array([len(part) for part in parts.values()])
        np.testing.assert_allclose(sizes / sizes.sum(), [0.827, 0.087, 0.087], atol=0.002)
        assert 1 - sizes.sum() / 30_000 == pytest.approx(0.07, abs=0.005)

    def test_rows_keep_their_part(self) -> None:
        by = TimeBlocks("t_obs", "10 d", "1 d")
        before = part_of(days(np.arange(0, 500, 1)).split(SHARES, by=by), "t_obs")
        after = part_of(days(np.arange(900, -100, -0.5)).split(SHARES, by=by), "t_obs")
        assert before.items() <= after.items()

    def test_dates_and_units(self) -> None:
        dates = pd.date_range("1960-01-01", "2030-01-01", freq="7D")
        given = many(len(dates))
        parts = [
            part_of(given.with_column("t", values).split(SHARES, by=TimeBlocks("t", block, gap)))
            for values, block, gap in (
                (dates.to_numpy().astype("M8[ns]"), "30d", "2d"),
                (dates.to_numpy().astype("M8[s]"), 30 * 86400, 2 * 86400),
                (dates.to_numpy().astype("M8[D]"), "720 h", "48 h"),
            )
        ]
        assert parts[0] == parts[1] == parts[2]

    @pytest.mark.parametrize(
        ("block", "gap", "words"),
        [
            (0, 0, "gap.*shorter than block"),
            ("1 d", "1 d", "gap.*shorter than block"),
            ("1 d", "-1 h", "gap.*from 0"),
            (True, 0, "block.*seconds.*True"),
            ("1 parsec", 0, "block.*seconds.*1 parsec"),
        ],
    )
    def test_errors(self, block: Any, gap: Any, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            TimeBlocks("t_obs", block, gap)


def test_of_a_mapped_file(tmp_path: Path) -> None:
    many(1000).save(tmp_path / "index.arrow")
    mapped = Index.load(tmp_path / "index.arrow")
    assert part_of(mapped.split(SHARES)) == part_of(many(1000).split(SHARES))
