"""Names of classes: from folders to labels, and in the metadata of an Index's table."""

from __future__ import annotations

import json
from collections.abc import Iterable, KeysView, Mapping, Sequence, Set
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_KEY = b"dali-pipelines classes"


def labels_of(folders: Sequence[str], classes: Iterable[str] | None) -> dict[str, int]:
    """Return the label of each class: its place among the classes.

    Parameters
    ----------
    folders : sequence of str
        Class folders that were found.
    classes : iterable of str, optional
        Names of all classes, in the order of their labels; by default the folders, sorted.

    Raises
    ------
    TypeError
        If `classes` is one text, in no order (a set), or of other labels (a dict); or if it holds
        something else than names.
    ValueError
        If it names a class twice or none at all, or lacks a folder that was found.
    """
    if isinstance(classes, str | Set | Mapping) and not isinstance(classes, KeysView):
        raise TypeError(f"classes must be a sequence of names, or an Index, got {classes!r}")
    found = sorted(set(folders))
    names = found if classes is None else list(classes)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"classes must be names, got {_shortened(names)}")
    labels = {name: label for label, name in enumerate(names)}
    if not labels or len(labels) < len(names):
        raise ValueError(f"classes must be names, each once, got {_shortened(names)}")
    if unknown := [name for name in found if name not in labels]:
        raise ValueError(
            f"class folders {_shortened(unknown)} are not among the {len(names)} classes "
            f"{_shortened(names)}: rename or remove them, or make the Index of the training files "
            "anew with them"
        )
    return labels


def classes_of(table: pa.Table) -> tuple[str, ...]:
    """Return the names of the classes, in the order of their labels; () where there are none."""
    return tuple(json.loads((table.schema.metadata or {}).get(_KEY, "[]")))


def with_classes(table: pa.Table, classes: Sequence[str]) -> pa.Table:
    """Return the table with the names of the classes, if any, in its metadata."""
    if not classes:
        return table
    noted = {_KEY: json.dumps(list(classes))}
    return table.replace_schema_metadata({**(table.schema.metadata or {}), **noted})


def _shortened(names: Sequence[str]) -> str:
    listed = ", ".join(map(repr, names[:10]))
    return listed if len(names) <= 10 else f"{listed} and {len(names) - 10} more"
