"""The Source as reader processes run it: samples are read ahead, small arrays are sent as one.

Two processes take some 20 µs of Python for each array of each sample that DALI's parallel
``external_source`` sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from readers.contract import SampleSpec
from readers.places.remote import TRAFFIC
from readers.worker.ahead import ReadAhead


class Source(Protocol):
    """The part of `readers.source.Source` that is used here."""

    read_threads: int

    @property
    def specs(self) -> tuple[SampleSpec, ...]:
        """Specs of the arrays that a call returns."""
        ...

    def __call__(self, info: Any) -> tuple[NDArray[Any], ...]:
        """Read the sample of DALI's SampleInfo."""
        ...


RECORD = SampleSpec(name="record", dtype="uint8", ndim=1)
"""The array that holds the bytes of those whose shape is known, one after the other."""


def split_specs(
    specs: Sequence[SampleSpec],
) -> tuple[tuple[SampleSpec, ...], tuple[SampleSpec, ...]]:
    """Return the specs of the arrays that are sent as they are, and of those in the record."""
    packed = tuple(spec for spec in specs if spec.shape is not None)
    return tuple(spec for spec in specs if spec.shape is None), packed


def record_places(packed: Sequence[SampleSpec]) -> Iterator[tuple[SampleSpec, int, int]]:
    """Yield the first byte and the end of each array in the record."""
    start = 0
    for spec in packed:
        stop = start + spec.nbytes
        yield spec, start, stop
        start = stop


@dataclass
class PackedSource:
    """The callable for ``fn.external_source``: arrays of `split_specs`, then the record."""

    source: Source

    @property
    def specs(self) -> tuple[SampleSpec, ...]:
        """Specs of the arrays that a call returns."""
        return (*split_specs(self.source.specs)[0], RECORD)

    def __call__(self, info: Any) -> tuple[NDArray[Any], ...]:
        """Read the sample of DALI's SampleInfo."""
        if self.source.read_threads > 1:
            return self._ahead.read(self._sample, info, len(self.specs))
        return self._sample(info)

    @cached_property
    def _ahead(self) -> ReadAhead:
        return ReadAhead(self.source.read_threads, lambda: TRAFFIC.num_begun)

    @cached_property
    def _is_packed(self) -> tuple[bool, ...]:
        return tuple(spec.shape is not None for spec in self.source.specs)

    def _sample(self, info: Any) -> tuple[NDArray[Any], ...]:
        arrays = tuple(zip(self.source(info), self._is_packed, strict=True))
        record = b"".join([array.tobytes() for array, is_packed in arrays if is_packed])
        sent = [array for array, is_packed in arrays if not is_packed]
        return (*sent, np.frombuffer(record, np.uint8))
