"""The Loader over real DALI pipelines on the CPU: contracts 1 to 5, and 8 for its own processes."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import time
import weakref
from functools import partial
from itertools import islice
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from dali_pipelines import Index, Loader, ReaderProcessError, ReadError, npy_pipeline
from readers.sampling.blocks import BlockOrder
from readers.sampling.order import Order

ROWS, BATCH = 23, 4
DROPPED = {1: 3, 2: 7, 3: 11, 4: 7}
"""Rows that tail `drop` leaves out of 23, by number of shards of batch 4."""


def make_loader(index: Index, **options: Any) -> Loader:
    shards = options.pop("shards", 1)
    settings = {"batch_size": BATCH, "num_read_processes": 2, "devices": [None] * shards}
    return Loader(npy_pipeline, index, **{**settings, **options})


def delivered(steps: Any) -> list[tuple[int, int, int, int, bool]]:
    """Return (step, shard, slot, row, valid) of all slots, after a look at their pixels."""
    slots = []
    for step, batches in enumerate(steps):
        for shard, batch in enumerate(batches):
            rows, valid = batch["row"].tolist(), batch["valid"].tolist()
            assert batch["image"].shape == (len(rows), 1, 6, 8)
            assert pixels_of(batch["image"]) == rows
            slots += [
                (step, shard, slot, *both)
                for slot, both in enumerate(zip(rows, valid, strict=True))
            ]
    return slots


def pixels_of(images: Any) -> list[float]:
    """Return the value of all pixels of each image, from the arrays of any framework."""
    pixels = (images.get() if hasattr(images, "get") else np.asarray(images)).reshape(-1, 48)
    assert (pixels == pixels[:, :1]).all()
    found: list[float] = pixels[:, 0].tolist()
    return found


def rows_of(slots: list[tuple[int, int, int, int, bool]]) -> list[int]:
    return [row for _, _, _, row, valid in slots if valid]


@pytest.mark.parametrize("tail", ["partial", "fill", "drop"])
@pytest.mark.parametrize("shards", [1, 2, 3, 4])
def test_each_row_once_in_the_pure_order(npy_index: Index, shards: int, tail: str) -> None:
    processes = {"partial": shards, "fill": 5, "drop": 3}[tail]
    order = Order(ROWS, seed=5)
    stride = shards * BATCH
    with make_loader(
        npy_index, shards=shards, tail=tail, num_read_processes=processes, seed=5
    ) as loader:
        for epoch in range(2):
            slots = delivered(loader)
            positions = [step * stride + shard * BATCH + slot for step, shard, slot, _, _ in slots]
            expected = [order.row(epoch, position % ROWS) for position in positions]
            assert [row for _, _, _, row, _ in slots] == expected
            assert [valid for *_, valid in slots] == [position < ROWS for position in positions]
            assert len(set(rows_of(slots))) == len(rows_of(slots))
            assert len(rows_of(slots)) == ROWS - (DROPPED[shards] if tail == "drop" else 0)
            assert len({step for step, *_ in slots}) == len(loader)
            if tail != "partial":
                assert len(slots) == len(loader) * stride
    assert loader.epoch == 2


def test_epochs_differ_and_a_seed_repeats_them(npy_index: Index) -> None:
    runs = []
    for seed in (1, 1, 2):
        with make_loader(npy_index, seed=seed) as loader:
            runs.append([rows_of(delivered(loader)) for _ in range(2)])
    assert runs[0] == runs[1]
    assert len({tuple(epoch) for run in runs for epoch in run}) == 4


def test_no_shuffle_keeps_the_index_order(npy_index: Index) -> None:
    with make_loader(npy_index, shuffle=False) as loader:
        assert rows_of(delivered(loader)) == list(range(ROWS))


@pytest.mark.parametrize("tail", ["partial", "fill"])
def test_batches_of_each_framework(npy_index: Index, framework: Any, tail: str) -> None:
    """With full, short and empty ones, and a row that is left out in the middle of one."""
    options = {"framework": framework, "rejected": {9: "bad"}, "bad_sample": "skip"}
    with make_loader(
        npy_index, shards=4, num_read_processes=4, shuffle=False, tail=tail, **options
    ) as loader:
        for _ in range(2):
            slots = delivered(loader)
            assert sorted(rows_of(slots)) == [row for row in range(ROWS) if row != 9]
            assert len(slots) == (ROWS - 1 if tail == "partial" else 32)
            assert list(loader.stats.rejected) == [9]


def test_batches_stay_as_they_were_while_others_come(npy_index: Index, framework: Any) -> None:
    options = {"shuffle": False, "tail": "fill", "framework": framework}
    with make_loader(npy_index, **options) as loader:
        held = [batch for _ in range(3) for (batch,) in loader]
    rows = [row for batch in held for row in batch["row"].tolist()]
    assert rows == [*range(ROWS), 0] * 3
    assert [pixel for batch in held for pixel in pixels_of(batch["image"])] == rows


@pytest.mark.parametrize(
    ("steps", "shards", "batch_size", "framework"),
    [(1, 1, 5, "jax"), (2, 3, 2, "numpy"), (2, 1, 4, "torch")],
)
def test_resume_with_other_shards_and_batch(
    npy_index: Index, steps: int, shards: int, batch_size: int, framework: Any
) -> None:
    with make_loader(npy_index, shards=2, seed=3) as first:
        before = rows_of(delivered(islice(first, steps)))
        state = first.state_dict()
    options = {"batch_size": batch_size, "framework": framework}
    with make_loader(npy_index, shards=shards, seed=8, **options) as second:
        second.load_state_dict(state)
        after = rows_of(delivered(second))
        next_epoch = rows_of(delivered(second))
    order = Order(ROWS, seed=3)
    assert before + after == [order.row(0, position) for position in range(ROWS)]
    assert next_epoch == [order.row(1, position) for position in range(ROWS)]


def test_blocks_and_their_resume(npy_index: Index) -> None:
    with make_loader(npy_index, shards=2, seed=3, shuffle="blocks", block_rows=2) as first:
        before = rows_of(delivered(islice(first, 2)))
        state = first.state_dict()
    assert (state["shuffle"], state["block_rows"]) == ("blocks", 2)
    with make_loader(npy_index, shards=1, seed=8, shuffle="blocks", block_rows=5) as second:
        second.load_state_dict(json.loads(json.dumps(state)))
        after = rows_of(delivered(second))
        next_epoch = rows_of(delivered(second))
        order = BlockOrder(ROWS, seed=3, block_rows=2)
        assert before + after == [order.row(0, position) for position in range(ROWS)]
        assert next_epoch == [order.row(1, position) for position in range(ROWS)]
        second.load_state_dict({**state, "shuffle": True})
        assert rows_of(delivered(second)) == [
            Order(ROWS, seed=3).row(0, position) for position in range(len(before), ROWS)
        ]
        assert "block_rows" not in second.state_dict()


def test_resume_at_the_end_of_an_epoch_begins_the_next(npy_index: Index) -> None:
    with make_loader(npy_index) as loader:
        delivered(loader)
        state = loader.state_dict()
    assert (state["epoch"], state["position"]) == (1, 0)


def test_state_survives_torch_save(npy_index: Index, tmp_path: Path) -> None:
    loader = make_loader(npy_index, seed=4)
    torch.save(loader.state_dict(), tmp_path / "loader.pt")
    loader.load_state_dict(torch.load(tmp_path / "loader.pt"))
    assert loader.state_dict()["seed"] == 4


def test_state_of_another_index_is_refused(npy_index: Index) -> None:
    state = make_loader(npy_index).state_dict()
    other = make_loader(npy_index.select(range(22)))
    with pytest.raises(ValueError, match=r"saved with another Index .* load the Index file"):
        other.load_state_dict(state)
    with pytest.raises(ValueError, match=r"the state lacks \['digest'\]"):
        other.load_state_dict({key: state[key] for key in state if key != "digest"})


def test_break_goes_on_in_the_same_epoch(npy_index: Index) -> None:
    with make_loader(npy_index) as loader:
        first = rows_of(delivered(islice(loader, 2)))
        rest = rows_of(delivered(loader))
    assert sorted(first + rest) == list(range(ROWS))


def test_a_loop_that_goes_back_ends_with_its_epoch(npy_index: Index) -> None:
    """A loop counted its steps when it began, and took the last of them from the next epoch."""
    with make_loader(npy_index) as loader:
        state, rows = loader.state_dict(), list[int]()
        for step, batches in enumerate(loader):
            rows += [row for batch in batches for row in batch["row"].tolist()]
            if step == 1:
                loader.load_state_dict(state)
                rows.clear()
        assert sorted(rows) == list(range(ROWS))
        assert (loader.epoch, loader.step) == (1, 0)


@pytest.fixture
def damaged(npy_folder: Path, tmp_path: Path) -> Index:
    """Rows 6 and 20 cannot be read."""
    folder = tmp_path / "damaged"
    shutil.copytree(npy_folder, folder)
    (folder / "06.npy").write_bytes((folder / "06.npy").read_bytes()[:100])
    (folder / "20.npy").unlink()
    (folder / "20.npy").symlink_to("nowhere")
    return Index.from_paths(sorted(folder.iterdir()))


def test_raise_names_the_file_and_loses_nothing(damaged: Index) -> None:
    with make_loader(damaged, shuffle=False) as loader:
        with pytest.raises(ReadError, match=r"06\.npy \(row 6\): ") as caught:
            delivered(loader)
        assert caught.value.row == 6
        # The state is that before the bad batch, and a new try meets the same file.
        assert loader.state_dict()["position"] == 4
        with pytest.raises(ReadError, match=r"06\.npy"):
            next(iter(loader))


@pytest.mark.parametrize("shards", [1, 2])
def test_skip_delivers_all_others_once(damaged: Index, shards: int) -> None:
    with make_loader(damaged, shards=shards, bad_sample="skip") as loader:
        for _ in range(2):
            rows = rows_of(delivered(loader))
            assert sorted(rows) == [row for row in range(ROWS) if row not in (6, 20)]
    assert sorted(loader.stats.rejected) == [6, 20]
    assert loader.stats.rejected[6].path == damaged.path(6)
    assert "No such file" in loader.stats.rejected[20].reason


def test_the_first_ten_that_are_left_out_are_named(
    npy_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Names of files reach the log without control characters, the other three as a number."""
    folder = tmp_path / "\x1b[31m"
    shutil.copytree(npy_folder, folder)
    for row in range(13):
        (folder / f"{row:02}.npy").write_bytes(b"")
    with caplog.at_level("WARNING"):
        index = Index.scan(folder)
        with make_loader(index, bad_sample="skip", shuffle=False, batch_size=8) as loader:
            delivered(loader)
    assert len(loader.stats.rejected) == 13
    assert [line.startswith("left out: ") for line in caplog.messages] == [True] * 11
    assert caplog.messages[0].startswith(f"left out: {tmp_path}/\\x1b[31m/00.npy (row 0): ")
    assert caplog.messages[10] == "left out: and 3 more, see stats.rejected"


