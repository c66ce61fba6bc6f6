"""Batches of JAX: without a copy, of one device or global over several, and none cut to 32 bits."""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace
from typing import Any

import gpu_outputs
import lazy_loader
import numpy as np
import pytest
from jobs import Job
from nvidia.dali.tensors import TensorCPU

from dali_pipelines import Index, Loader, npy_pipeline
from dali_pipelines.frameworks.choose import framework_named
from dali_pipelines.frameworks.numpy import to_numpy
from readers import Order

jax: Any = lazy_loader.load("jax")  # not in all processes that collect tests
ROWS = 23


def make_loader(index: Index, **options: Any) -> Loader:
    settings = {"batch_size": 3, "num_read_processes": 1, "framework": "jax"}
    return Loader(npy_pipeline, index, **{**settings, **options})


def sharding(numbers: Any, axes: str = "b", spec: tuple[Any, ...] = ("b",)) -> Any:
    """Return that of a mesh of some of the four devices."""
    mesh = jax.sharding.Mesh(np.array(jax.devices())[np.array(numbers)], tuple(axes))
    return jax.sharding.NamedSharding(mesh, jax.P(*spec))


@pytest.fixture(scope="module")
def labelled(npy_index: Index) -> Index:
    rows = np.arange(ROWS)
    index = npy_index.with_column("id", rows + 2**40).with_column("third", rows / 3)
    index = index.with_column("label", rows.astype(np.int32))
    index = index.with_column("vector", np.stack((rows, -rows), 1).astype(np.float32))
    return index.with_column("name", [f"star {row}" for row in rows])


COLUMNS = ("id", "third", "label", "name", "vector")


def check(batch: Any, rows: list[int]) -> None:
    """Compare all of a batch with what belongs to its rows."""
    assert batch["row"].tolist() == rows
    assert np.asarray(batch["image"])[:, 0, 0, 0].tolist() == rows
    assert np.asarray(batch["id"]).tolist() == [row + 2**40 for row in rows]
    assert np.asarray(batch["third"]).tolist() == [row / 3 for row in rows]
    assert np.asarray(batch["label"]).tolist() == rows
    assert batch["name"] == [f"star {row}" for row in rows]
    assert np.asarray(batch["vector"]).tolist() == [[row, -row] for row in rows]


