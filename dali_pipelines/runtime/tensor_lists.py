"""Batches for ``fn.external_source(batch=True)``: lists over a slab, or read in this process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
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
_SMALL = 8 << 10
"""Maximum size of a small array, in bytes."""
_tensor_list: Any = TensorListCPU
"""DALI's stubs lack some of its arguments."""


def of_slab(layout: Layout, memory: Bytes, slot: int, is_pinned: bool = False) -> TensorLists:
    """Return the batch in a slot; its arrays are views of `memory`, except small varying ones.

    If its arrays are page-locked (`is_pinned`), the current GPU of this thread must be that of the
    pipeline.
    """
    tensor = partial(pinned, TensorCPU) if is_pinned else TensorCPU
    whole = partial(pinned, _tensor_list) if is_pinned else _tensor_list
    found: list[Any] = [None] * len(layout.specs)
    rows = layout.table(memory, slot)
    for number, columns in zip(layout.varying, layout.columns, strict=True):
        spec, of_array = layout.specs[number], rows[:, columns]
        if (gathered := _gathered(spec, of_array, memory)) is not None:
            found[number] = _tensor_list(gathered, spec.layout)
            continue
        dtype = np.dtype(spec.dtype)
        arrays = (np.ndarray(shape, dtype, memory, at) for at, *shape in of_array.tolist())
        found[number] = _listed(spec, map(tensor, arrays))
    over_batch = layout.over_batch(memory, slot)
    for number, array in zip(layout.fixed, over_batch, strict=True):
        found[number] = whole(array, layout.specs[number].layout)
    return tuple(found)


def _gathered(spec: SampleSpec, rows: NDArray[np.int64], memory: Bytes) -> NDArray[Any] | None:
    """Return small arrays of one shape as one array over the batch, copied; None for others.

    Making a view and a tensor for each array would take far longer than the copy.
    """
    shape, dtype = rows[0, 1:].tolist(), np.dtype(spec.dtype)
    nbytes = dtype.itemsize * math.prod(shape)
    if nbytes > _SMALL or not (rows[:, 1:] == rows[0, 1:]).all():
        return None
    if not nbytes:
        return np.empty((len(rows), *shape), dtype)
    from_each = np.ndarray((len(memory) - nbytes + 1, nbytes), np.uint8, memory, strides=(1, 1))
    return from_each[rows[:, 0]].view(dtype).reshape(len(rows), *shape)


def pinned(kind: Callable[..., Any], array: NDArray[Any], layout: str | None = None) -> Any:
    """Return a TensorCPU or TensorListCPU of page-locked memory, for the current GPU."""
    return kind(array, layout, True)


def _listed(spec: SampleSpec, tensors: Iterable[TensorCPU]) -> TensorListCPU:
    found: TensorListCPU = _tensor_list([*tensors], spec.layout, contiguous=False)
    return found


class ReadHere:
    """Callback that reads each batch in this process."""

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
        return _listed(spec, (TensorCPU(np.ascontiguousarray(array)) for array in arrays))
    return _tensor_list(np.stack(arrays), spec.layout)
