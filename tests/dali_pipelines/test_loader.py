"""The Loader over real readers, beside what `test_loader_machine.py` tests of any sequence."""

from __future__ import annotations

import gc
import os
import shutil
import weakref
from functools import partial
from itertools import islice
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import Info
from read_here import in_this_process

from dali_pipelines import Index, Loader, ReaderProcessError, ReadError, npy_pipeline
from readers.sampling.order import Order

ROWS = 23


def make_loader(index: Index, **options: Any) -> Loader:
    shards = options.pop("shards", 1)
    settings = {"batch_size": 4, "num_read_processes": 2, "devices": [None] * shards}
    return Loader(npy_pipeline, index, **{**settings, **options})


def rows_of(steps: Any) -> list[int]:
    """Return the rows of all batches, after a look at their pixels."""
    rows: list[int] = []
    for batches in steps:
        for batch in batches:
            images = batch["image"]
            pixels = (images.get() if hasattr(images, "get") else np.asarray(images)).reshape(-1)
            found = np.asarray(batch["row"]).tolist()
            assert pixels.tolist() == np.repeat(found, 6 * 8).tolist()
            assert images.shape == (len(found), 1, 6, 8)
            rows += found
    return rows


def test_batches_of_each_framework(npy_index: Index, framework: Any) -> None:
    """Full, short and empty ones, and a row that is left out in the middle of one."""
    options = {"framework": framework, "rejected": {9: "bad"}, "bad_sample": "skip"}
    with make_loader(npy_index, shards=4, num_read_processes=4, shuffle=False, **options) as loader:
        for _ in range(2):
            assert rows_of(loader) == [row for row in range(ROWS) if row != 9]
            assert list(loader.stats.rejected) == [9]


def test_batches_stay_as_they_were_while_others_come(npy_index: Index, framework: Any) -> None:
    options = {"shuffle": False, "tail": "fill", "framework": framework}
    with make_loader(npy_index, **options) as loader:
        held = [batches for _ in range(3) for batches in loader]
    assert rows_of(held) == [*range(ROWS), 0] * 3


def test_too_few_rows_for_a_larger_step_are_dropped_with_their_epoch(npy_index: Index) -> None:
    factory = partial(in_this_process, npy_pipeline)
    options: Any = {"devices": [None], "seed": 5, "tail": "drop"}
    with Loader(factory, npy_index, batch_size=5, **options) as first:
        rows_of(islice(first, 3))  # 8 of the 23 rows are left
        state = first.state_dict()
    with Loader(factory, npy_index, batch_size=9, **options) as second:
        second.load_state_dict(state)
        for epoch in (1, 2):
            order = Order(ROWS, seed=5)
            assert rows_of(second) == [order.row(epoch, place) for place in range(18)]


def test_a_loop_that_goes_back_ends_with_its_epoch(npy_index: Index) -> None:
    factory = partial(in_this_process, npy_pipeline)
    with Loader(factory, npy_index, batch_size=4, devices=[None], shuffle=False) as loader:
        state, rows = loader.state_dict(), list[int]()
        for step, batches in enumerate(loader):
            rows += rows_of([batches])
            if step == 1:
                loader.load_state_dict(state)
        assert rows == [*range(8), *range(ROWS)]
        assert (loader.epoch, loader.step) == (1, 0)


