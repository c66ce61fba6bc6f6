"""Class names: the labels of class folders, and the metadata of an Index's table."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, KeysView, Mapping, Sequence, Set

from readers.index import schema
from readers.index.arrow import pa
from readers.index.scan import find_files
from readers.messages import printable

logger = logging.getLogger(__name__)

LABELS = ("label", "labels")
"""Columns of class numbers: one for each row, or one for each box."""

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
        If `classes` is a str, a set or a dict, or has values other than str.
    ValueError
        If `classes` is empty, has a name twice, or lacks the name of a folder.
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
            f"{_shortened(names)}: rename or remove these folders, or make the Index of the "
            "training files again with these classes"
        )
    return labels


def class_table(root: str, suffixes: tuple[str, ...], classes: Iterable[str] | None) -> pa.Table:
    """Return the table of files in class folders below `root`, an absolute path.

    Without `classes`, a warning names folders without files, which are not classes.

    Raises
    ------
    TypeError, ValueError
        As in `labels_of`; ValueError also if a file is beside the folders.
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
    return tuple(schema.metadata_of(table, _KEY) or ())


def category_ids_of(table: pa.Table) -> tuple[int, ...]:
    """Return the ids of the classes in a COCO file, in the order of labels; otherwise ()."""
    return tuple(schema.metadata_of(table, _IDS_KEY) or ())


def with_classes(
    table: pa.Table, classes: Sequence[str], category_ids: Sequence[int] = ()
) -> pa.Table:
    """Return the table with the names of the classes, and their ids, in its metadata."""
    if not classes:
        return table
    return schema.with_metadata(table, {_KEY: [*classes], _IDS_KEY: [*category_ids] or None})


def without_classes(table: pa.Table) -> pa.Table:
    """Return the table without names of classes."""
    return schema.with_metadata(table, {_KEY: None, _IDS_KEY: None})


def _visible_folders(root: str) -> set[str]:
    with os.scandir(root) as entries:
        return {entry.name for entry in entries if entry.is_dir() and entry.name[0] != "."}


def _shortened(names: Sequence[str]) -> str:
    listed = ", ".join(map(repr, names[:10]))
    return listed if len(names) <= 10 else f"{listed} and {len(names) - 10} more"