def test_the_memory_is_that_of_dali(npy_index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = npy_pipeline(npy_index, batch_size=3, device_id=None, num_read_processes=0)
    pipeline.build()
    pipeline.schedule_run()
    outputs = pipeline.share_outputs()
    monkeypatch.setattr(pipeline, "share_outputs", lambda: outputs)
    framework = framework_named("jax")
    (batch,) = framework.deliver([next(framework.iterate(pipeline))])
    for name, output in zip(pipeline.output_names, outputs, strict=True):
        kind = np.ndarray if name == "row" else jax.Array
        assert isinstance(batch[name], kind)
        at = batch["row"].ctypes.data if name == "row" else batch[name].unsafe_buffer_pointer()
        assert at == output.as_tensor().data_ptr(), name
    for device in jax.devices():
        (again,) = jax.device_put(np.asarray(batch["image"]), device).addressable_shards
        assert again.data.unsafe_buffer_pointer() == batch["image"].unsafe_buffer_pointer()
    pipeline.close()


def test_no_array_is_cut_to_32_bits(labelled: Index) -> None:
    options: dict[str, Any] = {"columns": COLUMNS, "outputs": ("matrix",), "shuffle": False}
    wide = {"row": "int64", "id": "int64", "third": "float64", "matrix": "float64"}
    for enabled in False, True:
        with jax.enable_x64(enabled), make_loader(labelled, **options) as loader:
            (batch,) = next(iter(loader))
        check(batch, [0, 1, 2])
        for name, dtype in {**wide, "image": "float32", "valid": "bool", "label": "int32"}.items():
            assert batch[name].dtype == dtype
            assert isinstance(batch[name], jax.Array) == (enabled or name not in wide)
            assert batch[name].device == jax.devices()[0] or name in wide


def test_other_types_of_images() -> None:
    for dtype in ("float16", "uint8", "uint16", "int16", "int32"):
        pixels = np.arange(12, dtype=dtype).reshape(1, 1, 3, 4)
        (batch,) = framework_named("jax").deliver([{"image": to_numpy(TensorCPU(pixels))}])
        assert isinstance(batch["image"], jax.Array)
        assert batch["image"].dtype == dtype
        np.testing.assert_array_equal(batch["image"], pixels)


def test_lists_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that DALI packs to addresses that XLA refuses are copied."""
    gpu_outputs.install(monkeypatch)
    taken: list[int] = []
    view = jax.dlpack.from_dlpack

    def noted(tensor: Any) -> Any:
        taken.append(tensor.data_ptr() % 16)
        return view(tensor)

    monkeypatch.setattr(jax.dlpack, "from_dlpack", noted)
    for row in range(4):
        np.save(tmp_path / f"{row}.npy", np.full((3, 3 + row), row, np.float32))
    options: dict[str, Any] = {"batch_size": 4, "shuffle": False, "devices": [None]}
    with make_loader(Index.scan(tmp_path), ragged="list", **options) as loader:
        ((batch,),) = loader
    assert set(taken) == {0}
    assert len(taken) < 4
    assert all(isinstance(image, jax.Array) for image in batch["image"])
    assert [image.shape for image in batch["image"]] == [(1, 3, 3 + row) for row in range(4)]
    assert [set(np.unique(image)) for image in batch["image"]] == [{0}, {1}, {2}, {3}]


@pytest.mark.parametrize(
    ("mesh", "shards"),
    [
        (([0, 1, 2, 3],), 4),
        (([3, 1],), 2),
        (([[2, 0], [3, 1]], "bm"), 2),
        (([[2, 0], [3, 1]], "bm", ("m", None, None)), 2),
        (([[2, 0], [3, 1]], "bm", (("m", "b"),)), 4),
        (([2, 0], "b", ()), 1),
    ],
)
def test_global_arrays(labelled: Index, mesh: Any, shards: int) -> None:
    """Rows are in the pure order, whatever devices hold them."""
    order, step, given = Order(ROWS, seed=5), 3 * shards, sharding(*mesh)
    options: dict[str, Any] = {"tail": "fill", "seed": 5, "columns": COLUMNS}
    with make_loader(labelled, sharding=given, num_read_processes=shards, **options) as loader:
        assert (loader.devices, loader.num_shards) == ((None,) * shards, shards)
        for epoch in range(2):
            for number, batch in enumerate(loader):
                positions = range(number * step, (number + 1) * step)
                check(batch, [order.row(epoch, position % ROWS) for position in positions])
                assert np.asarray(batch["valid"]).tolist() == [p < ROWS for p in positions]
                for name in ("image", "valid", "label", "vector"):
                    assert batch[name].sharding == given.update(spec=jax.P(*given.spec[:1]))
        total = jax.jit(lambda image: image[:, 0, 0, 0].sum())(batch["image"])
        assert total == batch["row"].sum()


def test_resume_on_other_devices(labelled: Index) -> None:
    taken: list[int] = []
    state = None
    for numbers, tail, steps in (([0, 1], "fill", 1), ([3, 2, 1], "fill", 1), ([1], "drop", 2)):
        with make_loader(labelled, sharding=sharding(numbers), tail=tail) as loader:
            if state is not None:
                loader.load_state_dict(state)
            taken += [row for batch in islice(loader, steps) for row in batch["row"].tolist()]
            state = loader.state_dict()
    order = Order(ROWS, seed=0)
    assert taken == [order.row(0, position) for position in range(21)]


def test_eval_with_bad_rows(labelled: Index, tmp_path: Path) -> None:
    """All rows but the bad one are valid once in each loop, and each batch is full."""
    (tmp_path / "bad.npy").write_bytes(b"")
    paths = [labelled.path(row) for row in range(ROWS)]
    index = Index.from_paths([*paths[:7], tmp_path / "bad.npy", *paths[8:]])
    options: dict[str, Any] = {"mode": "eval", "tail": "fill", "bad_sample": "skip"}
    with make_loader(index, sharding=sharding([0, 1]), **options) as loader:
        next(iter(loader))
        for _ in range(2):
            batches = list(loader)
            assert {batch["image"].shape for batch in batches} == {(6, 1, 6, 8)}
            pairs = [(b["row"], np.asarray(b["valid"])) for b in batches]
            rows = [row for row, valid in pairs for row in row[valid].tolist()]
            assert rows == [row for row in range(ROWS) if row != 7]


def test_shards_of_two_sizes_lose_no_step(tmp_path: Path) -> None:
    for row, side in enumerate((4, 4, 4, 6)):
        np.save(tmp_path / f"{row}.npy", np.full((side, side), row, np.float32))
    options = {"batch_size": 1, "shuffle": False, "tail": "drop"}
    with make_loader(Index.scan(tmp_path), sharding=sharding([0, 1]), **options) as loader:
        steps = iter(loader)
        assert next(steps)["row"].tolist() == [0, 1]
        message = r"'image'.*\(1, 1, 4, 4\).*\(1, 1, 6, 6\).*crop or resize"
        for _ in range(2):
            with pytest.raises(ValueError, match=message):
                next(iter(loader))
            assert loader.state_dict()["position"] == 2


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"tail": "partial"}, "tail.*'partial'.*tail='fill'"),
    ({"tail": "drop", "bad_sample": "skip"}, "'skip'.*tail='fill'"),
    ({"start_method": "fork"}, "JAX.*'forkserver' or 'spawn'"),
    ({"framework": "numpy"}, "sharding.*framework='jax'.*'numpy'"),
    ({"devices": [0, 1]}, r"\[None, None\].*devices.*\[0, 1\]"),
    ({"devices": [None]}, r"\[None, None\].*devices.*\[None\]"),
    ({"devices": "cpu"}, "devices is .None.: leave it out"),
    ({"sharding": ([0, 1], "b", (None, "b"))}, "first axis"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_refused(npy_index: Index, options: dict[str, Any], message: str) -> None:
    options = {"sharding": ([0, 1],), "tail": "fill", **options}
    with pytest.raises(ValueError, match=message):
        make_loader(npy_index, **{**options, "sharding": sharding(*options["sharding"])})


def test_another_memory_is_refused(npy_index: Index) -> None:
    pinned = sharding([0, 1]).with_memory_kind("pinned_host")
    with pytest.raises(ValueError, match=r"memory_kind.*'device'.*'pinned_host'"):
        make_loader(npy_index, sharding=pinned, tail="fill")


def test_other_shardings_are_refused(npy_index: Index) -> None:
    abstract = jax.sharding.AbstractMesh((2,), ("b",))
    for other in (jax.P("b"), jax.sharding.NamedSharding(abstract, jax.P("b"))):
        with pytest.raises(TypeError, match=r"NamedSharding.*Mesh"):
            make_loader(npy_index, sharding=other, tail="fill")


def test_outputs_of_a_gpu(labelled: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there stays there, but for 64 bits; bad and missing rows are left out there."""
    gpu_outputs.install(monkeypatch)
    index = labelled.select([1, 2, 3, 4, 5])
    options: dict[str, Any] = {"shuffle": False, "columns": COLUMNS, "rejected": {1: "bad"}}
    options["devices"] = [None]
    with make_loader(index, bad_sample="skip", **options) as loader:
        batches = [batch for (batch,) in loader]
    assert [batch["row"].tolist() for batch in batches] == [[0, 2], [3, 4]]
    for batch in batches:
        kinds = {name: isinstance(array, jax.Array) for name, array in batch.items()}
        local = {"row": False, "id": False, "third": False, "name": False}
        assert kinds == {"image": True, "valid": True, "label": True, "vector": True, **local}
        assert {batch[name].device for name in ("image", "valid", "label")} == {jax.devices()[0]}
        assert (
            np.asarray(batch["image"])[:, 0, 0, 0].tolist() == np.asarray(batch["label"]).tolist()
        )
        assert batch["id"].tolist() == [row + 1 + 2**40 for row in batch["row"].tolist()]


def test_columns_of_64_bits_over_processes() -> None:
    from dali_pipelines.frameworks.jax_sharding import ShardsOnDevices

    over_two = SimpleNamespace(is_fully_addressable=False)
    layout = ShardsOnDevices(over_two, 4, {0: [device(0)], 1: [device(1)]})  # type: ignore[arg-type]
    parts: list[Any] = [{"row": np.array([7])}, {"row": np.array([9])}]
    assert layout.joined(parts)["row"].tolist() == [7, 9]
    with pytest.raises(ValueError, match=r"'id'.*int64.*index\.with_column"):
        layout.joined([{"id": part["row"]} for part in parts])
    with pytest.raises(ValueError, match="shard_id and num_shards"):
        layout.find_shards(None, 0, 2)


def device(number: int, platform: str = "gpu") -> Any:
    return SimpleNamespace(platform=platform, local_hardware_id=number)


def test_gpus_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipelines run on those that hold the shards, or all on the CPU."""
    from dali_pipelines.frameworks.jax_sharding import ShardsOnDevices, own_devices

    framework = framework_named("jax")
    monkeypatch.setattr("jax.local_devices", lambda: [device(2), device(3)])
    assert framework.shards(None, None, None)().devices == (2, 3)
    assert framework.shards([5], None, None)().devices == (5,)
    with pytest.raises(ValueError, match=r"GPU 5.*JAX.*\[2, 3\]"):
        framework.iterate(SimpleNamespace(device_id=5))  # type: ignore[arg-type]
    monkeypatch.setattr("jax.local_devices", lambda: [device(0, "cpu")] * 4)
    assert own_devices() == [None]
    layout = ShardsOnDevices(sharding([0, 1]), 2, {0: [device(3), device(1)], 1: [device(2)]})
    assert layout.find_shards(None, None, None)().devices == (3, 2)
    assert layout.find_shards([None, None], None, None)().devices == (None, None)
    ours = layout.find_shards([3, 2], 1, 4)()  # an array for each of four processes
    assert (ours.devices, ours.first_shard, ours.num_shards) == ((3, 2), 2, 8)


RANK = """
if __name__ == "__main__":  # not in readers
    import json, sys
    from functools import partial
    import numpy as np
    import jax
    from jax._src.lib import _jax
    from dali_pipelines import Index, Loader, npy_pipeline
    # Or Gloo looks up the name of this machine, which need not resolve.
    gloo = partial(_jax.make_gloo_tcp_collectives, hostname="127.0.0.1")
    _jax.make_gloo_tcp_collectives = gloo

def rows_and_sums(index, numbers):
    mesh = jax.sharding.Mesh(np.array(jax.devices())[np.array(numbers)], ("a", "b")[:numbers.ndim])
    sharding = jax.sharding.NamedSharding(mesh, jax.P(mesh.axis_names[-1]))
    settings = {"batch_size": 3, "num_read_processes": 1, "framework": "jax", "tail": "fill"}
    total = jax.jit(lambda batch: (batch["image"][:, 0, 0, 0] * batch["valid"]).sum())
    try:
        with Loader(npy_pipeline, index, sharding=sharding, **settings) as loader:
            rows = [[loader.first_shard, loader.num_shards]]
            for batch in loader:
                arrays = {name: batch[name] for name in ("image", "valid")}
                rows.append([*batch["row"].tolist(), float(total(arrays))])
            return rows
    except ValueError as error:
        return str(error)

def main(rank, port, folder):
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
    index = Index.scan(folder)
    meshes = [3, 2, 0, 1], [[0, 1], [2, 3]], [0, 2, 1, 3], [0, 1, 2]
    found = [rows_and_sums(index, np.array(numbers)) for numbers in meshes]
    with Loader(npy_pipeline, index, batch_size=4, framework="jax") as loader:
        found.append([row for [batch] in loader for row in batch["row"].tolist()])
    print(json.dumps(found))
    jax.distributed.shutdown()

if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
"""


@pytest.mark.slow
def test_two_processes(npy_folder: Path, tmp_path: Path) -> None:
    """Each reads its shards of arrays over both; what is refused, is so in both."""
    (tmp_path / "rank.py").write_text(RANK)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    environ = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    with ExitStack() as stack:
        jobs = [
            stack.enter_context(
                Job(
                    [sys.executable, str(tmp_path / "rank.py"), rank, port, str(npy_folder)],
                    env=environ,
                    stdout=PIPE,
                    stderr=PIPE,
                    text=True,
                )
            )
            for rank in "01"
        ]
        outs = [job.communicate(timeout=200) for job in jobs]
    for job, (_, err) in zip(jobs, outs, strict=True):
        assert job.returncode == 0, err
    ranks = [json.loads(out.splitlines()[-1]) for out, _ in outs]
    order = [Order(ROWS, seed=0).row(0, position) for position in range(ROWS)]
    filled = order + order[:1]
    sums = [float(sum(order[:12])), float(sum(order[12:]))]
    for rank, found in enumerate(ranks):
        first = 6 - 6 * rank
        halves = [filled[start + first : start + first + 6] for start in (0, 12)]
        each = [[*half, total] for half, total in zip(halves, sums, strict=True)]
        assert found[0] == [[2 - 2 * rank, 4], *each]
        assert found[1][0] == [0, 2]
        assert [row for *rows, _ in found[1][1:] for row in rows] == filled
        assert "process 0 has shards [0, 2] of 4, but all processes need" in found[2]
        assert "process 0 has shards [0, 1] of 3, but all processes need" in found[3]
    assert sorted(ranks[0][4] + ranks[1][4]) == list(range(ROWS))