def test_the_first_ten_that_are_left_out_are_named(
    npy_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Names of files reach the log without control characters, the other three as a number."""
    folder = tmp_path / "\x1b[31m"
    shutil.copytree(npy_folder, folder)
    for row in range(13):
        (folder / f"{row:02}.npy").write_bytes(b"")
    with caplog.at_level("WARNING"):
        index = Index.scan(folder).with_column("hdu", np.arange(ROWS, dtype=np.int32))
        with make_loader(index, bad_sample="skip", shuffle=False, batch_size=8) as loader:
            rows_of(loader)
    assert [found.hdu for found in loader.stats.rejected.values()] == list(range(13))
    named, more = caplog.messages[:-1], caplog.messages[-1]
    assert len(named) == 10
    for row, line in enumerate(named):
        assert line.startswith(f"left out: {tmp_path}/\\x1b[31m/{row:02}.npy (row {row}): ")
    assert "3 more" in more


@pytest.mark.parametrize("fate", ["replaced", "written to"])
def test_what_becomes_of_an_index_file(npy_index: Index, tmp_path: Path, fate: str) -> None:
    file = tmp_path / "index.arrow"
    npy_index.save(file)
    with make_loader(Index.scan(file), seed=5, crop=(6, 8), prefetch=1) as loader:
        steps = iter(loader)
        rows = rows_of([next(steps)])
        if fate == "replaced":
            npy_index.select([0] * 4).save(file)
            rows += rows_of(steps)
            assert rows == Order(ROWS, seed=5).rows(0, range(ROWS)).tolist()
            return
        os.truncate(file, 1000)
        with pytest.raises(ReadError, match="was written to while it was in use") as caught:
            list(steps)
        assert caught.value.path == str(file)


def test_a_state_goes_from_parquet_to_arrow(npy_index: Index, tmp_path: Path) -> None:
    for name in ("index.parquet", "index.arrow"):
        npy_index.save(tmp_path / name)
    with make_loader(Index.scan(tmp_path / "index.parquet"), seed=5) as before:
        rows = rows_of(islice(before, 2))
    with make_loader(Index.scan(tmp_path / "index.arrow"), batch_size=3) as after:
        after.load_state_dict(before.state_dict())
        rows += rows_of(after)
    assert rows == Order(ROWS, seed=5).rows(0, range(ROWS)).tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size.*at least 1.*0"),
        ({"batch_size": 4.0}, "batch_size.*integer.*4.0"),
        ({"num_read_processes": 0}, "num_read_processes.*at least 1.*0"),
        ({"restart_readers": -1}, "restart_readers.*at least 0.*-1"),
        ({"tail": "pad"}, "tail.*partial.*fill.*drop"),
        ({"epoch_steps": 0}, "epoch_steps.*at least 1.*0"),
        ({"epoch_steps": True}, "epoch_steps.*integer.*True"),
        ({"bad_sample": "ignore"}, "bad_sample.*'raise' or 'skip'.*'ignore'"),
        ({"bad_sample": "skip", "max_bad": -1}, "max_bad.*number of rows.*-1"),
        ({"bad_sample": "skip", "max_bad": 2.0}, "max_bad.*from 0.0 to 1.0.*2.0"),
        ({"max_bad": 2}, "max_bad=2.*bad_sample='skip'"),
        ({"devices": []}, r"devices.*\[\].*'cpu'"),
        ({"devices": "gpu"}, "devices.*got 'gpu'"),
        ({"devices": [0.5]}, "devices.*got 0.5"),
        ({"shard_id": 1}, "both shard_id and num_shards"),
        ({"weights": 3}, "weights.*name of a column.*3"),
        ({"weights": "w", "shuffle": False}, "weights='w'.*got False.*leave out shuffle"),
    ],
)
def test_wrong_settings_are_told_at_once(
    npy_index: Index, options: dict[str, Any], message: str
) -> None:
    index = npy_index.with_column("w", range(ROWS))
    with pytest.raises(ValueError, match=message):
        make_loader(index, **options)


@pytest.mark.parametrize("name", ["device_id", "epoch", "position", "first_step"])
def test_the_loader_itself_tells_pipelines_where_they_begin(npy_index: Index, name: str) -> None:
    with pytest.raises(TypeError, match=f"a Loader sets {name} "):
        make_loader(npy_index, **{name: 0})


@pytest.mark.parametrize("epoch", [-1, 1.5, "0", True])
def test_reset_takes_an_epoch(npy_index: Index, epoch: Any) -> None:
    with pytest.raises(ValueError, match=f"epoch.*integer, at least 0.*{epoch!r}"):
        make_loader(npy_index).reset(epoch)


def test_a_gpu_that_is_not_there_is_told_before_readers_start(npy_index: Index) -> None:
    loader = Loader(npy_pipeline, npy_index, batch_size=2, devices=[99])
    with pytest.raises(ValueError, match=r"no GPU 99.*devices='cpu' runs on the CPU"):
        next(iter(loader))
    assert not loader.pipelines


def test_a_path_is_no_index() -> None:
    for make in (partial(Loader, npy_pipeline), npy_pipeline):
        with pytest.raises(TypeError, match=r"Index.scan\('archive'\).*got 'archive'"):
            make("archive", batch_size=2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crop": 7}, r"00\.npy: crop 7x7 .*6x8"),
        ({"window": "random"}, "window 'random' needs a crop"),
        ({"columns": ("row",)}, r"columns \['row'\].*rename"),
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
        pytest.raises(ValueError, match=r"images of one batch differ in size.*crop or resize"),
    ):
        next(iter(loader))


def test_nothing_is_read_after_num_epochs(npy_index: Index) -> None:
    """Also where the Loader resumes: in the fourth epoch of 2 steps are 8 samples left."""
    first = make_loader(npy_index, epoch_steps=2)
    first.reset(3)
    loader = make_loader(npy_index, epoch_steps=2, num_epochs=4)
    loader.load_state_dict(first.state_dict())
    (pipeline,) = loader.make_pipelines()
    place = [spec.name for spec in pipeline.source.specs].index("valid")
    valid = [bool(pipeline.source(Info(count))[place]) for count in range(16)]
    assert valid == [True] * 8 + [False] * 8


def test_times_are_told_while_it_runs(npy_index: Index) -> None:
    with make_loader(npy_index, shards=2, num_read_processes=3) as loader:
        assert loader.pipelines == ()
        for _ in loader:
            stats = loader.stats
            waits = stats.wait_readers_s + stats.wait_graph_s
            # What is fed first is waited for in start().
            assert 0 < waits <= stats.wait_s + stats.start_s
            assert 0 < stats.read_cpu_s <= stats.read_s


def test_devices_share_the_reader_processes(npy_index: Index) -> None:
    with make_loader(npy_index, shards=2, num_read_processes=3) as loader:
        loader.start()
        assert [len(each.processes()) for each in loader.pipelines] == [2, 1]


def deliver_into(rows: list[int], loader: Loader, steps: int) -> None:
    for _ in range(steps):
        rows += rows_of(islice(loader, 1))


def killed(loader: Loader) -> None:
    """Kill a reader; it has ended when this returns, which takes a busy machine a while."""
    victim = loader.pipelines[0].processes()[0]
    victim.kill()
    wait([victim.sentinel])


def test_readers_are_started_again_so_many_times(npy_index: Index) -> None:
    with make_loader(npy_index, shuffle=False, restart_readers=2) as loader:
        rows: list[int] = []
        for restarts in 1, 2:
            deliver_into(rows, loader, 1)
            killed(loader)
            while loader.stats.restarts < restarts:  # what was read ahead comes first
                deliver_into(rows, loader, 1)
        killed(loader)
        with pytest.raises(ReaderProcessError):
            deliver_into(rows, loader, 9)
    assert rows == [place % ROWS for place in range(len(rows))]


def test_the_error_of_a_dead_reader_holds_no_shared_memory(npy_index: Index) -> None:
    """Or it would be full for the next Loader until Python collects garbage."""
    gc.collect()
    gc.disable()
    try:
        with make_loader(npy_index) as loader:
            loader.start()
            pipeline = weakref.ref(loader.pipelines[0])
            killed(loader)
            with pytest.raises(ReaderProcessError):
                rows_of(islice(loader, 9))
            assert pipeline() is None
    finally:
        gc.enable()
