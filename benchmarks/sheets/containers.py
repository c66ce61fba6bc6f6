"""Indexes of tars: how long making and opening one takes."""

from __future__ import annotations

import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from benchmarks.data import Settings
from benchmarks.report.tables import Sheet, number
from benchmarks.sheets.index import fresh, open_file

if TYPE_CHECKING:
    from dali_pipelines import Index

_TARS = 20
_BLOCK = 512
_SMALL, _LARGE = 2000, 110_000
"""Bytes of an image."""


def tars_sheet(folder: Path, settings: Settings) -> Sheet:
    """Make tars, an Index of them, and one of a million rows."""
    samples = 2000 if settings.quick else 100_000
    shards = 10_000 if settings.quick else 1_000_000
    small = _write_tars(folder / "small", samples, _SMALL)
    large = _write_tars(folder / "large", samples, _LARGE)
    index = _scanned(small)
    lines = [
        _line("Index.scan", _SMALL, 2 * samples, lambda: _scanned(small)),
        _line("Index.scan", _LARGE, 2 * samples, lambda: _scanned(large)),
        _line("tarfile, only names", _SMALL, 2 * samples // _TARS, lambda: _names(small[0])),
    ]
    file = str(folder / "shards.arrow")
    _of_many_tars(index, shards).save(file)
    for cold in (False, True):
        cost = fresh(open_file, file, cold, "cls")
        name = f"open an .arrow Index of {shards:,} rows, each in its own tar"
        lines.append((name + ", not in the page cache" * cold, "", number(cost.seconds), "", ""))
    return Sheet(
        title="Indexes of tars",
        header=("step", "image, bytes", "seconds", "members per second", "1 M members, s"),
        lines=tuple(lines),
        data=f"{2 * samples:,} members in {_TARS} tars: an image and a class for each sample, in "
        "the page cache; the large images are holes",
        note="Each Index is opened in a new process.",
    )


def _line(name: str, nbytes: int, members: int, step: Callable[[], object]) -> tuple[str, ...]:
    started = time.perf_counter()
    step()
    seconds = time.perf_counter() - started
    rate = members / seconds
    return name, f"{nbytes:,}", number(seconds), number(rate), number(1e6 / rate)


def _scanned(tars: list[str]) -> Index:
    from dali_pipelines import Index

    return Index.scan(tars)


def _names(tar: str) -> list[str]:
    with tarfile.open(tar) as opened:
        return opened.getnames()


def _write_tars(folder: Path, samples: int, nbytes: int) -> list[str]:
    folder.mkdir()
    paths = []
    for number_, rows in enumerate(np.array_split(np.arange(samples), _TARS)):
        paths.append(str(folder / f"{number_:03}.tar"))
        with Path(paths[-1]).open("wb") as file:
            for row in rows.tolist():
                _add(file, f"{row:08}.cls", str(row).encode(), 0)
                _add(file, f"{row:08}.jpg", b"\xff\xd8\xff", nbytes)
            file.write(bytes(2 * _BLOCK))
    return paths


def _add(file: BinaryIO, name: str, content: bytes, nbytes: int) -> None:
    """Add a member, with a hole behind its content up to its length."""
    member = tarfile.TarInfo(name)
    member.size = max(nbytes, len(content))
    file.write(member.tobuf(tarfile.USTAR_FORMAT))
    file.write(content)
    end = file.tell() - len(content) + member.size
    file.seek(end + -end % _BLOCK)


def _of_many_tars(index: Index, rows: int) -> Index:
    import pyarrow as pa

    taken: Any = index.table.take(pa.array(np.arange(rows) % len(index)))
    paths = pa.array((f"/archive/shards/{row:08}.tar" for row in range(rows)), pa.large_string())
    return type(index)(taken.set_column(taken.column_names.index("path"), "path", paths))
