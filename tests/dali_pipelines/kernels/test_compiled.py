"""The cache of compiled kernels knows of changes in the files that they are made of."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dali_pipelines.kernels import compiled, entries
from dali_pipelines.kernels.fits import image, rice
from dali_pipelines.kernels.resample import resize


def test_any_change_makes_another_stamp(tmp_path: Path) -> None:
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    for file in files:
        file.write_text("x = 1\n")
    before = compiled._stamp(files)
    files[1].write_text("x = 2\n")
    assert compiled._stamp(files) != before
    assert compiled._stamp(files) == compiled._stamp(files[::-1])


def test_the_cache_of_each_kernel_has_the_stamp() -> None:
    for kernel in (image.decode_image, rice.decode_chunk, resize.resize):
        assert kernel._cache._cache_file._source_stamp == compiled.STAMP
    for entry in (
        entries.decode_entry("float32"),
        entries.resize_entry("uint8"),
        entries.warp_entry(),
    ):
        for function in entry:
            closure = function.__wrapped__.__closure__
            assert compiled.STAMP in [cell.cell_contents for cell in closure]


def test_another_process_compiles_nothing() -> None:
    code = """
from dali_pipelines.kernels import entries
made = entries.decode_entry("float32"), entries.retouch_entry(), entries.photon_noise_entry()
print(*(function.cache_hits for entry in made for function in entry))
"""
    entries.decode_entry("float32"), entries.retouch_entry(), entries.photon_noise_entry()
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert found.stdout.split() == ["1"] * 6
