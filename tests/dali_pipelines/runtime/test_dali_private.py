"""Private parts of DALI: all in one module, checked when it is imported."""

from __future__ import annotations

import ast
import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path

import nvidia.dali
import pytest

from dali_pipelines.runtime import dali_private

ROOT = Path(__file__).parents[3]
ROOM = ROOT / "dali_pipelines" / "runtime" / "dali_private.py"
PRODUCT = [
    path
    for folder in ("readers", "dali_pipelines", "scripts")
    for path in (ROOT / folder).rglob("*.py")
]
PRIVATE_PATH = re.compile(r"\bnvidia\.dali[\w.]*\._[a-z]")


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def names_of_dali() -> set[str]:
    """Find the private attributes that DALI's Python classes have."""
    found = set()
    folder = Path(nvidia.dali.__file__).parent
    for path in (
        folder / "pipeline.py",
        *(folder / "plugin").glob("*.py"),
        *(folder / "plugin" / "numba").glob("*.py"),
        *(folder / "plugin" / "pytorch").glob("*.py"),
    ):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and private(node.attr):
                found.add(node.attr)
            elif isinstance(node, ast.FunctionDef) and private(node.name):
                found.add(node.name)
    return found


DALI_NAMES = names_of_dali()


def uses(source: str) -> Iterator[str]:
    """Find uses of private names of DALI in the source of a module."""
    tree = ast.parse(source)
    from_dali = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith(("nvidia", "dali_pipelines.runtime.dali_private"))
        for alias in node.names
    }
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                paths = [f"{module}.{alias.name}" for alias in names]
                yield from (path for path in paths if PRIVATE_PATH.search(path))
            case ast.Import(names=names):
                yield from (alias.name for alias in names if PRIVATE_PATH.search(alias.name))
            case ast.Constant(value=str(text)) if PRIVATE_PATH.search(text):
                yield text
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(value=value, attr=name) if private(name):
                roots = {inner.id for inner in ast.walk(value) if isinstance(inner, ast.Name)}
                if name in DALI_NAMES or roots & from_dali:
                    yield name
            case ast.ClassDef(bases=bases) if any(
                name.id in from_dali
                for base in bases
                for name in ast.walk(base)
                if isinstance(name, ast.Name)
            ):
                for inner in ast.walk(node):
                    own = getattr(inner, "attr", None) or getattr(inner, "name", None)
                    if isinstance(own, str) and private(own) and own in DALI_NAMES:
                        yield own


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from nvidia.dali._multiproc import pool", "nvidia.dali._multiproc.pool"),
        ("import nvidia.dali._conditionals", "nvidia.dali._conditionals"),
        ("preload(['nvidia.dali._multiproc.worker'])", "nvidia.dali._multiproc.worker"),
        ("from nvidia.dali import fn\nfn._conditional.merge(a, b, predicate=c)", "_conditional"),
        ("pipeline._pipe = None", "_pipe"),
        (
            "from nvidia.dali import Pipeline\nclass P(Pipeline):\n  def _shutdown(self): 0",
            "_shutdown",
        ),
        (
            "from nvidia.dali import Pipeline\nclass P(Pipeline):\n  def f(self): self._pipe",
            "_pipe",
        ),
    ],
)
def test_uses_are_found(source: str, expected: str) -> None:
    assert expected in uses(source)


def test_the_room_itself_is_full_of_them() -> None:
    assert {"_pipe", "_shutdown", "_get_run_fn_cpu"} <= DALI_NAMES
    assert len(list(uses(ROOM.read_text()))) > 5


def test_private_names_of_dali_are_used_in_one_module_only() -> None:
    assert len(PRODUCT) > 100
    found = {
        str(path.relative_to(ROOT)): names
        for path in PRODUCT
        if path != ROOM and (names := list(uses(path.read_text())))
    }
    assert not found


def test_another_dali_is_rejected_at_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(nvidia.dali.fn._conditional, "merge")
    expected = (
        f"DALI {nvidia.dali.__version__} has no nvidia.dali.fn._conditional.merge, which "
        f"dali_pipelines needs: pip install '{dali_private.SUPPORTED}'"
    )
    with pytest.raises(ImportError, match=re.escape(expected)):
        runpy.run_path(str(ROOM))


def test_another_table_of_types_is_rejected_when_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import nvidia.dali.plugin.pytorch as plugin

    dali_private._add_unsigned.cache_clear()
    monkeypatch.delattr(plugin.torch_utils, "to_torch_type")
    with pytest.raises(
        ImportError, match=r"has no nvidia\.dali\.plugin\.pytorch\.torch_utils\.to_"
    ):
        dali_private.allow_unsigned_tensors()


def test_a_pipeline_that_keeps_its_graph_elsewhere_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nvidia.dali.Pipeline, "_shutdown", lambda self: None)
    with pytest.raises(ImportError, match=r"has no nvidia\.dali\.Pipeline\._pipe"):
        runpy.run_path(str(ROOM))


def test_the_supported_version_is_the_one_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert dali_private.SUPPORTED in project["dependencies"]