def test_skip_with_fill_keeps_batches_full_with_real_rows(damaged: Index) -> None:
    with make_loader(damaged, shards=2, bad_sample="skip", tail="fill") as loader:
        slots = delivered(loader)  # looks at the pixels
    assert len(slots) == 24
    assert sorted(rows_of(slots)) == [row for row in range(ROWS) if row not in (6, 20)]


def test_what_was_rejected_is_told_with_its_place(damaged: Index) -> None:
    with make_loader(damaged, shards=2, bad_sample="skip", shuffle=False) as loader:
        for _ in range(2):
            delivered(loader)
    found = loader.stats.rejected
    assert [(found[row].epoch, found[row].step) for row in (6, 20)] == [(0, 0), (0, 2)]
    assert found[6].hdu is None
    import pyarrow as pa

    with_hdu = Index(damaged.table.append_column("hdu", pa.array([3] * ROWS, pa.int32())))
    with make_loader(with_hdu, bad_sample="skip") as loader:
        delivered(loader)
    assert loader.stats.rejected[6].hdu == 3


@pytest.mark.parametrize("most", [2, 0.1, 0.99, 1.0])
def test_as_many_bad_rows_as_max_bad_allows(damaged: Index, most: float) -> None:
    with make_loader(damaged, bad_sample="skip", max_bad=most) as loader:
        assert len(rows_of(delivered(loader))) == ROWS - 2


