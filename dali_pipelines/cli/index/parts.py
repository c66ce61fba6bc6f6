"""Parts of a scan that the processes of a job array write, joined at the end."""

from __future__ import annotations

import glob
import gzip
import io
import json
import os
import zlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.errors import CommandError, count, refusing
from dali_pipelines.cli.paths import OutputFile
from dali_pipelines.cli.shared_flags import shard_of
from dali_pipelines.runtime.version import own_version

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from dali_pipelines.cli.index.config import IndexConfig
    from readers.fits.headers import Value

    Found = list[dict[str, Value]] | str
    """The rows of a file, or the reason why it has none."""
    Part = tuple[str, Found, str | None]
    """A file, its contents, and its version if it is known."""

_GZIP = 31
"""zlib's number for the format gzip."""


def write(config: IndexConfig, results: Iterable[Part]) -> None:
    """Write the files of a shard and their contents, in order: gzipped JSON, a line for each."""
    pack = zlib.compressobj(wbits=_GZIP)
    with refusing(OSError, status=1), OutputFile(path(config)) as file:
        for line in (_settings(config), *results):
            file.write(pack.compress(json.dumps(line).encode() + b"\n"))
        file.write(pack.flush())


def joined(
    config: IndexConfig, files: Iterable[tuple[str, str | None]]
) -> Generator[tuple[str, Found], None, None]:
    """Yield names and contents of files from the parts; `files` are names and versions.

    Raises
    ------
    CommandError
        If a part is missing, belongs to another scan, or has other files or versions of them.
    """
    parts = [_lines(config, shard, part) for shard, part in enumerate(_all_paths(config))]
    for name, version in files:
        shard = shard_of(name, len(parts))
        other, found, read = next(parts[shard], (name, "", "of no file"))
        if (other, read) != (name, version):
            _refuse_other_files(shard, min(name, other))
        yield name, found
    for shard, part in enumerate(parts):
        for name, *_ in part:
            _refuse_other_files(shard, name)


def remove(config: IndexConfig) -> None:
    """Remove the parts, as they would be wrong for a later scan."""
    for part in _all_paths(config):
        os.unlink(part)


def path(config: IndexConfig, shard: int | None = None) -> str:
    """Return the file of a part, by default that of this process, e.g. index.shard3of10.json.gz."""
    shard = config.shard_id if shard is None else shard
    return f"{_stem(config)}.shard{shard}of{config.num_shards}.json.gz"


def _stem(config: IndexConfig) -> str:
    return os.path.splitext(config.out)[0]


def _all_paths(config: IndexConfig) -> list[str]:
    paths = [path(config, shard) for shard in range(config.num_shards or 0)]
    missing = [shard for shard, part in enumerate(paths) if not os.path.isfile(part)]
    if missing:
        raise CommandError(
            f"{len(missing)} of {len(paths)} parts are missing, {paths[missing[0]]} the first: "
            f"run --shard_id={','.join(map(str, missing))}{_of_other_counts(config)}"
        )
    return paths


def _of_other_counts(config: IndexConfig) -> str:
    """Return a hint about parts of another number of shards, if there are any."""
    there = glob.glob(f"{glob.escape(_stem(config))}.shard*of*.json.gz")
    counts = Counter(part.removesuffix(".json.gz").rpartition("of")[2] for part in there)
    del counts[str(config.num_shards)]
    found = (f"{count(number, 'part')} of --num_shards={of}" for of, number in counts.items())
    return f"; or set another --num_shards, there are {' and '.join(found)}" if counts else ""


def _settings(config: IndexConfig) -> dict[str, Any]:
    """Return the settings that determine the contents of a part."""
    return {"version": own_version(), **config.header_settings, "verify": config.verify}


def _lines(config: IndexConfig, shard: int, part: str) -> Iterator[Part]:
    wanted = json.loads(json.dumps(_settings(config)))
    unreadable = f"{part} cannot be read, run --shard_id={shard} again"
    with refusing(OSError, EOFError, TypeError, ValueError, zlib.error, doing=unreadable):
        packed = io.BytesIO(Path(part).read_bytes())  # 1000 open files would be too many
        lines = map(json.loads, gzip.GzipFile(fileobj=packed))
        made_with: dict[str, Any] = dict(next(lines, {}))
        for name in wanted:
            if made_with.get(name) != wanted[name]:
                raise CommandError(
                    f"{part}: this part was made with {name} {made_with.get(name)}, not "
                    f"{wanted[name]}: pass the flags of the scan to --join, or scan again"
                )
        yield from lines


def _refuse_other_files(shard: int, name: str) -> None:
    raise CommandError(
        f"{name} was added, removed or changed after --shard_id={shard} had listed the files: run "
        "that job again, or choose a folder or pattern in which nothing changes",
        1,
    )
