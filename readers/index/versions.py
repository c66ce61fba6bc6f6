"""Versions of remote objects: columns of ETags and lengths."""

from __future__ import annotations

import itertools
import logging

from readers.index import schema
from readers.index.arrow import pa, pc
from readers.index.paths import holds_paths, holds_urls
from readers.messages import printable
from readers.places.failures import is_of_store
from readers.places.listing import Listed, object_at
from readers.places.storage import Storage
from readers.places.stores import threads_of
from readers.places.urls import URL

logger = logging.getLogger(__name__)


def with_versions(table: pa.Table, storage: Storage) -> pa.Table:
    """Return a table with the versions of its objects, see `Index.with_versions`."""
    if not holds_urls(table):
        return table
    names = [name for name in table.column_names if holds_paths(name, table[name])]
    asked = {name: _without_version(table, name) for name in names}
    urls = (each.drop_null().unique().to_pylist() for each in asked.values())
    found = _looked_at([*dict.fromkeys(itertools.chain.from_iterable(urls))], storage)
    if not found:
        return table
    known = pa.array(found, pa.large_string())
    etags = pa.array([one and one.etag for one in found.values()], pa.large_string())
    lengths = pa.array([one and one.nbytes for one in found.values()], pa.int64())
    for name, each in asked.items():
        if each.null_count == len(each):
            continue
        places = pc.index_in(each, value_set=known, skip_nulls=True)
        etag, nbytes = schema.version_columns(name)
        for column, values in ((nbytes, lengths), (etag, etags)):
            new = values.take(places)
            if column in table.column_names:
                new = pc.coalesce(new, table[column].cast(values.type))
            table = schema.with_column(table, column, new)
    return table


def _without_version(table: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a column of paths, with null for files, and for objects with a known version."""
    etag, nbytes = schema.version_columns(name)
    paths = table[name].cast(pa.large_string())
    asked = pc.match_substring_regex(paths, URL.pattern)
    if schema.holds_versions(table, etag, nbytes):
        asked = pc.and_(asked, pc.is_null(table[nbytes]))
    elif etag in table.column_names and pc.any(asked).as_py():
        raise ValueError(
            f"columns {etag!r} (text) and {nbytes!r} (integers) are the ETags and lengths of the "
            f"objects in {name!r}: rename {etag!r} if it has another meaning"
        )
    return pc.if_else(asked, paths, pa.scalar(None, paths.type))


def _looked_at(urls: list[str], storage: Storage) -> dict[str, Listed | None]:
    """Return the objects of URLs; None for an unreadable object. The log counts these."""
    found: dict[str, Listed | None] = {}
    bad: list[OSError | ValueError] = []
    submit, at_once = threads_of(storage).submit, 4 * storage.concurrency
    for start in range(0, len(urls), at_once):
        some = urls[start : start + at_once]
        waiting = [submit(_object_at, url, storage) for url in some]
        objects = [one.result() for one in waiting]
        errors = [one for one in objects if not isinstance(one, Listed)]
        if len(errors) == len(some) and all(map(is_of_store, errors)):
            raise errors[0]  # the other URLs would fail as well
        bad += errors
        noted = (one if isinstance(one, Listed) else None for one in objects)
        found |= zip(some, noted, strict=True)
    if bad:
        logger.warning(
            "%d of %d objects cannot be read, so they have no version, the first: %s",
            *(len(bad), len(urls), printable(bad[0])),
        )
    return found


def _object_at(url: str, storage: Storage) -> Listed | OSError | ValueError:
    try:
        return object_at(url, storage)
    except (OSError, ValueError) as error:
        return error
