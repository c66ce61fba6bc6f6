from __future__ import annotations

import copy
import errno
import itertools
import math
import os
import pickle
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import pyarrow as pa
import pytest
from fakes import BusyReader, FakeReader, FaultyReader, Info, MarkingReader, SlowReader
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from readers import (
    Columns,
    FitsReader,
    Index,
    JpegReader,
    NpyReader,
    Order,
    ReadError,
    ReadReport,
    Schedule,
    Shard,
    Source,
    Tail,
    WeightedOrder,
    Window,
)
from readers.contract import Peek, Reader, Row, Sample

ROWS = 23
TAILS = get_args(Tail)


def columns(num_rows: int = ROWS) -> Columns:
    texts = [f"/row/{number:03}" for number in range(num_rows)]
    label = np.arange(num_rows, dtype="i2") * 10
    return Index(pa.table({"path": texts, "label": label})).columns(["label"])


COLUMNS = columns()
LABEL = "column:label"


def source(
    shard: tuple[int, int] = (0, 1),
    batch_size: int = 4,
    reader: Reader | None = None,
    num_rows: int = ROWS,
    seed: int = 5,
    **settings: Any,
) -> Source:
    in_schedule = ("tail", "epoch", "position")
    schedule = Schedule(
        num_rows=num_rows,
        shard=Shard(*shard),
        batch_size=batch_size,
        **{name: settings.pop(name) for name in in_schedule if name in settings},
    )
    return Source(
        columns=COLUMNS,
        reader=reader or FakeReader(),
        schedule=schedule,
        order=Order(num_rows, seed, settings.pop("shuffle", True)),
        **settings,
    )


class Slot(dict[str, Any]):
    """The arrays of a call, by name, with the report unpacked."""

    def __init__(self, made: Source, count: int) -> None:
        arrays = made(Info(count))
        for spec, array in zip(made.specs, arrays, strict=True):
            spec.check(array)
        super().__init__(zip((spec.name for spec in made.specs), arrays, strict=True))
        (self.report,) = ReadReport.unpack(self["report"][None])
        self.row, self.valid = int(self["row"]), bool(self["valid"])


def epoch_of(made: Source, epoch: int = 0) -> list[Slot]:
    """All slots of one epoch of a shard that begins at 0."""
    before = sum(made.schedule.steps(number) for number in range(epoch))
    counts = range(before * 4, (before + made.schedule.steps(epoch)) * 4)
    return [Slot(made, count) for count in counts]


class TestExactlyOnce:
    @pytest.mark.parametrize("tail", TAILS)
    @pytest.mark.parametrize(("num_shards", "epoch"), [(1, 0), (2, 2), (3, 0), (4, 2)])
    def test_all_shards_together(self, tail: str, num_shards: int, epoch: int) -> None:
        shards = [source((n, num_shards), tail=tail) for n in range(num_shards)]
        slots = [slot for made in shards for slot in epoch_of(made, epoch)]
        met = Counter(slot.row for slot in slots if slot.valid)
        assert set(met.values()) == {1}
        due = ROWS if tail != "drop" else ROWS // (4 * num_shards) * 4 * num_shards
        assert len(met) == due
        for slot in slots:
            assert slot.report.rejected_row is None
            if slot.valid or tail == "fill":
                assert (slot["image"] == slot.row).all()
                assert slot["image"].shape == (2, 3, 1)

    @pytest.mark.parametrize("tail", TAILS)
    def test_shards_take_equally_many_slots(self, tail: str) -> None:
        assert len({len(epoch_of(source((n, 3), tail=tail))) for n in range(3)}) == 1

    def test_order_is_that_of_the_shard(self) -> None:
        rows = [slot.row for slot in epoch_of(source(shuffle=False, tail="drop"))]
        assert rows == list(range(20))
        order = Order(ROWS, 5)
        rows = [slot.row for slot in epoch_of(source((1, 2), tail="drop"), 1)]
        assert rows == [order.row(1, p) for p in (4, 5, 6, 7, 12, 13, 14, 15)]

    def test_a_slot_does_not_depend_on_those_before(self) -> None:
        made = source(flip="hv", crop=(1, 1), window="random")
        in_order = [same(made(Info(count))) for count in range(30)]
        again = pickle.loads(pickle.dumps(made))
        backwards = [same(again(Info(count))) for count in reversed(range(30))]
        assert in_order == backwards[::-1]


