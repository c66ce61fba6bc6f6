"""The table of a COCO annotation file, with the boxes and labels of each image."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.index import schema
from readers.index.arrow import pa
from readers.index.classes import with_classes
from readers.index.paths import check_local
from readers.messages import printable

logger = logging.getLogger(__name__)

_LISTS = {
    "images": ("id", "file_name"),
    "annotations": ("image_id", "category_id", "bbox"),
    "categories": ("id",),
}
"""Lists of the file, and required fields of their entries."""
_LARGEST = sys.float_info.max / 2
"""Largest number in a bbox, so that x + width is finite."""


def coco_table(images: str, annotations: str) -> pa.Table:
    """Return the table of an annotation file, see `readers.index.table.Index.from_coco`."""
    if os.path.isdir(annotations):
        raise ValueError(
            f"{annotations} is a folder: pass the folder of the images first, then the JSON file"
        )
    with open(annotations, "rb") as file:
        content = _parsed(annotations, file.read())
    try:
        _check_ids("images", content["images"])
        _check_ids("categories", content["categories"])
        paths = _paths(images, content["images"])
        sizes = [_size(number, image) for number, image in enumerate(content["images"])]
        rows = {image["id"]: row for row, image in enumerate(content["images"])}
        if len(rows) < len(paths):
            raise ValueError(f"{len(paths) - len(rows)} images have the id of another image")
        categories = sorted(content["categories"], key=lambda category: category["id"])
        ids = [category["id"] for category in categories]
        if len(set(ids)) < len(ids):
            raise ValueError(f"categories have the id of another one, got {ids}")
        labels_of = {each: n for n, each in enumerate(ids)}
        of_rows, corners, labels = _boxes(content["annotations"], rows, labels_of)
    except ValueError as error:
        raise ValueError(f"{annotations}: {error}") from None
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{annotations}: {error}") from None
    _warn_of_boxes_beyond(annotations, paths, sizes, of_rows, corners)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(of_rows, minlength=len(paths)))])
    boxes = pa.FixedSizeListArray.from_arrays(pa.array(corners.ravel()), 4)
    columns = {
        "path": schema.text_column(paths),
        "image_id": pa.array([image["id"] for image in content["images"]]),
        "boxes": pa.LargeListArray.from_arrays(pa.array(offsets), boxes),
        "boxes_size": pa.array(sizes, pa.list_(pa.int64(), 2)),
        "labels": pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(labels)),
    }
    names = [str(each["id"] if each.get("name") is None else each["name"]) for each in categories]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        logger.warning("%s: several categories have the name %r", annotations, twice[0])
    return with_classes(pa.table(columns), names, ids)


def _parsed(path: str, content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a JSON file: {error}") from None
    if not isinstance(found, dict) or not all(isinstance(found.get(name), list) for name in _LISTS):
        raise ValueError(f"{path}: expected the instances of COCO, with lists {', '.join(_LISTS)}")
    for name, fields in _LISTS.items():
        for number, entry in enumerate(found[name]):
            if not isinstance(entry, dict):
                raise ValueError(f"{path}: {name}[{number}] is {entry!r}, expected an object")
            if name == "annotations" and entry.get("iscrowd"):
                continue  # left out: a crowd
            for field in fields:
                if field not in entry:
                    raise ValueError(f"{path}: {name}[{number}] lacks {field!r}")
    return found


def _check_ids(what: str, entries: Iterable[Mapping[str, Any]]) -> None:
    """Raise ValueError, with the entry, unless all ids are int64, or all ids are text."""
    kind: type | None = None
    for number, entry in enumerate(entries):
        found = entry["id"]
        is_good = isinstance(found, str) or (type(found) is int and abs(found) < 2**63)
        kind = kind or type(found)
        if not is_good or type(found) is not kind:
            raise ValueError(
                f"{what}[{number}] has id {found!r}, expected an integer, or text in all entries"
            )


def _paths(folder: str, images: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the paths of the images; FileNotFoundError if some are missing."""
    check_local(folder)
    root = os.path.abspath(folder)
    if not os.path.isdir(root):
        raise FileNotFoundError(f"the folder of the images is missing: {root}")
    paths = []
    for number, image in enumerate(images):
        name = image["file_name"]
        if not isinstance(name, str) or not name:
            raise ValueError(f"images[{number}] has file_name {name!r}, expected a path")
        check_local(name)
        paths.append(os.path.normpath(os.path.join(root, name)))
    if not paths:
        raise ValueError("there are no images")
    (path, count), *_ = Counter(paths).most_common(1)
    if count > 1:
        raise ValueError(f"{count} images have the file {path}")
    known: dict[str, set[str]] = {}  # names in a folder: one listing is faster than many checks
    missing = []
    for path in paths:
        parent, name = os.path.split(path)
        if parent not in known:
            known[parent] = set(os.listdir(parent)) if os.path.isdir(parent) else set()
        if name not in known[parent]:
            missing.append(path)
    if missing:
        raise FileNotFoundError(
            f"{len(missing)} of {len(paths)} images are missing: {missing[0]}; pass the folder to "
            "which file_name is relative"
        )
    return paths


