"""Class names: the labels of class folders, and the metadata of an Index's table."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, KeysView, Mapping, Sequence, Set

from readers.index.arrow import pa
from readers.index.scan import find_files
from readers.messages import printable

logger = logging.getLogger(__name__)

LABELS = ("label", "labels")
"""Columns of class numbers: a number for each row, or for each box."""

_PARTS = {"train", "training", "val", "valid", "validation", "test", "testing", "dev"}
"""Names of folders that are probably parts of a data set, not classes."""
_KEY = b"dali-pipelines classes"
_IDS_KEY = b"dali-pipelines category ids"


def labels_of(folders: Sequence[str], classes: Iterable[str] | None) -> dict[str, int]:
    """Return the label of each class: its number among the classes.

    Parameters
    ----------
    folders : sequence of str
        Existing class folders.
    classes : iterable of str, optional
        Names of all classes, in the order of their labels; by default the folders, sorted.

    Raises
    ------
    TypeError
        If `classes` is a str, a set or a dict, or contains something other than names.
    ValueError
        If it names a class twice or no class, or lacks an existing folder.
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
            "again with them"
        )
    return labels


def class_table(root: str, suffixes: tuple[str, ...], classes: Iterable[str] | None) -> pa.Table:
    """Return the table of files in class folders below `root`, an absolute path.

    Raises ValueError if a file is beside the folders, and the errors of `labels_of`. Without
    `classes`, a warning names folders without files, which are not classes.
    """
    paths = list(find_files(root, suffixes))
    if loose := [path for path in paths if os.path.dirname(path) == root]:
        raise ValueError(
            f"{root}: expected one subfolder for each class, but {loose[0]} is beside them"
        )
    names = [os.path.relpath(path, root).split(os.sep)[0] for path in paths]
    labels = labels_of(names, classes)
    if classes is None and (empty := _visible_folders(root) - labels.keys()):
        logger.warning(
            "%s: these subfolders have no file to read, so they are not classes: %s; to give them "
            "labels, pass all classes as classes=",
            *(printable(root), _shortened(sorted(empty))),
        )
    if classes is None and len(labels) > 1 and {name.lower() for name in labels} <= _PARTS:
        logger.warning(
            "%s: the classes are %s, which look like parts of a data set: pass one folder, such as "
            "%s, or pass the classes as classes=",
            *(printable(root), " and ".join(labels), printable(os.path.join(root, min(labels)))),
        )
    table = pa.table(
        {
            "path": pa.array(paths, pa.large_string()),
            "label": pa.array([labels[name] for name in names], pa.int64()),
            "class_name": names,
        }
    )
    return with_classes(table, list(labels))


def classes_of(table: pa.Table) -> tuple[str, ...]:
    """Return the names of the classes, in the order of their labels; () if there are none."""
    return tuple(json.loads((table.schema.metadata or {}).get(_KEY, "[]")))


def category_ids_of(table: pa.Table) -> tuple[int, ...]:
    """Return the ids of the classes in a COCO file, in the order of labels; otherwise ()."""
    return tuple(json.loads((table.schema.metadata or {}).get(_IDS_KEY, "[]")))


def with_classes(
    table: pa.Table, classes: Sequence[str], category_ids: Sequence[int] = ()
) -> pa.Table:
    """Return the table with the names of the classes, and their ids, in its metadata."""
    if not classes:
        return table
    added = {_KEY: json.dumps(list(classes))}
    if category_ids:
        added[_IDS_KEY] = json.dumps(list(category_ids))
    return table.replace_schema_metadata({**(table.schema.metadata or {}), **added})


def without_classes(table: pa.Table) -> pa.Table:
    """Return the table without names of classes."""
    kept = {
        key: value
        for key, value in (table.schema.metadata or {}).items()
        if key not in (_KEY, _IDS_KEY)
    }
    return table.replace_schema_metadata(kept or None)


def _visible_folders(root: str) -> set[str]:
    with os.scandir(root) as entries:
        return {entry.name for entry in entries if entry.is_dir() and entry.name[0] != "."}


def _shortened(names: Sequence[str]) -> str:
    listed = ", ".join(map(repr, names[:10]))
    return listed if len(names) <= 10 else f"{listed} and {len(names) - 10} more"