def same(arrays: tuple[NDArray[Any], ...]) -> list[bytes]:
    """All that must not differ from call to call: not the report, which has the time in it."""
    return [array.tobytes() for array in arrays[:-1]]


class TestTail:
    def test_partial_has_slots_that_are_not_valid(self) -> None:
        reader = FakeReader()
        last = epoch_of(source(reader=reader, shuffle=False))[-4:]
        assert [slot.valid for slot in last] == [True, True, True, False]
        assert [slot.row for slot in last] == [20, 21, 22, 20]
        assert (last[3]["image"] == -1).all()
        assert reader.read_rows == list(range(ROWS))

    def test_a_batch_without_rows_reads_nothing(self) -> None:
        reader = FakeReader()
        made = source((3, 4), reader=reader)
        last = epoch_of(made)[4:]
        assert len(last) == 4
        assert len(reader.read_rows) == 4
        for slot in last:
            assert not slot.valid
            assert slot["image"].shape == (1, 1, 1)
            assert slot.report.input_bytes == 0

    def test_fill_repeats_rows_from_the_start_of_the_epoch(self) -> None:
        last = epoch_of(source(tail="fill", shuffle=False))[-4:]
        assert [slot.valid for slot in last] == [True, True, True, False]
        assert [slot.row for slot in last] == [20, 21, 22, 0]
        assert (last[3]["image"] == 0).all()

    def test_blanks_are_as_large_as_the_crop(self) -> None:
        last = epoch_of(source(crop=(5, 6)))[-1]
        assert not last.valid
        assert last["image"].shape == (5, 6, 1)


class TestRowsThatCannotBeRead:
    @pytest.mark.parametrize("tail", TAILS)
    @pytest.mark.parametrize(
        ("bad", "crop"),
        [({5}, None), ({4, 5, 6, 7}, (2, 3)), ({0, 22}, (2, 3)), ({*range(22)}, None)],
    )
    def test_told_as_data(self, tail: str, crop: tuple[int, int] | None, bad: set[int]) -> None:
        made = source(reader=FakeReader(frozenset(bad)), tail=tail, crop=crop)
        slots = epoch_of(made)
        due = set(range(ROWS)) if tail != "drop" else {made.order.row(0, p) for p in range(20)}
        assert sorted(slot.row for slot in slots if slot.valid) == sorted(due - bad)
        rejected = [slot for slot in slots if slot.report.rejected_row is not None]
        assert sorted(slot.report.rejected_row or 0 for slot in rejected) == sorted(due & bad)
        for slot in rejected:
            assert not slot.valid
            assert slot.report.reason == f"row {slot.report.rejected_row} is bad"
            assert slot["image"].shape == (2, 3, 1)

    def test_fill_substitutes_a_real_row(self) -> None:
        for slot in epoch_of(source(reader=FakeReader(frozenset({5, 7, 22})), tail="fill")):
            assert slot.row not in (5, 7, 22)
            assert (slot["image"] == slot.row).all()

    @pytest.mark.parametrize("tail", TAILS)
    def test_all_rows(self, tail: str) -> None:
        slots = epoch_of(source(reader=FakeReader(frozenset(range(ROWS))), tail=tail))
        assert not any(slot.valid for slot in slots)
        assert all(slot["image"].shape == (1, 1, 1) for slot in slots)

    def test_a_bad_row_in_the_tail_is_told_once(self) -> None:
        slots = epoch_of(source(reader=FakeReader(frozenset({0})), tail="fill", shuffle=False))
        assert [slot.report.rejected_row for slot in slots if not slot.valid] == [0, None]
        assert slots[-1].row == 20


