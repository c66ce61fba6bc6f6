"""All targets of a sample, by name."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from readers.contract import Row, Sample, SampleSpec
from readers.errors import ReadError
from readers.index.columns import Columns
from readers.sampling.placement import Placement
from readers.targets.contract import Target

if TYPE_CHECKING:
    import pyarrow as pa


class Targets(UserDict[str, Target]):
    """Targets of each sample, in order."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the Index that the targets need, without repeats."""
        return tuple(dict.fromkeys(name for one in self.values() for name in one.columns))

    @property
    def specs(self) -> tuple[SampleSpec, ...]:
        """Specs of all targets' arrays."""
        return tuple(spec for name, target in self.items() for spec in target.specs(name))

    @property
    def outside(self) -> dict[str, float]:
        """Arrays as large as the sample, with their value outside the image."""
        return {
            spec.name: target.outside
            for name, target in self.items()
            if hasattr(target, "outside")
            for spec in target.specs(name)
        }

    def fitted(self, table: pa.Table) -> Targets:
        """Return the targets with values from the table of an Index; see `Target.fitted`."""
        return Targets({name: target.fitted(table) for name, target in self.items()})

    def read(self, columns: Columns, row: Row, placement: Placement) -> Sample:
        """Read all targets of a row, or raise ReadError."""
        arrays: dict[str, NDArray[Any]] = {}
        input_bytes = 0
        for name, target in self.items():
            try:
                files = getattr(target, "files", ())
                values: dict[str, Any] = {
                    column: (columns.place if column in files else columns.get)(column, row.number)
                    for column in target.columns
                }
                if getattr(target, "needs_row", False):
                    values["row"] = row
                sample = target.read(name, values, placement)
                for spec in target.specs(name):
                    spec.check(sample[spec.name])
            except Exception as error:
                known = isinstance(error, OSError | ValueError)
                reason = str(error) if known else f"{type(error).__name__}: {error}"
                raise ReadError(row.name, f"{name}: {reason}", row=row.number) from error
            arrays |= sample.arrays
            input_bytes += sample.input_bytes
        return Sample(arrays, input_bytes)

    def blank(self, shape: tuple[int, int]) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of a sample without a row, for an output of (height, width)."""
        arrays: dict[str, NDArray[Any]] = {}
        for name, target in self.items():
            arrays |= target.blank(name, shape).arrays
        return arrays

    def nbytes(self, shape: tuple[int, int]) -> int:
        """Return the bytes of all targets' arrays for an output of (height, width)."""
        return sum(array.nbytes for array in self.blank(shape).values())
