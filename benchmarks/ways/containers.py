"""Photographs in containers, written by the libraries of these, and the library webdataset."""

# Worker processes import this file: what is heavy is imported in the functions.
from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure.ledger import Ledger
from benchmarks.measure.race import Run, Way
from benchmarks.ways.dali import row_digits
from benchmarks.ways.peers import PEERS, SEED, Case, sample_of

_SHARDS = 8


@dataclass(frozen=True)
class Packed:
    """The same photographs in containers of all kinds, in order."""

    tars: list[str]
    tfrecords: list[str]
    tfrecord_indexes: list[str]
    lmdb: str


def pack(paths: Sequence[str], folder: Path) -> Packed:
    """Write the files into containers; each has its row as its label."""
    packed = Packed(write_tars(paths, folder), [], [], str(folder / "photos.lmdb"))
    for number, rows in enumerate(_shards(len(paths))):
        packed.tfrecords.append(str(folder / f"{number:03}.tfrecord"))
        packed.tfrecord_indexes.append(str(folder / f"{number:03}.tfindex"))
        _write_tfrecord(packed.tfrecords[-1], packed.tfrecord_indexes[-1], paths, rows)
    _write_lmdb(packed.lmdb, paths)
    return packed


def write_tars(paths: Sequence[str], folder: Path) -> list[str]:
    """Write the files into tars; each has its row as its label."""
    tars = []
    for number, rows in enumerate(_shards(len(paths))):
        tars.append(str(folder / f"{number:03}.tar"))
        _write_tar(tars[-1], paths, rows)
    return tars


def _shards(count: int) -> list[range]:
    step = -(-count // _SHARDS)
    return [range(start, min(start + step, count)) for start in range(0, count, step)]


def _write_tar(tar: str, paths: Sequence[str], rows: Sequence[int]) -> None:
    with tarfile.open(tar, "w") as opened:
        for row in rows:
            contents = {"jpg": Path(paths[row]).read_bytes(), "cls": row_digits(row)}
            for suffix, content in contents.items():
                member = tarfile.TarInfo(f"{row:08}.{suffix}")
                member.size = len(content)
                opened.addfile(member, io.BytesIO(content))


def _write_tfrecord(path: str, index: str, paths: Sequence[str], rows: Sequence[int]) -> None:
    from tfrecord import TFRecordWriter
    from tfrecord.tools.tfrecord2idx import create_index

    writer = TFRecordWriter(path)
    for row in rows:
        image = Path(paths[row]).read_bytes()
        writer.write({"image/encoded": (image, "byte"), "label": (row, "int")})
    writer.close()
    create_index(path, index)


def _write_lmdb(path: str, paths: Sequence[str]) -> None:
    import lmdb

    size = 2 * sum(Path(one).stat().st_size for one in paths) + (1 << 24)
    with lmdb.open(path, map_size=size) as environment, environment.begin(write=True) as written:
        for row, one in enumerate(paths):
            written.put(struct.pack(">Q", row), Path(one).read_bytes())


@dataclass(frozen=True)
class _Sample:
    """Decodes a sample of a tar by one of `PEERS`."""

    case: Case
    peer: str
    ledger: Ledger

    def __call__(self, sample: dict[str, Any]) -> tuple[Any, int]:
        row = int(sample["cls"])
        return sample_of(row, sample["jpg"], self.case, self.peer, self.ledger), row


def webdataset_way(
    tars: Sequence[str],
    case: Case,
    passes: int,
    fill: int,
    num_workers: int,
    ledger: Ledger,
    peer: str = "Pillow",
) -> Way:
    """Make the way of a DataLoader over the library webdataset, and one of `PEERS`.

    Tars are shuffled, and samples drawn from a buffer of so many.
    """

    @contextmanager
    def start() -> Iterator[Run]:
        import webdataset
        from torch.utils.data import DataLoader

        dataset = webdataset.WebDataset(list(tars), shardshuffle=len(tars), seed=SEED)
        dataset = dataset.shuffle(fill, seed=SEED).map(_Sample(case, peer, ledger)).repeat(passes)
        loader: DataLoader[Any] = DataLoader(
            dataset,
            batch_size=case.batch_size,
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
            multiprocessing_context="forkserver" if num_workers else None,
        )
        yield lambda _: ((rows.tolist(), images) for images, rows in loader)

    return Way(
        name=f"DataLoader, webdataset and {peer}",
        start=start,
        needs=("webdataset", PEERS[peer].needs),
        remedy=PEERS[peer].remedy,
        ledger=ledger,
        **case.agreement(),
    )