FAULTS = {
    "KeyError": "KeyError: 'a bug'",
    "peek": "KeyError: 'a bug'",
    "silent": ".*SilentError",
    "missing": "KeyError: 'image'",
    "type": "TypeError: .*'image'.*3-D float32.*got 3-D <f8",
    "order": "TypeError: .*'image'.*got 3-D >f4",
    "ndim": "TypeError: .*'image'.*got 2-D <f4",
    "list": "TypeError: array 'image'.*got list",
}


def test_a_read_that_blocks_is_given_up() -> None:
    made = source(reader=SlowReader(), shuffle=False, read_timeout=0.3)
    started = time.monotonic()
    slots = [Slot(made, count) for count in range(5)]
    assert time.monotonic() - started < 20
    assert [slot.valid for slot in slots] == [True, True, True, False, True]
    assert slots[3].report.rejected_row == 3
    assert re.search("0.3 s .*read_timeout", slots[3].report.reason)


class UnansweredReader(FakeReader):
    """The file system of rows 0 to 9 gives up by itself."""

    def read(self, row: Row, window: Window | None) -> Sample:
        self.peek(row, window)
        return super().read(row, window)

    def peek(self, row: Row, window: Window | None) -> Peek:
        if row.number < 10:
            raise TimeoutError(errno.ETIMEDOUT, "Connection timed out", row.path)
        return super().peek(row, window)


@pytest.mark.parametrize("limit", [None, 60.0])
@pytest.mark.parametrize("tail", TAILS)
def test_a_time_out_of_the_file_system_is_no_limit_of_ours(tail: str, limit: float | None) -> None:
    """It names the file, and other rows are still tried for the size."""
    made = source(reader=UnansweredReader(), shuffle=False, read_timeout=limit, tail=tail)
    slots = [Slot(made, count) for count in range(11)]
    assert [slot.valid for slot in slots] == [False] * 10 + [True]
    for slot in slots[:10]:
        assert re.search("TimeoutError: .*timed out: '/row/00", slot.report.reason)
        assert slot["image"].shape == slots[10]["image"].shape


class HangingReader(FakeReader):
    """Never gives an answer about row 0 and, if `gone`, about no row."""

    gone = False

    def read(self, row: Row, window: Window | None) -> Sample:
        self.peek(row, window)
        return super().read(row, window)

    def peek(self, row: Row, window: Window | None) -> Peek:
        if row.number == 0 or self.gone:
            time.sleep(600)
        return super().peek(row, window)


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("gone", [False, True])
def test_a_size_is_not_awaited_from_who_does_not_answer(tail: str, gone: bool) -> None:
    reader = HangingReader()
    reader.gone = gone
    made = source(reader=reader, shuffle=False, read_timeout=0.2, tail=tail)
    started = time.monotonic()
    slots = [Slot(made, count) for count in range(2)]
    assert time.monotonic() - started < 30
    assert [slot.valid for slot in slots] == [False, not gone]
    assert slots[0].report.rejected_row == 0
    assert slots[0]["image"].shape[0] == (1 if gone else reader.height)


@pytest.mark.parametrize(("fault", "tail"), [*zip(FAULTS, itertools.cycle(TAILS), strict=False)])
def test_a_fault_of_the_reader_is_told_as_data(fault: str, tail: str) -> None:
    made = source(reader=FaultyReader(fault=fault), tail=tail, shuffle=False)
    slots = epoch_of(made)
    assert [slot.report.rejected_row for slot in slots if not slot.valid][:2] == [3, 4]
    for slot in (slots[3], slots[4]):
        assert re.match(FAULTS[fault], slot.report.reason)


@dataclass
class TurningReader(FakeReader):
    turns: ClassVar[bool] = True
    windows: list[Window] = field(default_factory=list)

    def read(self, row: Row, window: Window | None) -> Sample:
        assert window is not None
        self.windows.append(window)
        return super().read(row, window)


