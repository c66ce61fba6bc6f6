"""The contract of a target: what belongs to an image, and follows the geometry of its sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from readers.contract import Sample, SampleSpec
from readers.sampling.placement import Placement

if TYPE_CHECKING:
    import pyarrow as pa


@runtime_checkable
class Target(Protocol):
    """A target of each image, made by NumPy in the reader processes.

    It is pickled and sent to them, so it holds settings and no open files. It does not draw
    anything: all chance is in the `Placement`.

    A target that reads files has an attribute ``files``: those of its `columns` that name them. In
    place of their text `read` gets a `readers.places.contract.Place`, not opened yet, or None for
    null.

    A target whose arrays are as large as the sample has an attribute ``outside``: their value where
    there is no image. With the setting `ragged` they become lists, or are padded by it in their
    last two axes. Those of other targets are of one shape in a batch.
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the Index that `read` gets: text, numbers, or lists of numbers."""
        ...

    def fitted(self, table: pa.Table) -> Self:
        """Return this target with what it takes from the table of an Index.

        Raises
        ------
        KeyError, TypeError, ValueError
            If the table lacks a column, or one is of another kind.
        """
        ...

    def specs(self, name: str) -> tuple[SampleSpec, ...]:
        """Return the arrays of each sample, of a target of that name. They become outputs."""
        ...

    def read(self, name: str, values: Mapping[str, Any], placement: Placement) -> Sample:
        """Make the arrays of one row.

        Parameters
        ----------
        name : str
            Name of the target.
        values : mapping of str to Any
            Values of `columns`: str (empty for null), NumPy's scalars, and arrays, shape (n,) or
            (n, k).
        placement : Placement
            Where the sample is in the image.

        Returns
        -------
        Sample
            One array for each of `specs`, of shapes that all samples of this output shape have;
            and the bytes that were read.

        Raises
        ------
        OSError, ValueError
            If the row is bad. It is rejected, with this reason.
        """
        ...

    def blank(self, name: str, shape: tuple[int, int]) -> Sample:
        """Return the arrays of a sample without a row, for an output of (height, width)."""
        ...
