"""Batches for ``fn.external_source(batch=True)``: lists over a slab, or read in this process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvidia.dali.tensors import TensorCPU, TensorListCPU

from readers.contract import SampleSpec
from readers.source import Source
from readers.worker.read_loop import Info
from readers.worker.slab import Bytes, Layout

TensorLists = tuple[TensorListCPU, ...]
"""The arrays of a batch, in the order of the specs."""
_tensor_list: Any = TensorListCPU
"""DALI's stubs lack some of its arguments."""


def of_slab(layout: Layout, memory: Bytes, slot: int) -> TensorLists:
    """Return the batch in a slot, all of it views of this array over the slab."""
    found: list[Any] = [None] * len(layout.specs)
    rows = layout.table(memory, slot)
    for number, columns in zip(layout.varying, layout.columns, strict=True):
        found[number] = _of_table(layout.specs[number], rows[:, columns], memory)
    over_batch = layout.over_batch(memory, slot)
    for number, array in zip(layout.fixed, over_batch, strict=True):
        found[number] = _tensor_list(array, layout.specs[number].layout)
    return tuple(found)


def _of_table(spec: SampleSpec, rows: NDArray[np.int64], memory: Bytes) -> TensorListCPU:
    dtype, shape = np.dtype(spec.dtype), rows[0, 1:]
    if not shape.all() and (rows[:, 1:] == shape).all():
        # All arrays are empty and of one shape: one array suffices to give the shapes.
        empty = np.ndarray((len(rows), *shape.tolist()), dtype, memory)
        return _tensor_list(empty, spec.layout)
    return _listed(spec, (np.ndarray(shape, dtype, memory, at) for at, *shape in rows.tolist()))


def _listed(spec: SampleSpec, arrays: Iterable[NDArray[Any]]) -> TensorListCPU:
    tensors = [TensorCPU(array) for array in arrays]
    return _tensor_list(tensors, spec.layout, contiguous=False)


class ReadHere:
    """Reads each batch in this process, when it is asked for."""

    def __init__(self, source: Source) -> None:
        self._source, self._batches = source, count()

    def __call__(self) -> TensorLists:
        """Return the next batch."""
        batch_size = self._source.schedule.batch_size
        first = next(self._batches) * batch_size
        samples = [self._source(Info(first + number)) for number in range(batch_size)]
        arrays = zip(self._source.specs, zip(*samples, strict=True), strict=True)
        return tuple(_stacked(spec, of_spec) for spec, of_spec in arrays)


def _stacked(spec: SampleSpec, arrays: Sequence[NDArray[Any]]) -> TensorListCPU:
    if spec.shape is None:
        return _listed(spec, map(np.ascontiguousarray, arrays))
    return _tensor_list(np.stack(arrays), spec.layout)