class TestTurns:
    def windows(self, **settings: Any) -> list[Window]:
        reader = TurningReader()
        epoch_of(source(reader=reader, crop=(2, 2), tail="drop", **settings))
        return reader.windows

    @pytest.mark.parametrize("window", ["center", "random"])
    def test_angles_and_zooms_are_drawn_from_their_ranges(self, window: str) -> None:
        windows = self.windows(rotate=30.0, zoom=(0.5, 2.0), window=window)
        angles, zooms = ([getattr(w, name) for w in windows] for name in ("angle", "zoom"))
        assert -30 <= min(angles) < -20
        assert 20 < max(angles) < 30
        assert 0.5 <= min(zooms) < 0.7
        assert 1.4 < max(zooms) < 2
        assert all((w.y is None) == (window == "center") for w in windows)

    def test_they_do_not_move_the_window(self) -> None:
        turned, straight = self.windows(rotate=30.0, window="random"), self.windows(window="random")
        assert [(w.y, w.x) for w in turned] == [(w.y, w.x) for w in straight]
        assert {w.angle for w in straight} == {0}
        assert {w.zoom for w in (*turned, *straight)} == {1}

    def test_they_are_the_same_on_other_shards(self) -> None:
        settings = {"rotate": 9.0, "zoom": (1, 2), "window": "random", "batch_size": 1}
        two = [w for n in (0, 1) for w in self.windows(shard=(n, 2), **settings)]
        assert set(two) < set(self.windows(**settings))


class TestEnd:
    def test_nothing_is_read_afterwards(self) -> None:
        reader = FakeReader()
        made = source(reader=reader, num_epochs=2)
        slots = [Slot(made, count) for count in range(100)]
        assert sum(slot.valid for slot in slots) == 2 * ROWS
        assert len(reader.read_rows) == 2 * ROWS
        assert not any(slot.valid for slot in slots[48:])
        assert all(slot.report.input_bytes == 0 for slot in slots[48:])

    def test_epochs_count_from_the_first_ever(self) -> None:
        made = source(num_epochs=2, epoch=1, position=20)
        assert [Slot(made, count).valid for count in range(8)] == [True] * 3 + [False] * 5

    @pytest.mark.parametrize("tail", TAILS)
    def test_no_epochs(self, tail: str) -> None:
        reader = FakeReader()
        assert not Slot(source(reader=reader, num_epochs=0, tail=tail, crop=(5, 6)), 0).valid
        assert reader.read_rows == []


class TestDraws:
    def drawn(
        self, num_shards: int, batch_size: int, **settings: Any
    ) -> dict[int, tuple[float, float, int, int]]:
        """Return the draws of each row in epoch 1."""
        found = {}
        for shard_id in range(num_shards):
            made = source(
                (shard_id, num_shards),
                batch_size,
                crop=(1, 1),
                window="random",
                flip="hv",
                epoch=1,
                **settings,
            )
            for count in range(made.schedule.steps(1) * batch_size):
                slot = Slot(made, count)
                if slot.valid:
                    found[slot.row] = (*slot["window"].tolist(), *slot["flip"].tolist())
        return found

    @pytest.mark.parametrize(("num_shards", "batch_size"), [(1, 23), (2, 4), (4, 3), (3, 1)])
    def test_shards_and_batches_do_not_count(self, num_shards: int, batch_size: int) -> None:
        alone = self.drawn(1, 1)
        assert len(set(alone.values())) == ROWS
        assert self.drawn(num_shards, batch_size) == alone

    def test_resumed(self) -> None:
        rest = self.drawn(1, 4, position=9)
        assert rest.items() <= self.drawn(1, 1).items()
        assert len(rest) == ROWS - 9

    def test_the_seed_counts(self) -> None:
        assert self.drawn(1, 1) != self.drawn(1, 1, seed=6)

    @pytest.mark.parametrize(
        ("flip", "kinds"),
        [
            ("h", {(0, 0), (1, 0)}),
            ("v", {(0, 0), (0, 1)}),
            ("hv", {(0, 0), (1, 0), (0, 1), (1, 1)}),
        ],
    )
    def test_flips(self, flip: str, kinds: set[tuple[int, int]]) -> None:
        made = source(flip=flip)
        assert {tuple(slot["flip"].tolist()) for slot in epoch_of(made)} == kinds

    def test_no_flips_travel_where_none_are_asked_for(self) -> None:
        assert "flip" not in [spec.name for spec in source().specs]
        assert "flip" not in Slot(source(), 0)

    def test_centre(self) -> None:
        slots = epoch_of(source(crop=(1, 1)))
        assert all(np.isnan(slot["window"]).all() for slot in slots)


