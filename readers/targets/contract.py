"""Contract of targets, which belong to an image and follow the geometry of its sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from readers.contract import Sample, SampleSpec
from readers.sampling.placement import Placement

if TYPE_CHECKING:
    import pyarrow as pa


@runtime_checkable
class Target(Protocol):
    """Target of each image, made with NumPy in the reader processes.

    It is pickled and sent to them, so it holds settings and no open files. It draws no random
    numbers: the `Placement` contains all random choices.

    A target that reads files has an attribute ``files``, which lists the `columns` with their
    names. For these `read` gets an unopened `readers.places.contract.Place` in place of the text,
    or None for null.

    A target that needs the row has an attribute ``needs_row``, which is True. Then `values` also
    contains the `readers.Row`, with the columns that its Reader needs, as ``row``.

    A target with a method ``frame_columns(table)`` may be one of each frame of a clip. The method
    returns the columns that have a list for each row of the table, with a value for each frame of
    the whole video; ``()`` if the target is one of each row. `read` is then called for each frame
    of the clip, with the values of this frame, and the arrays get a first axis of frames.

    A target with arrays as large as the sample has an attribute ``outside``, their value outside
    the image. With the setting `ragged` the arrays become lists, or their last two axes are padded
    with this value. Arrays of other targets must have one shape per batch.
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the Index that `read` gets: text, numbers, or lists of numbers."""
        ...

    def fitted(self, table: pa.Table) -> Self:
        """Return this target with the values that it needs from the table of an Index.

        Raises
        ------
        KeyError, TypeError, ValueError
            If the table lacks a column, or a column has values of another kind.
        """
        ...

    def specs(self, name: str) -> tuple[SampleSpec, ...]:
        """Return the specs of a sample's arrays, the outputs of a target of this name."""
        ...

    def read(self, name: str, values: Mapping[str, Any], placement: Placement) -> Sample:
        """Make the arrays of one row.

        Parameters
        ----------
        name : str
            Name of the target.
        values : mapping of str to Any
            Values of `columns`: str (empty for null), NumPy scalars, and arrays of shape (n,) or
            (n, k).
        placement : Placement
            Position of the sample in the image.

        Returns
        -------
        Sample
            One array for each of `specs`, with the same shapes for all samples of this output
            shape, and the number of bytes read.

        Raises
        ------
        OSError, ValueError
            If the row is bad. It is rejected, with this error as the reason.
        """
        ...

    def blank(self, name: str, shape: tuple[int, int]) -> Sample:
        """Return the arrays of a sample without a row, for an output of (height, width)."""
        ...
