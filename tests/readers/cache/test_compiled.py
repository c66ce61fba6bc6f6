from __future__ import annotations

from pathlib import Path

from readers.cache.stamp import stamp_of
from readers.fits.tiles.hcompress import stream, transform


def test_any_change_makes_another_stamp(tmp_path: Path) -> None:
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    for file in files:
        file.write_text("x = 1\n")
    before = stamp_of(files)
    files[1].write_text("x = 2\n")
    assert stamp_of(files) != before
    assert stamp_of(files) == stamp_of(files[::-1])


def test_the_stamp_is_that_of_all_files_of_a_folder() -> None:
    stamp = stamp_of(Path(stream.__file__).parent.glob("*.py"))
    # Private: numba shows to nobody by which stamp it tells that its files are stale.
    for function in (stream.read_coefficients, transform.invert):
        assert function._cache._cache_file._source_stamp == stamp