def test_columns_travel_with_their_row() -> None:
    made = source(sent_columns=("label",))
    assert [spec.name for spec in made.specs[-4:]] == ["row", "valid", LABEL, "report"]
    for slot in epoch_of(made):
        assert slot[LABEL] == slot.row * 10
        assert slot[LABEL].dtype == np.int16


@pytest.mark.parametrize("tail", TAILS)
def test_an_index_file_that_is_written_to_is_told_as_data(tmp_path: Path, tail: str) -> None:
    file = tmp_path / "index.arrow"
    label = np.arange(ROWS, dtype="i2")
    Index(pa.table({"path": [f"/{row}" for row in label], "label": label})).save(file)
    made = source(tail=tail, sent_columns=("label",), crop=(2, 3))
    made.columns = Index.load(file).columns(["label"])
    before = Slot(made, 1)
    assert before.valid
    assert before[LABEL] == before.row
    os.truncate(file, 900)
    for found in epoch_of(made):
        assert not found.valid
        assert found["image"].shape == (2, 3, 1)
        if found.report.rejected_row is not None:
            assert "written to" in found.report.reason
    rejected = {found.report.rejected_row for found in epoch_of(made)} - {None}
    assert len(rejected) == (20 if tail == "drop" else ROWS)


def test_a_column_alone_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_name: str, row: int) -> None:
        raise ReadError("index.arrow", "gone", row=row)

    made = source(sent_columns=("label",))
    monkeypatch.setattr(made, "columns", copy.copy(COLUMNS))
    monkeypatch.setattr(made.columns, "value", fail)
    found = Slot(made, 0)
    assert (found.valid, found[LABEL], found.report.reason) == (False, 0, "gone")
    assert found.report.rejected_row == found.row


class BrokenWeights:
    """Weights in a file that cannot be read."""

    def __len__(self) -> int:
        return ROWS

    def row(self, share: float) -> int:
        del share
        raise ReadError("weights", "gone")


@pytest.mark.parametrize(
    ("tail", "crop"), [("drop", None), ("partial", (2, 3)), ("fill", None), ("fill", (2, 3))]
)
def test_weights_that_cannot_be_read_are_told_as_data(tail: str, crop: Any) -> None:
    made = replace(source(tail=tail, crop=crop), order=WeightedOrder(BrokenWeights()))
    for found in epoch_of(made):
        assert not found.valid
    assert Slot(made, 0).report.reason == "gone"


def test_the_report_counts_bytes_and_seconds() -> None:
    slot = Slot(source(), 0)
    assert slot.report.input_bytes == 10
    assert 0 < slot.report.read_s < 10
    assert 0 <= slot.report.read_cpu_s <= slot.report.read_s


@pytest.mark.parametrize("limit", [None, 30.0])
def test_the_report_tells_computing_from_waiting(limit: float | None, tmp_path: Path) -> None:
    """Also where a time limit has the read done in another thread."""
    waits, computes = (
        Slot(source(reader=reader, read_timeout=limit), 0).report
        for reader in (MarkingReader(folder=str(tmp_path), pause_s=0.2), BusyReader(busy_s=0.2))
    )
    # The clocks of the thread and of the machine drift apart by some permille.
    assert waits.read_cpu_s < 0.1 < 0.19 <= waits.read_s
    assert 0.19 <= computes.read_cpu_s <= computes.read_s


