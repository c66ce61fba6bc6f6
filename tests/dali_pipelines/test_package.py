"""What a user gets by installing and importing."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from jobs import ROOT, SCRIPTS

import dali_pipelines
from dali_pipelines.cli.main import COMMANDS


def test_all_names_exist() -> None:
    assert [name for name in dali_pipelines.__all__ if not hasattr(dali_pipelines, name)] == []


def test_importing_does_nothing() -> None:
    program = (
        "import os, threading, multiprocessing; before = dict(os.environ)\n"
        "import dali_pipelines, sys\n"
        "assert dict(os.environ) == before\n"
        "assert 'torch' not in sys.modules  # which would have to initialize CUDA\n"
        "assert not multiprocessing.active_children()\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_what_needs_dali_or_pytorch_is_imported_on_demand() -> None:
    """Processes that only decode and calibrate start in a third of the time."""
    program = (
        "import sys, dali_pipelines.aia.level15, dali_pipelines as package\n"
        "assert not {'nvidia', 'torch'} & set(sys.modules)\n"
        "assert package.Loader.__name__ == 'Loader' and 'nvidia' in sys.modules\n"
        "assert not {'torch', 'lightning'} & set(sys.modules)\n"
        "assert 'Loader' in vars(package) and not hasattr(package, 'Lader')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_foreign_readers_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "readers.py").write_text("")
    found = subprocess.run(
        [sys.executable, "-c", "import dali_pipelines"],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    last = found.stderr.splitlines()[-1]
    assert last.startswith("ImportError: dali_pipelines needs its own package 'readers', but")
    assert str(tmp_path / "readers.py") in last


def test_the_wheel_holds_two_packages(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    from hatchling.builders.wheel import WheelBuilder

    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    files = zipfile.ZipFile(wheel).namelist()
    names = {name.split("/")[0] for name in files}
    assert {name for name in names if not name.endswith(".dist-info")} == {
        "dali_pipelines",
        "readers",
    }
    assert {"dali_pipelines/__init__.pyi", "readers/__init__.pyi"} <= set(files)
    presets = {f"dali_pipelines/aia/presets/{name}.toml" for name in dali_pipelines.preset_names()}
    assert presets
    assert presets <= set(files)


def test_commands_stay_light_at_the_top() -> None:
    """Reader processes import the script again, so it may load nothing heavy by itself."""
    program = f"import sys; sys.path[:0] = [{str(SCRIPTS)!r}]\nimport run\n"
    program += "".join(f"import dali_pipelines.cli.{name}.main\n" for name in COMMANDS)
    program += (
        "print({'torch', 'nvidia', 'numba', 'tqdm', 'matplotlib', 'duckdb'} & {*sys.modules})"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout == "set()\n"
