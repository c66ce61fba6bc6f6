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
from PIL import Image

pytestmark = pytest.mark.slow

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

print(decode_images._cache.cache_path)  # numba-cuda tells it nowhere else
"""


@pytest.fixture
def container() -> Iterator[Path]:
    """Copy the packages; neither they nor the home beside them can be written, but tmp can.

    The folder of compiled code, which cannot be written either, has kernels for FITS, as `warm`
    would leave it.
    """
    # Not tmp_path, which is too long for a TMPDIR: the socket of the fork server lies there.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for package in ("dali_pipelines", "readers"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / package, folder / "packages" / package, ignore=ignored)
        (folder / "home").mkdir()
        (folder / "tmp").mkdir()
        (folder / "code").mkdir()
        code = "from dali_pipelines.kernels.entries import decode_entry; decode_entry('float32')"
        run(folder, code)
        shutil.rmtree(folder / "tmp")
        (folder / "tmp").mkdir()
        for part in ("home", "packages", "code"):
            subprocess.run(["chmod", "-R", "a-w", folder / part], check=True)
        yield folder
        subprocess.run(["chmod", "-R", "u+w", folder], check=True)


def run(container: Path, code: str, *arguments: str, **variables: str) -> tuple[str, str]:
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
            "PYTHONDONTWRITEBYTECODE": "1",
            "NUMBA_CACHE_DIR": str(container / "code"),
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def own_folder(container: Path) -> Path:
    return container / "tmp" / f"dali-pipelines-{os.geteuid()}" / "numba"


def kept(folder: Path) -> set[str]:
    """Return the names of functions of which code is kept."""
    return {file.name.partition("-")[0] for file in folder.rglob("*.nbi")}


REMEDY = ": set NUMBA_CACHE_DIR to a writable folder that lasts"


def test_a_pipeline_finds_the_kernels_of_a_folder_that_cannot_be_written(container: Path) -> None:
    archive = container / "archive"
    archive.mkdir()
    for row in range(3):
        image = np.full((12, 16), row, np.int16)
        fits.CompImageHDU(image, compression_type="RICE_1").writeto(archive / f"{row}.fits")
    out, err = run(container, RUN, str(archive))
    assert json.loads(out) == {str(row): row * 12.0 * 16 for row in range(3)}
    assert "NUMBA_CACHE_DIR" not in err
    assert kept(own_folder(container)) == kept(container / "code"), "something was compiled"


def test_others_are_kept_in_the_folder_for_temporary_files(container: Path) -> None:
    out, err = run(container, COMPILE, NUMBA_CACHE_DIR="")
    assert out == "True\n"
    assert str(own_folder(container)) in err
    assert err.endswith(f"{REMEDY}\n")
    assert "entries._resize_setup.locals.setup" in kept(own_folder(container))


def test_nowhere_to_keep_kernels(container: Path) -> None:
    (container / "tmp").chmod(0o555)
    out, err = run(container, COMPILE)
    assert out == "True\n"
    assert "no folder is writable" in err
    assert err.endswith(f"{REMEDY}\n")


def test_kernels_for_gpus_are_kept_in_the_folder_for_temporary_files(container: Path) -> None:
    """numba-cuda has settings of its own."""
    out, _ = run(container, COMPILE_FOR_GPUS)
    assert Path(out.strip()).is_relative_to(own_folder(container))


def test_a_command_says_where_kernels_are_kept(container: Path) -> None:
    lines = "".join(f"    {line}\n" for line in COMPILE.strip().splitlines())
    main = f"@command('warm')\ndef main():\n{lines}    return 0\n"
    code = f"from dali_pipelines.cli.errors import command\n{main}main()\n"
    _, err = run(container, code, NUMBA_CACHE_DIR="")
    assert str(own_folder(container)) in err


def test_show_draws_in_the_colours_of_sunpy(container: Path) -> None:
    """SunPy cannot be imported without a folder for its settings."""
    header = fits.Header({"TELESCOP": "SDO/AIA", "WAVELNTH": 171})
    pixels = np.arange(64 * 64, dtype=np.int16).reshape(64, 64)
    fits.writeto(container / "aia.fits", pixels, header)
    code = "import sys; from dali_pipelines.cli.main import main; sys.exit(main(sys.argv[1:]))"
    sheet = container / "sheet.png"
    _, err = run(container, code, "show", str(container / "aia.fits"), "-o", str(sheet))
    folder = own_folder(container).parent / "config"
    for name in ("matplotlib", "sunpy"):
        assert str(folder / name) in err
    with Image.open(sheet) as image:
        red, _, blue = np.array(image.convert("RGB"), int).transpose(2, 0, 1)
    assert (red > blue + 50).any()