def _size(number: int, image: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return (height, width) of an entry, or None."""
    height: Any = image.get("height")
    width: Any = image.get("width")
    if height is None and width is None:
        return None
    for value in (height, width):
        if type(value) not in (int, float) or not 1 <= value < 2**31 or value != int(value):
            raise ValueError(
                f"images[{number}] has height {height!r} and width {width!r}, expected both in "
                "pixels, or neither if they are unknown"
            )
    return int(height), int(width)


def _boxes(
    annotations: Sequence[Mapping[str, Any]],
    rows: Mapping[Any, int],
    labels: Mapping[Any, int],
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Return row, corners and label of each box, in the order of the rows."""
    for each in annotations:
        if each.get("iscrowd") not in (None, 0, 1):
            raise ValueError(
                f"annotation {each.get('id')} has iscrowd {each['iscrowd']!r}, expected 0 or 1"
            )
    single = [each for each in annotations if not each.get("iscrowd")]
    for what, known in (("image_id", rows), ("category_id", labels)):
        for each in single:
            if isinstance(each[what], list | dict) or each[what] not in known:
                raise ValueError(
                    f"annotation {each.get('id')} has {what} {each[what]!r}, which is not listed"
                )
    for each in single:
        if not _is_box(each["bbox"]):
            raise ValueError(
                f"annotation {each.get('id')} has bbox {each['bbox']!r}, expected four finite "
                "numbers: x, y, width, height, the last two not negative"
            )
    corners = np.array([each["bbox"] for each in single], np.float64).reshape(-1, 4)
    has_area = (corners[:, 2:] > 0).all(axis=1)
    crowds, empty = len(annotations) - len(single), int((~has_area).sum())
    if crowds or empty:
        logger.info("boxes left out: %d of crowds, %d without area", crowds, empty)
    corners[:, 2:] += corners[:, :2]
    numbers = np.array([rows[each["image_id"]] for each in single], np.int64)
    found = np.array([labels[each["category_id"]] for each in single], np.int64)
    kept = np.flatnonzero(has_area)
    kept = kept[np.argsort(numbers[kept], kind="stable")]
    return numbers[kept], corners[kept], found[kept]


def _is_box(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 4
        and all(type(number) in (int, float) and abs(number) <= _LARGEST for number in value)
        and min(value[2:]) >= 0
    )


def _warn_of_boxes_beyond(
    annotations: str,
    paths: Sequence[str],
    sizes: Sequence[tuple[int, int] | None],
    of_rows: NDArray[np.int64],
    corners: NDArray[np.float64],
) -> None:
    """Warn of boxes more than a pixel beyond their image: they may be corners, not sizes."""
    limits = np.array([size[::-1] if size else (np.inf, np.inf) for size in sizes])[of_rows]
    is_beyond = ((corners[:, :2] < -1) | (corners[:, 2:] > limits + 1)).any(axis=1)
    if is_beyond.any():
        logger.warning(
            "%s: %d of %d boxes reach more than a pixel beyond their image, and will be cut at its "
            "edge, the first in %s. A bbox must be x, y, width, height, not x1, y1, x2, y2",
            *(printable(annotations), is_beyond.sum(), len(corners)),
            printable(paths[of_rows[is_beyond.argmax()]]),
        )