@given(st.integers(0, 2**50), st.sampled_from(TAILS), st.integers(0, 3))
def test_no_count_raises(count: int, tail: str, shard_id: int) -> None:
    made = source((shard_id, 4), tail=tail, reader=FakeReader(frozenset({1, 2})))
    slot = Slot(made, count)
    assert 0 <= slot.row < ROWS


@pytest.mark.parametrize("reader", [FakeReader(), FitsReader(), JpegReader(), NpyReader()])
def test_pickled_it_is_small_and_works(reader: Reader) -> None:
    made = source(reader=reader, sent_columns=("label",), crop=(2, 2))
    content = pickle.dumps(made)
    assert len(content) < 10_000
    again = pickle.loads(content)
    assert again.specs == made.specs
    assert same(again(Info(3))) == same(made(Info(3)))


def test_another_process_gives_the_same(fresh_python: Callable[..., bytes]) -> None:
    made = source((1, 2), crop=(1, 1), window="random", flip="hv", sent_columns=("label",))
    code = (
        "import pickle, sys; from fakes import Info; made = pickle.load(sys.stdin.buffer)\n"
        "slots = [[a.tobytes() for a in made(Info(n))[:-1]] for n in range(20)]\n"
        "sys.stdout.buffer.write(pickle.dumps(slots))"
    )
    expected = [same(made(Info(count))) for count in range(20)]
    assert pickle.loads(fresh_python(code, stdin=pickle.dumps(made))) == expected


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"window": "centre"}, "window.*'center', 'random', 'row'.*'centre'"),
    ({"flip": "vh"}, "flip.*'h', 'v', 'hv'.*'vh'"),
    ({"crop": (0, 5)}, r"crop.*1x1.*\(0, 5\)"),
    ({"rotate": 5.0, "crop": (2, 2)}, "rotate and zoom.*Reader.*FakeReader"),
    ({"zoom": (1, 2), "crop": (2, 2)}, "rotate and zoom.*Reader.*FakeReader"),
    ({"rotate": 5.0}, "rotate and zoom.*crop"),
    ({"rotate": 5.0, "reader": TurningReader()}, "rotate and zoom.*crop"),
    ({"rotate": -1.0}, "rotate.*0 to 180.*-1"),
    ({"rotate": math.nan}, "rotate.*0 to 180.*nan"),
    *(
        ({"zoom": zoom}, r"zoom.*\(least, most\).*0.001 to 1000.*got \(")
        for zoom in ((2, 1), (0, 1), (1e-4, 1), (1, 1001), (1, math.nan), (math.nan, 1))
    ),
    *(
        ({"random_area": area}, r"random_area.*\(least, most\).*got \(")
        for area in ((0, 1), (0.5, 0.1), (1, 1.5), (math.nan, 1))
    ),
    ({"random_area": (0.1, 1)}, "random_area.*Reader.*FakeReader"),
    ({"random_area": (0.1, 1), "random_aspect_ratio": (2, 1)}, r"random_aspect_ratio.*\(2, 1\)"),
    ({"random_aspect_ratio": (1, 2)}, "random_aspect_ratio needs random_area"),
    *(
        ({"random_area": (0.1, 1), **other}, "random_area.*leave out crop")
        for other in ({"crop": (2, 2)}, {"window": "random"}, {"resize_shorter": 8})
    ),
    ({"random_area": (0.1, 1), "rotate": 5.0}, "rotate and zoom.*windows"),
    ({"resize_shorter": 8, "crop": (2, 2), "zoom": (1, 2)}, "rotate and zoom.*windows"),
    ({"resize_shorter": 8}, "resize_shorter needs a crop"),
    ({"resize_shorter": 8, "crop": (9, 20)}, "crop 9x20.*resize_shorter=8"),
    ({"resize_shorter": 8, "crop": (2, 2)}, "resize_shorter.*Reader.*FakeReader"),
]


@pytest.mark.parametrize(("settings", "words"), ERRORS)
def test_errors(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        source(**settings)
