"""Bytes that a DiskCache fetches, and what it holds of them; by itself, a process that reads them.

``python -m cached_origin FOLDER NBYTES SEED COUNT LOG`` reads `COUNT` random ranges, and appends to
`LOG` a line for each that it fetched. It ends with an error at the first wrong byte.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path

from readers.cache.locks import locked
from readers.places.cache.cells import BLOCK
from readers.places.cache.disk import LEAST, DiskCache
from readers.places.cache.room import LOCKS

DATA = random.Random(7).randbytes(2 * LEAST + 12345)
KEY = "s3://bucket/a.fits#etag"


class Origin:
    """Bytes, and the ranges of them that were fetched."""

    def __init__(self, data: bytes = DATA, key: str = KEY) -> None:
        self.data, self.key = data, key
        self.asked: list[tuple[int, int]] = []

    def __call__(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.asked += ranges
        return [self.data[start:stop] for start, stop in ranges]

    def read(self, cache: DiskCache, start: int, stop: int) -> bytes:
        buffer = bytearray(max(0, min(stop, len(self.data)) - start))
        cache.fill(self.key, len(self.data), [(start, memoryview(buffer))], self)
        return bytes(buffer)

    def read_random(self, cache: DiskCache, draws: random.Random) -> None:
        """Read a random range of up to 1 MB; raise ValueError at a wrong byte."""
        start = draws.randrange(len(self.data))
        stop = start + draws.randrange(1 << draws.randrange(1, 21))
        if self.read(cache, start, stop) != self.data[start:stop]:
            raise ValueError(f"wrong bytes between {start} and {stop} of {self.key}")


def cell_files(folder: Path) -> list[Path]:
    """List the files of the cells of a cache."""
    return sorted(path for path in folder.glob("??/*") if path.is_file())


def used(folder: Path) -> int:
    """Return the bytes that the cells of a cache take, while none is added or evicted."""
    with locked(f"{folder}/{LOCKS}", 0, 1, patience_s=60):
        sizes = [path.stat().st_size for path in cell_files(folder)]
        return sum(-(-size // BLOCK) * BLOCK for size in sizes)


def main(folder: str, nbytes: str, seed: str, count: str, log: str) -> None:
    """Read random ranges of three objects."""
    cache, draws = DiskCache(folder, int(nbytes)), random.Random(int(seed))
    origins = [Origin(DATA[1000 * number :], str(number)) for number in range(3)]
    for _ in range(int(count)):
        draws.choice(origins).read_random(cache, draws)
    with open(log, "a", encoding="ascii") as file:
        for origin in origins:
            file.write("".join(f"{origin.key} {start} {stop}\n" for start, stop in origin.asked))


if __name__ == "__main__":
    main(*sys.argv[1:])
