"""The README is a test: its commands and snippets run, on a small archive."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import solar_files
from astropy.io import fits
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> Iterator[str]:
    for block in blocks("bash"):
        for line in block.splitlines():
            yield line.partition("#")[0].strip()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of 32 frames of 520x530, small ones of AIA, and photographs of two classes."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "archive" / "2015").mkdir(parents=True)
    pixels = np.random.default_rng(0).poisson(100, (520, 530)).astype(np.int16)
    for number in range(32):
        frame = fits.CompImageHDU(pixels + number, compression_type="RICE_1")
        time = f"2015-01-01T00:{number // 2:02}:{number % 2 * 5:02}"
        frame.header.update(WAVELNTH=171 if number % 2 else 193, QUALITY=0, T_OBS=time)
        frame.writeto(folder / "archive" / "2015" / f"{number}.fits")
    (folder / "level1").mkdir()
    for number in range(6):
        solar_files.save(folder / "level1" / f"{number}.fits", *solar_files.frame())
    for number in range(10):
        path = folder / "photos" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (300, 240), (number * 20, 0, 0)).save(path)
    return folder


def run(command: list[str], folder: Path) -> str:
    found = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=200, check=False
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_snippet(folder: Path, number: int) -> None:
    text = blocks("python")[number]
    if number > 0:  # the first one runs as it stands
        text = 'if __name__ == "__main__":\n' + textwrap.indent(text, "    ")
    script = folder / f"snippet{number}.py"
    script.write_text(text)
    run([sys.executable, str(script)], folder)


@pytest.mark.parametrize("command", [c for c in commands() if c.startswith("make ")])
def test_make_target(command: str) -> None:
    run(["make", "--dry-run", *shlex.split(command)[1:]], ROOT)


@pytest.mark.timeout(900)
def test_scripts(folder: Path) -> None:
    """In the order of the README, as the later ones use what the earlier ones made."""
    scripts = [shlex.split(c) for c in commands() if c.startswith(("python ", "torchrun "))]
    assert scripts[0] == shlex.split(
        "python scripts/run.py --num_read_processes=16 --batch_size=16 --num_gpus=4"
    )
    for command, *words in scripts:
        launch = ["-m", "torch.distributed.run", "--standalone"] if command == "torchrun" else []
        if re.search(r"(run|train)\.py", " ".join(words)) and "--data" not in " ".join(words):
            words.append("--data=archive")  # in place of the sample set's 755 MB
        if "scripts/train.py" in words:
            words.append("--max_steps=6")  # into the second epoch, and on from there
        words = [re.sub("^(--config=)?(configs|scripts)/", rf"\1{ROOT}/\2/", w) for w in words]
        run([sys.executable, *launch, *words], folder)


def test_every_python_name_of_the_package_is_real() -> None:
    import dali_pipelines

    for names in re.findall(r"from dali_pipelines import (.+)", README):
        assert {name.strip() for name in names.split(",")} <= set(dali_pipelines.__all__)


def test_it_stays_readable() -> None:
    assert len(README.splitlines()) < 300