@pytest.mark.parametrize("most", [1, 0.05, 0])
def test_one_more_is_an_error(damaged: Index, most: float) -> None:
    with (
        make_loader(damaged, bad_sample="skip", max_bad=most, shuffle=False) as loader,
        pytest.raises(ReadError, match=rf"rejected rows: \d+, more than max_bad={most} allows"),
    ):
        delivered(loader)
    assert len(loader.stats.rejected) == int(most) + 1 if most >= 1 or most == 0 else 2


def test_columns_travel_with_their_rows(npy_index: Index) -> None:
    import pyarrow as pa

    label = pa.array(np.arange(ROWS) * 10, pa.int64())
    index = Index(npy_index.table.append_column("label", label))
    with make_loader(index, columns=("label",)) as loader:
        for (batch,) in loader:
            assert batch["label"].tolist() == [row * 10 for row in batch["row"].tolist()]


@pytest.mark.parametrize("fate", ["replaced", "written to"])
def test_what_becomes_of_an_index_file(npy_index: Index, tmp_path: Path, fate: str) -> None:
    file = tmp_path / "index.arrow"
    npy_index.save(file)
    with make_loader(Index.scan(file), seed=5, crop=(6, 8), prefetch=1) as loader:
        steps = iter(loader)
        slots = delivered([next(steps)])
        if fate == "replaced":
            npy_index.select([0] * 4).save(file)
            slots += delivered(steps)
            order = Order(ROWS, seed=5)
            assert rows_of(slots) == [order.row(0, position) for position in range(ROWS)]
            return
        os.truncate(file, 1000)
        with pytest.raises(ReadError, match="was written to while it was in use") as caught:
            list(steps)
        assert caught.value.path == str(file)


