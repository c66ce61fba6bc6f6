"""Batches of a Loader: a dict of arrays for each device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_pipelines.frameworks.contract import Array, Batch, Framework, Slots
from readers.worker.read_report import ReadReport, ReadReports


def reports_of(batch: Batch) -> ReadReports:
    """Return the reports of a batch."""
    return ReadReports(np.asarray(batch["report"]))


def bad_slots(batch: Batch) -> Iterator[tuple[int, int, ReadReport]]:
    """Yield the number, row and report of each slot that was rejected, or is damaged or blank."""
    reports = reports_of(batch)
    if slots := reports.bad_slots():
        rows = batch["row"].tolist()
        for slot in slots:
            yield slot, rows[slot], reports.of_slot(slot)


def valid_only(batch: Batch, valid: NDArray[np.bool_], framework: Framework) -> Batch:
    """Return the batch without the slots that are not valid."""
    count = int(valid.sum())
    # A slice if only the end is left out: most frameworks return a view for it.
    slots = slice(count) if valid[:count].all() else valid.nonzero()[0]
    return {name: _taken(array, slots, framework) for name, array in batch.items()}


def _taken(array: Array, slots: Slots, framework: Framework) -> Array:
    if not isinstance(array, list):
        return framework.take(array, slots)
    return array[slots] if isinstance(slots, slice) else [array[slot] for slot in slots]


def pixels_of(batch: Batch) -> int:
    """Return the number of values (pixels times channels) of the valid images, padding included."""
    images, valid = next(iter(batch.values())), np.asarray(batch["valid"])  # the first output
    if not isinstance(images, list):
        return int(valid.sum()) * math.prod(images.shape[1:])
    return sum(
        math.prod(image.shape) for image, counts in zip(images, valid, strict=True) if counts
    )


def listed(values: Iterable[Any]) -> list[Any]:
    """Return the values of a column of a batch, an array or a list, as Python objects."""
    return [one.tolist() if hasattr(one, "tolist") else one for one in values]
