"""The cache of compiled kernels knows of changes in the files that they are made of."""

from __future__ import annotations

from pathlib import Path

from dali_pipelines.kernels import compiled, entries, physical, resize, rice


def test_any_change_makes_another_stamp(tmp_path: Path) -> None:
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    for file in files:
        file.write_text("x = 1\n")
    before = compiled._stamp(files)
    files[1].write_text("x = 2\n")
    assert compiled._stamp(files) != before
    assert compiled._stamp(files) == compiled._stamp(files[::-1])


def test_the_cache_of_each_kernel_has_the_stamp() -> None:
    for kernel in (physical.decode_image, rice.decode_chunk, resize.resize):
        assert kernel._cache._cache_file._source_stamp == compiled.STAMP
    for run in (*entries.decode_run.values(), *entries.resize_run.values()):
        assert compiled.STAMP in [cell.cell_contents for cell in run.__wrapped__.__closure__]
