"""The table of a huge Index, here of a small one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from benchmarks.sheets import index as rows_sheet
from benchmarks.sheets.index import deliver, index_sheet, path_of, rows_of
from readers import Order, Schedule, Shard


@dataclass(frozen=True)
class Settings:
    quick: bool = True
    data: str | None = None
    rounds: int = 1
    num_read_processes: int = 2
    num_threads: int = 1
    correction_table: str | None = None


def schedule(num_rows: int, num_ranks: int, batch_size: int, **settings: Any) -> Schedule:
    return Schedule(
        num_rows=num_rows, shard=Shard(0, num_ranks), batch_size=batch_size, epoch=2, **settings
    )


ranks = st.integers(1, 1100)


@given(st.integers(1, 3000), seeds, ranks, ranks, st.data())
def test_each_row_comes_once_also_after_a_resume_on_other_ranks(
    num_rows: int, seed: int, first: int, then: int, data: st.DataObject
) -> None:
    sizes = st.integers(1, min(num_rows, 40))
    whole = schedule(num_rows, first, data.draw(sizes))
    steps = data.draw(st.integers(0, whole.steps(2)))
    position = min(num_rows, steps * whole.stride)
    rest = schedule(num_rows, then, data.draw(sizes), position=position)
    order = Order(num_rows, seed)
    assert deliver(order, [(whole, None)]).all()
    assert deliver(order, [(whole, steps), (rest, None)]).all()


def test_rows_of_a_rank_are_those_of_schedule_and_order() -> None:
    order, made = Order(1000, 7), replace(schedule(1000, 3, 8, position=100), shard=Shard(1, 3))
    slots = [made.locate(count) for count in range(8 * made.steps(2))]
    expected = [order.row(2, slot.position) for slot in slots if slot.position < 1000]
    assert rows_of(order, made, None).tolist() == expected
    assert rows_of(order, made, 2).tolist() == expected[:16]


def test_a_row_that_is_lost_or_repeated_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = schedule(1000, 3, 8)
    order = Order(1000, 7)
    with pytest.raises(ValueError, match="976 of 1000 rows were dealt out, 24 were not"):
        deliver(order, [(replace(whole, position=24), None)])
    with pytest.raises(ValueError, match="1024 of 1000 rows were dealt out, 0 were not"):
        deliver(order, [(whole, 1), (whole, None)])
    rows = Order.rows

    def wrong(*given: Any) -> Any:
        found = rows(*given)
        found[-1] = found[0]
        return found

    monkeypatch.setattr(Order, "rows", wrong)
    monkeypatch.setattr(rows_sheet, "_ASKED", 10**6)
    with pytest.raises(ValueError, match="1000 of 1000 rows were dealt out, 3 were not"):
        deliver(order, [(whole, None)])
    monkeypatch.setattr(rows_sheet, "_ASKED", 1)
    with pytest.raises(ValueError, match="gives two rows"):
        deliver(order, [(whole, None)])


def test_the_sheet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_sheet, "fresh", lambda step, *given: step(*given))
    monkeypatch.setattr(rows_sheet, "_LOOKUPS", 100)
    monkeypatch.setattr(rows_sheet, "_CHUNK", 2 * rows_sheet._FILES)
    sheet = index_sheet(Settings(), 5003)
    assert sheet.title == "An Index of 5,003 rows"
    assert [line[0].split(" ")[0] for line in sheet.lines] == [
        *("save", "open", "look", "Loader", "Loader", "open,", "shuffle", "stop")
    ]
    assert all(float(line[1]) > 0 and len(line) == len(sheet.header) for line in sheet.lines)


def test_made_up_paths_name_the_files_again_and_again(tmp_path: Path) -> None:
    index = rows_sheet.made_up(str(tmp_path), 2500)
    rows = range(2500)
    assert [index.path(row) for row in rows] == [path_of(str(tmp_path), row) for row in rows]
    assert index.table["number"].to_pylist() == list(rows)


def test_too_little_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("usage", (), {"free": 10**9})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    sheet = index_sheet(Settings(quick=False))
    ((_, why, *_),) = sheet.lines
    assert why.startswith("not run: needs 10.0 GB in /")
    assert why.endswith(", 1.0 GB are free")
