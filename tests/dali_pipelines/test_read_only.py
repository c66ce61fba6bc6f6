"""A container whose packages and HOME cannot be written, as by `docker --user`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from jobs import ROOT
from numba.core.caching import UserProvidedCacheLocator

from dali_pipelines.kernels.entries import decode_entry

pytestmark = pytest.mark.slow

KERNELS = "dali_pipelines/kernels"

RUN = """
import json, sys
from dali_pipelines import Index, Loader, fits_pipeline  # reader processes, too, import it

if __name__ == "__main__":
    index = Index.scan(sys.argv[1])
    config = dict(batch_size=2, num_read_processes=1, devices=[None], framework="numpy")
    with Loader(fits_pipeline, index, **config) as loader:
        found = {row: float(image.sum()) for (batch,) in loader
                 for row, image in zip(batch["row"].tolist(), batch["image"])}
    print(json.dumps(found))
"""

COMPILE = """
import os, tempfile

tempfile.tempdir = os.environ["TMPDIR"]  # or it would be another that can be written
from dali_pipelines.kernels.entries import _resize_setup

print(_resize_setup().address > 0)
"""

COMPILE_FOR_GPUS = """
from dali_pipelines.kernels.fits.image_cuda import decode_images

print(decode_images._cache.cache_path)
"""


@pytest.fixture
def container() -> Iterator[Path]:
    """Copy the packages; neither they nor the home beside them can be written, but tmp can.

    What has been compiled so far for FITS lies beside the packages, as `warm` would leave it.
    """
    # Not tmp_path, which is too long for a TMPDIR: the socket of the fork server lies there.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for package in ("dali_pipelines", "readers"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / package, folder / "packages" / package, ignore=ignored)
        for function in decode_entry("float32"):
            kept = Path(function._cache.cache_path)
            beside = folder / "packages" / "dali_pipelines" / "kernels" / "__pycache__"
            beside.mkdir(exist_ok=True)
            for file in kept.glob(f"{function._cache._impl.filename_base}*"):
                shutil.copy(file, beside)
        (folder / "home").mkdir()
        (folder / "tmp").mkdir()
        for part in ("home", "packages"):
            subprocess.run(["chmod", "-R", "a-w", folder / part], check=True)
        yield folder
        subprocess.run(["chmod", "-R", "u+w", folder], check=True)


def run(container: Path, code: str, *arguments: str) -> tuple[str, str]:
    """Run code in the container, where root may do no more than others; give stdout and stderr."""
    command = [sys.executable, "-c", code, *arguments]
    if code is RUN:
        script = container / "run.py"
        script.write_text(code)
        command = [sys.executable, str(script), *arguments]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root can write anywhere, and there is no setpriv to take that away")
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    done = subprocess.run(
        command,
        cwd=container / "home",
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(container / "home"),
            "TMPDIR": str(container / "tmp"),
            "PYTHONPATH": str(container / "packages"),
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def kept_in(folder: Path, source: Path) -> Path:
    """Return where numba keeps what it compiles of a file."""
    return folder / UserProvidedCacheLocator.get_suitable_cache_subpath(str(source))


def own_folder(container: Path) -> Path:
    return container / "tmp" / f"dali-pipelines-{os.geteuid()}" / "numba"


REMEDY = ": set NUMBA_CACHE_DIR to a folder that can be written, and that lasts"


def test_a_pipeline_finds_the_kernels_that_lie_beside_it(container: Path) -> None:
    archive = container / "archive"
    archive.mkdir()
    for row in range(3):
        image = np.full((12, 16), row, np.int16)
        fits.CompImageHDU(image, compression_type="RICE_1").writeto(archive / f"{row}.fits")
    out, err = run(container, RUN, str(archive))
    assert json.loads(out) == {str(row): row * 12.0 * 16 for row in range(3)}
    assert "NUMBA_CACHE_DIR" not in err
    assert list(own_folder(container).rglob("*.nb?")) == []


def test_others_are_kept_in_the_folder_for_temporary_files(container: Path) -> None:
    out, err = run(container, COMPILE)
    assert out == "True\n"
    assert err == f"compiled kernels are kept in {own_folder(container)} for now{REMEDY}\n"
    source = container / "packages" / KERNELS / "entries.py"
    kept = kept_in(own_folder(container), source)
    assert any(kept.glob("entries._resize_setup.locals.setup-*.nbi"))


def test_nowhere_to_keep_kernels(container: Path) -> None:
    (container / "tmp").chmod(0o555)
    out, err = run(container, COMPILE)
    assert out == "True\n"
    assert err == (
        f"each process compiles its kernels again, for 6 s: nowhere can be written{REMEDY}\n"
    )


def test_kernels_for_gpus_are_kept_in_the_folder_for_temporary_files(container: Path) -> None:
    """numba-cuda has settings of its own."""
    out, err = run(container, COMPILE_FOR_GPUS)
    source = container / "packages" / KERNELS / "fits" / "image_cuda.py"
    assert out == f"{kept_in(own_folder(container), source)}\n"
    assert err == f"compiled kernels are kept in {own_folder(container)} for now{REMEDY}\n"


def test_a_command_says_where_kernels_are_kept(container: Path) -> None:
    lines = "".join(f"    {line}\n" for line in COMPILE.strip().splitlines())
    main = f"@command('warm')\ndef main():\n{lines}    return 0\n"
    _, err = run(container, f"from dali_pipelines.cli.errors import command\n{main}main()\n")
    assert str(own_folder(container)) in err
