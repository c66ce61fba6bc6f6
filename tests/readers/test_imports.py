import json
import pickle
from collections.abc import Callable

import pytest

import readers
from readers import FitsReader, Index, Order, Schedule, Shard, Source

HEAVY = ["pyarrow", "astropy", "PIL", "torch", "nvidia", "cupy", "numba", "scipy", "sunpy"]

STATE = """
import json, os, sys, threading

def state():
    children = [
        open(f"/proc/self/task/{task}/children").read() for task in os.listdir("/proc/self/task")
    ]
    return dict(os.environ), "".join(children), threading.active_count()

def loaded():
    return sorted({name.partition(".")[0] for name in sys.modules})
"""


def test_importing_does_nothing(fresh_python: Callable[..., bytes]) -> None:
    code = STATE + (
        "before = state()\n"
        "import readers, readers.source, readers.index.table, readers.index.columns\n"
        "assert state() == before\n"
        "print(json.dumps(loaded()))"
    )
    assert not set(json.loads(fresh_python(code))) & set(HEAVY)


LIGHT = [
    ("readers", [*HEAVY, "numpy"]),
    ("readers.npy", HEAVY),
    ("readers.chunks.reader", [*HEAVY, "deflate", "h5py", "numcodecs", "zarr"]),
    ("readers.targets.mask", HEAVY),
    ("readers.targets.boxes", HEAVY),
    ("readers.fits.reader", [name for name in HEAVY if name != "astropy"]),
    ("readers.aia.reader", [name for name in HEAVY if name != "astropy"]),
    ("readers.jpeg.reader", [name for name in HEAVY if name != "PIL"]),
]


@pytest.mark.parametrize(("module", "unwanted"), LIGHT, ids=[module for module, _ in LIGHT])
def test_a_module_imports_no_more_than_it_needs(
    fresh_python: Callable[..., bytes], module: str, unwanted: list[str]
) -> None:
    code = STATE + f"import {module}\nprint(json.dumps(loaded()))"
    assert not set(json.loads(fresh_python(code))) & set(unwanted)


def test_a_source_brings_only_its_reader(fresh_python: Callable[..., bytes]) -> None:
    source = Source(
        columns=Index.from_paths(["/a"]).columns(),
        reader=FitsReader(),
        schedule=Schedule(num_rows=1, shard=Shard(), batch_size=1),
        order=Order(1),
    )
    code = STATE + (
        "import pickle; source = pickle.load(sys.stdin.buffer)\n"
        "assert source.columns.row(0).path == '/a'\n"
        "print(json.dumps(loaded()))"
    )
    modules = set(json.loads(fresh_python(code, stdin=pickle.dumps(source))))
    assert not modules & (set(HEAVY) - {"astropy"})


def test_public_names() -> None:
    assert readers.__all__ == sorted(readers.__all__)
    for name in readers.__all__:
        assert getattr(readers, name) is not None


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="No readers attribute Sampler"):
        readers.Sampler  # type: ignore[attr-defined]  # noqa: B018


def test_marker() -> None:
    assert readers.DISTRIBUTION == "dali-pipelines"