def test_a_state_goes_from_parquet_to_arrow(npy_index: Index, tmp_path: Path) -> None:
    for name in ("index.parquet", "index.arrow"):
        npy_index.save(tmp_path / name)
    before = make_loader(Index.scan(tmp_path / "index.parquet"), seed=5)
    with before:
        slots = delivered(islice(before, 2))
    with make_loader(Index.scan(tmp_path / "index.arrow"), batch_size=3) as after:
        after.load_state_dict(before.state_dict())
        slots += delivered(after)
    order = Order(ROWS, seed=5)
    assert rows_of(slots) == [order.row(0, position) for position in range(ROWS)]


def test_num_epochs_is_an_end(npy_index: Index) -> None:
    with make_loader(npy_index, num_epochs=1) as loader:
        assert sorted(rows_of(delivered(loader))) == list(range(ROWS))
        with pytest.raises(RuntimeError, match="all num_epochs=1 epochs were delivered"):
            next(iter(loader))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 24, "tail": "drop"}, "tail 'drop' leaves nothing: a step takes 24 rows"),
        ({"batch_size": 0}, "batch_size must be an integer, at least 1, got 0"),
        ({"tail": "drop", "shards": 6}, "tail 'drop' leaves nothing"),
        ({"tail": "pad"}, "tail must be one of partial, fill, drop"),
        ({"max_bad": -1}, "max_bad must be a number of rows, .* got -1"),
        ({"max_bad": 2.5}, "max_bad must be a number of rows, .* got 2.5"),
        ({"max_bad": 2.0}, r"a share of them, from 0.0 to 1.0, got 2.0"),
        ({"max_bad": 2}, "max_bad=2 limits what bad_sample='skip' leaves out"),
        ({"restart_readers": -1}, "restart_readers must be an integer, at least 0, got -1"),
        ({"bad_sample": "ignore"}, "bad_sample must be 'raise' or 'skip', got 'ignore'"),
        ({"batch_size": 4.0}, "batch_size must be an integer, at least 1, got 4.0"),
        ({"num_read_processes": 0}, "num_read_processes must be an integer, at least 1, got 0"),
        ({"devices": []}, r"devices must be a list, as \[0\] or \[None\] for the CPU, got \[\]"),
        ({"devices": 0}, "devices must be a list, .* got 0"),
        ({"devices": "cpu"}, "devices must be a list, .* got 'cpu'"),
        ({"shard_id": 1}, "give both shard_id and num_shards, or neither"),
    ],
)
def test_wrong_settings_are_told_at_once(
    npy_index: Index, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_loader(npy_index, **options)


def test_a_gpu_that_is_not_there_is_told_before_readers_start(
    npy_index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dali_pipelines.runtime.devices.visible_gpus", lambda: 0)
    monkeypatch.setattr("dali_pipelines.runtime.devices._count_gpus", lambda visible: 0)
    loader = Loader(npy_pipeline, npy_index, batch_size=2, devices=[0])
    with pytest.raises(ValueError, match=r"no GPU is visible .*; devices=\[None\] runs on the CPU"):
        next(iter(loader))
    assert not loader.pipelines


def test_a_path_is_no_index() -> None:
    for make in (partial(Loader, npy_pipeline), npy_pipeline):
        message = r"expected an Index, such as Index.scan\('archive'\), got 'archive'"
        with pytest.raises(TypeError, match=message):
            make("archive", batch_size=2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crop": 7}, r"00\.npy: crop 7x7 is larger than the image 6x8 \(height x width\)"),
        ({"window": "random"}, "window 'random' needs a crop, the size of the window"),
        ({"columns": ("row",)}, r"columns \['row'\] have the name of another output"),
    ],
)
def test_wrong_settings_of_the_factory_are_told_by_start(
    npy_index: Index, options: dict[str, Any], message: str
) -> None:
    index = npy_index.with_column("row", range(ROWS))
    with pytest.raises(ValueError, match=message):
        make_loader(index, **options).start()


def test_images_of_two_sizes_are_told_with_the_remedy(npy_folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "odd.npy", np.zeros((3, 3), np.float32))
    index = Index.from_paths([npy_folder / "00.npy", tmp_path / "odd.npy"])
    with (
        make_loader(index, batch_size=2) as loader,
        pytest.raises(ValueError, match=r"images of one batch differ in size: .* crop or resize"),
    ):
        next(iter(loader))


def test_times_are_told_while_it_runs(npy_index: Index) -> None:
    with make_loader(npy_index, shards=2, num_read_processes=3) as loader:
        assert loader.pipelines == ()
        for _ in loader:
            stats = loader.stats
            waits = stats.wait_readers_s + stats.wait_graph_s
            # What is fed first is waited for in start().
            assert 0 < waits <= stats.wait_s + stats.start_s
            assert 0 < stats.read_cpu_s <= stats.read_s
        pipelines: Any = loader.pipelines
        assert [each.num_read_processes for each in pipelines] == [2, 1]
    assert loader.pipelines == ()
    assert loader.stats.wait_readers_s + loader.stats.wait_graph_s == pytest.approx(waits, abs=0.1)


def deliver_into(rows: list[int], loader: Loader, steps: int) -> None:
    for _ in range(steps):
        rows += rows_of(delivered(islice(loader, 1)))


def killed(loader: Loader, number: int) -> int | None:
    """Kill a reader; it has ended when its pid is returned, which takes a busy machine a while."""
    victim = loader.pipelines[0].processes()[0]
    os.kill(victim.pid or 0, number)
    wait([victim.sentinel])
    return victim.pid


@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_dead_reader_is_an_error_and_the_next_loop_goes_on(
    npy_index: Index, start_method: str, number: signal.Signals
) -> None:
    cause = {signal.SIGKILL: "killed from outside", signal.SIGSEGV: "it crashed"}[number]
    with make_loader(npy_index, start_method=start_method, seed=2) as loader:
        before = rows_of(delivered(islice(loader, 1)))
        victim = killed(loader, number)
        started = time.monotonic()
        with pytest.raises(ReaderProcessError, match=f"reader process {victim} .*{cause}"):
            deliver_into(before, loader, steps=9)
        assert time.monotonic() - started < 20
        # A step may have been delivered from what was ready; nothing is lost or repeated.
        deliver_into(before, loader, steps=6)
    order = Order(ROWS, seed=2)
    assert before[:ROWS] == [order.row(0, position) for position in range(ROWS)]


def test_the_error_of_a_dead_reader_holds_no_shared_memory(npy_index: Index) -> None:
    """Or it would be full for the next Loader until Python collects garbage."""
    gc.collect()
    gc.disable()
    try:
        with make_loader(npy_index) as loader:
            loader.start()
            pipeline = weakref.ref(loader.pipelines[0])
            killed(loader, signal.SIGKILL)
            with pytest.raises(ReaderProcessError):
                delivered(islice(loader, 9))
            assert pipeline() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_dead_readers_are_started_again(npy_index: Index, start_method: str) -> None:
    with make_loader(npy_index, start_method=start_method, seed=2, restart_readers=2) as loader:
        rows: list[int] = []
        for restarts in 1, 2:
            deliver_into(rows, loader, steps=1)
            killed(loader, signal.SIGKILL)
            started = time.monotonic()
            while loader.stats.restarts < restarts:  # what was read ahead comes first
                deliver_into(rows, loader, steps=1)
                assert time.monotonic() - started < 20
        killed(loader, signal.SIGKILL)
        with pytest.raises(ReaderProcessError):
            deliver_into(rows, loader, steps=9)
    order = Order(ROWS, seed=2)
    for place, row in enumerate(rows):
        assert row == order.row(*divmod(place, ROWS))


def test_closing_does_not_wait_for_dead_readers(npy_index: Index) -> None:
    """DALI waits for ever for one that was killed idle, a moment before."""
    for _ in range(4):
        loader = make_loader(npy_index, num_epochs=1, start_method="fork")
        delivered(loader)
        time.sleep(0.3)
        for process in loader.pipelines[0].processes():
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
        started = time.monotonic()
        loader.close()
        assert time.monotonic() - started < 20


def test_close_leaves_no_process(npy_index: Index) -> None:
    loader = make_loader(npy_index, start_method="spawn")
    loader.start()
    pids = [process.pid for process in loader.pipelines[0].processes()]
    loader.close()
    loader.close()  # a second time does nothing
    assert not any(psutil.pid_exists(pid) for pid in pids if pid is not None)
