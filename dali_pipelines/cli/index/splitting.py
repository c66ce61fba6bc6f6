"""Parts of an Index for training, validation and test: checks and application of ``--split``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dali_pipelines.cli.errors import CommandError, refusing
from dali_pipelines.cli.paths import marked

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from dali_pipelines.cli.index.config import IndexConfig


def files(config: IndexConfig) -> list[str]:
    """Return the files to write: OUT, or one for each part, e.g. index.train.parquet."""
    return [marked(config.out, name) for name in config.split or ()] or [config.out]


def check_flags(config: IndexConfig) -> None:
    """Raise CommandError, before reading, if shares do not add up to 1, or the seed is wrong."""
    from readers.index.rows.splitting import bounds_of, seed_of

    if config.split is not None:
        with refusing(ValueError, doing="--split"):
            bounds_of(config.split)
            seed_of(config.split_seed)


def check(config: IndexConfig, names: Sequence[str]) -> None:
    """Raise CommandError, before a scan, if the table will lack the column of ``--split_by``."""
    from readers.index.rows.splitting import check_column, usual_column

    if config.split is None:
        return
    try:
        check_column(config.parts_by or usual_column(names), list(names))
    except KeyError as error:
        raise CommandError(f"--split: {error.args[0]}") from error


def parts(config: IndexConfig, table: pa.Table) -> list[pa.Table]:
    """Return the table of each part; the table itself without ``--split``."""
    from readers.index.table import Index

    if config.split is None:
        return [table]
    check(config, table.column_names)
    try:
        found = Index(table).split(config.split, by=config.parts_by, seed=config.split_seed)
    except (ValueError, TypeError) as error:
        message = str(error).replace("seed=", "--split_seed=")
        raise CommandError(f"--split: {message}", 1) from error
    return [part.table for part in found.values()]


def told(config: IndexConfig, tables: Sequence[pa.Table], total: int) -> str:
    """Describe the number of rows of each part, and of those in no part."""
    counts = [
        f"{len(table)} {name}" for name, table in zip(config.split or (), tables, strict=True)
    ]
    gaps = total - sum(map(len, tables))
    return f"Split into {', '.join(counts)}{f', {gaps} in gaps left out' if gaps else ''}"
