"""The cache of compiled kernels knows of changes in the files that they are made of."""

from __future__ import annotations

import subprocess
import sys

from dali_pipelines.kernels import entries, stamp
from dali_pipelines.kernels.fits import image, rice
from dali_pipelines.kernels.resample import resize


def test_the_cache_of_each_kernel_has_the_stamp() -> None:
    # Private, as numba tells it nowhere else; kernels would go on as they were after a change.
    for kernel in (image.decode_image, rice.decode_chunk, resize.resize):
        assert kernel._cache._cache_file._source_stamp == stamp.STAMP
    for entry in (
        entries.decode_entry("float32"),
        entries.resize_entry("uint8"),
        entries.warp_entry(),
    ):
        for function in entry:
            assert function._cache._cache_file._source_stamp == stamp.STAMP


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
