"""Damaged chunks of Zarr and HDF5 in ChunkedReader; run as a process, as one may die.

``python -m damaged_chunks FOLDER COUNT SEED`` prints, as JSON, how many were refused, read as they
were written (the damage was elsewhere), or read as other values. Each is read twice, with other
bytes in the memory that is free, so that what was never written would differ.
"""

from __future__ import annotations

import faulthandler
import json
import resource
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Self

import h5py
import hdf5plugin
import numpy as np
import zarr.codecs
from numcodecs import LZ4, Blosc, GZip, Zlib, Zstd
from zarr_stores import frames, write_array

from readers import Index, ReadError, Row, Window
from readers.chunks.reader import ChunkedReader

_MEMORY = 1 << 30
"""Bytes that the process may take beyond what it has."""
_WORDS = (0, 1, -1, 2**31 - 1, -(2**31), 16, 2, 255, 1 << 24, 1 << 30)
SHAPE, CHUNKS = (6, 220, 200), (6, 110, 100)
_OF_V3: dict[str, Any] = {"zarr_format": 3, "shards": (6, 220, 200)}
STORES: dict[str, dict[str, Any]] = {
    **{
        f"blosc {name} {shuffle}": {"compressors": Blosc(name, 3, shuffle, blocksize=size)}
        for name, shuffle, size in (
            *(("zstd", 2, 0), ("zstd", 1, 1 << 14), ("lz4", 1, 1 << 14), ("lz4", 2, 1 << 13)),
            *(("blosclz", 1, 1 << 14), ("zlib", 0, 1 << 14), ("lz4hc", 0, 1 << 13)),
        )
    },
    "zstd": {"compressors": Zstd(3)},
    "lz4": {"compressors": LZ4()},
    "gzip": {"compressors": GZip(3)},
    "zlib": {"compressors": Zlib(3)},
    "shard": {**_OF_V3, "compressors": zarr.codecs.BloscCodec(cname="lz4", clevel=3)},
    "shard of checksums": {**_OF_V3, "compressors": zarr.codecs.Crc32cCodec()},
}
SHUFFLED: dict[str, Any] = {"shuffle": True}
OF_HDF5: dict[str, dict[str, Any]] = {
    "hdf5 lz4": dict(hdf5plugin.LZ4()),
    "hdf5 lz4, shuffled": SHUFFLED | dict(hdf5plugin.LZ4()),
    "hdf5 lz4, small blocks, shuffled": SHUFFLED | dict(hdf5plugin.LZ4(nbytes=5000)),
    "hdf5 zstd, shuffled": SHUFFLED | dict(hdf5plugin.Zstd()),
    "hdf5 gzip, shuffled": SHUFFLED | {"compression": "gzip"},
    "hdf5 bits, lz4": dict(hdf5plugin.Bitshuffle()),
    "hdf5 bits, zstd": dict(hdf5plugin.Bitshuffle(cname="zstd")),
}


class Store(NamedTuple):
    """An array, and where the bytes of its chunks are."""

    kind: str
    reader: ChunkedReader
    rows: list[Row]
    chunks: list[tuple[Path, int, int]]
    """File, first byte, and end."""

    @classmethod
    def of(cls, kind: str, name: str, index: Index, chunks: list[tuple[Path, int, int]]) -> Self:
        """Return it, and import what reading it needs."""
        columns = index.columns(notes=["chunks"])
        rows = [columns.row(plane) for plane in range(SHAPE[0])]
        found = cls(kind, ChunkedReader((name,)), rows, chunks)
        found.reader.read(rows[0], None)
        return found


def stores(folder: Path, array: Any) -> Iterator[Store]:
    """Write an array in each way."""
    for number, (kind, settings) in enumerate(STORES.items()):
        path = write_array(folder / f"{number}", array, CHUNKS, **settings)
        files = [one for one in path.rglob("*") if one.is_file() and one.name[-1].isdigit()]
        whole = [(file, 0, file.stat().st_size) for file in files]
        yield Store.of(kind, path.name, Index.from_zarr(path), whole)
    for number, (kind, settings) in enumerate(OF_HDF5.items()):
        path = folder / f"{number}.h5"
        with h5py.File(path, "w") as file:
            one = file.create_dataset("a", data=array, chunks=CHUNKS, **settings)
            infos = [one.id.get_chunk_info(n) for n in range(one.id.get_num_chunks())]
        chunks = [(path, info.byte_offset, info.byte_offset + info.size) for info in infos]
        yield Store.of(kind, "a", Index.scan_arrays(path, dim="time"), chunks)


def damaged(content: bytes, random: Random) -> bytes:
    """Return bytes with one to three kinds of damage, often in their first or last ones."""
    made = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        if len(made) < 40:
            break
        where = random.choice((16, 300, len(made), len(made)))
        at = random.randrange(min(where, len(made) - 8))
        if random.random() < 0.15:
            at = len(made) - 8 - random.randrange(min(300, len(made) - 8))
        kind = random.randrange(6)
        if kind == 0:
            made[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            size = random.choice((1, 4, 16, 200))
            made[at : at + size] = random.randbytes(size)
        elif kind == 2:
            word = random.choice((*_WORDS, random.getrandbits(31), len(made)))
            at -= at % 4
            made[at : at + 4] = (word % 2**32).to_bytes(4, "little")
        elif kind == 3:
            del made[random.choice((at, len(made) - 1)) :]
        elif kind == 4:
            made[at : at + 64] = bytes(len(made[at : at + 64]))
        else:
            other = random.randrange(len(made) - 8)
            made[at : at + 8], made[other : other + 8] = made[other : other + 8], made[at : at + 8]
    return bytes(made)


def main(folder: Path, count: int, seed: int) -> None:
    """Damage `count` chunks, and print what became of them."""
    faulthandler.enable()
    random, found = Random(seed), Counter[str]()
    array = np.round(frames(SHAPE) % 91 * 0.37, 1).astype(np.float32)
    written = list(stores(folder, array))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, used + _MEMORY))
    for number in range(count):
        kind, reader, rows, chunks = random.choice(written)
        file, start, stop = random.choice(chunks)
        sound = file.read_bytes()
        chunk = damaged(sound[start:stop], random)
        if file.suffix == ".h5":  # others follow it in the file
            chunk = chunk.ljust(stop - start, b"\0")
        file.write_bytes(sound[:start] + chunk + sound[stop:])
        plane = random.randrange(SHAPE[0])
        window = random.choice((None, Window(height=90, width=60, y=random.random(), x=0.4)))
        images = []
        for poison in (0x55, 0xAA):
            held = [np.full(size, poison, np.uint8) for size in (1 << 12, 1 << 16, 1 << 19) * 2]
            del held
            try:
                images.append(reader.read(rows[plane], window)["image"][0].copy())
            except ReadError as error:
                if "allocate" in str(error) or "MemoryError" in str(error):
                    sys.exit(f"case {number} of {kind}: {error}")
        file.write_bytes(sound)
        if len(images) == 1 or (images and images[0].tobytes() != images[1].tobytes()):
            sys.exit(f"case {number} of {kind} depends on what was in memory")
        if not images:
            found["refused"] += 1
            continue
        y, x = (0, 0) if window is None else window.place(*SHAPE[1:])
        height, width = images[0].shape
        same = np.array_equal(images[0], array[plane, y : y + height, x : x + width])
        found["the same" if same else "other values"] += 1
        if not same and kind == "shard of checksums":
            sys.exit(f"case {number} of {kind} gives other values, in spite of the checksum")
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
