"""Damaged chunks of Zarr, and what ChunkedReader makes of them; run as a process, as one may die.

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
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import zarr.codecs
from numcodecs import LZ4, Blosc, GZip, Zlib, Zstd
from zarr_stores import frames, write_array

from readers import Index, ReadError, Window
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
    stores = []
    array = np.round(frames(SHAPE) % 91 * 0.37, 1).astype(np.float32)
    for number, (kind, settings) in enumerate(STORES.items()):
        path = write_array(folder / f"{number}", array, CHUNKS, **settings)
        columns = Index.from_zarr(path).columns(notes=["chunks"])
        rows = [columns.row(plane) for plane in range(SHAPE[0])]
        files = [one for one in path.rglob("*") if one.is_file() and one.name[-1].isdigit()]
        stores.append((kind, ChunkedReader((path.name,)), rows, files))
        ChunkedReader((path.name,)).read(rows[0], None)  # imports what it needs
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, used + _MEMORY))
    for number in range(count):
        kind, reader, rows, files = random.choice(stores)
        file = random.choice(files)
        sound = file.read_bytes()
        file.write_bytes(damaged(sound, random))
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
