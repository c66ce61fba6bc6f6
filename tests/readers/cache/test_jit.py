"""The folder of compiled code, and which sources it is for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import pytest

from dali_pipelines.kernels import jit as kernels
from dali_pipelines.kernels.fits.image import decode_image
from readers.cache.jit import Jit, source_hash
from readers.fits.tiles import hcompress
from readers.jpeg.mcu import jit as mcu
from readers.jpeg.mcu.scan import cut


def test_any_change_makes_another_hash(tmp_path: Path) -> None:
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    for file in files:
        file.write_text("x = 1\n")
    before = source_hash(files)
    files[1].write_text("x = 2\n")
    assert source_hash(files) != before
    assert source_hash(files) == source_hash(files[::-1])


@pytest.mark.parametrize(
    ("jit", "function"),
    [(kernels.JIT, decode_image), (hcompress.JIT, hcompress.invert), (mcu.JIT, cut)],
)
def test_code_is_kept_by_the_hash_of_its_sources(jit: Jit, function: Any) -> None:
    assert jit.folder is not None
    assert Path(function.stats.cache_path).is_relative_to(jit.folder)


SCRIPT = """
import sys
from pathlib import Path
from readers.cache.jit import Jit

njit = Jit([Path(__file__), Path(__file__).with_name("constants.py")]).njit

from constants import ADDED

@njit
def added(value):
    return value + ADDED

@njit(forceinline=True)
def doubled(value):
    return 2 * added(value)

if __name__ == "__main__":
    print(doubled(1), sum(doubled.stats.cache_misses.values()))
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "code"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    (tmp_path / "constants.py").write_text("ADDED = 2\n")
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def output_of(script: Path) -> list[str]:
    """Return the result, and the number of functions that were compiled."""
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout.split()


@pytest.mark.slow
def test_code_is_found_until_a_source_changes(script: Path) -> None:
    assert output_of(script) == ["6", "1"]
    assert output_of(script) == ["6", "0"]
    # numba would not see this: the file of the functions stays as it was.
    script.with_name("constants.py").write_text("ADDED = 3\n")
    assert output_of(script) == ["8", "1"]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    (tmp_path / "source.py").touch()
    return [tmp_path / "source.py"]


def test_the_usual_folder(files: list[Path], tmp_path: Path) -> None:
    jit = Jit(files)
    assert jit.folder == tmp_path / "user" / "dali-pipelines" / "numba" / jit.source_hash
    assert jit.folder.is_dir()


def test_a_folder_of_the_users(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "code"))
    jit = Jit(files)
    assert jit.folder == tmp_path / "code" / jit.source_hash


def test_code_in_a_folder_that_cannot_be_written_is_copied(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "code"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(given))
    folder = Jit(files).folder
    assert folder is not None
    (folder / "kernel.nbi").write_text("code")
    folder.chmod(0o500)
    monkeypatch.setattr("os.access", lambda path, _: not Path(path).is_relative_to(given))
    for _ in range(2):
        jit = Jit(files)
        assert jit.folder == tmp_path / "user" / "dali-pipelines" / "numba" / jit.source_hash
        assert [file.name for file in jit.folder.iterdir()] == ["kernel.nbi"]
        assert jit.folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o700)
    shutil.rmtree(given)
    assert Jit(files).folder == jit.folder, "without code to copy"


def users_cache() -> Path:
    """Return where numba keeps the code of a function of a user."""
    return Path(numba.njit(cache=True)(lambda value: value + 1).stats.cache_path)


@pytest.mark.parametrize("folder", ["", "of_the_user"])
def test_functions_of_the_users_are_kept_where_they_were(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    given = folder and str(tmp_path / folder)
    monkeypatch.setattr(numba.config, "CACHE_DIR", given)
    before, jit = users_cache(), Jit(files)
    kept = Path(jit.njit(lambda value: value + 1).stats.cache_path)
    assert kept.is_relative_to(jit.folder or "none")
    with pytest.raises(ZeroDivisionError):
        jit.cached(lambda **_: 1 // 0, users_cache, numba.config)
    assert (users_cache(), numba.config.CACHE_DIR) == (before, given)


def test_nowhere_to_keep_code(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("readers.cache.jit.cache_folder", lambda: Path("/proc/nowhere"))
    jit = Jit(files)
    assert jit.folder is None
    assert "NUMBA_CACHE_DIR" in caplog.text
    assert jit.njit(lambda value: value + 1)(1) == 2
