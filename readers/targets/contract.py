"""Contract of targets of an image, which follow the geometry of its sample."""

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

    A target is pickled and sent to the reader processes, so it has settings and no open files. It
    draws no random numbers: the `Placement` contains all random choices.

    A target that reads files has an attribute ``files``, a tuple of those `columns` that name
    files. For these columns `read` gets an unopened `readers.places.contract.Place` in place of the
    text, or None for null.

    A target that needs the row has an attribute ``needs_row``, which is True. `values` then also
    has the `readers.Row` under the name ``row``.

    A target with a method ``frame_columns(table)`` may have values for each frame of a clip. The
    method returns the columns whose rows are lists with a value for each frame of the whole video;
    ``()`` if all columns have one value for each row. `read` is then called for each frame of the
    clip, with the values of this frame, and the arrays get a first axis of frames.

    A target with arrays as large as the sample has an attribute ``outside``, the value outside the
    image. With the setting `ragged` the arrays become lists, or their last two axes are padded with
    this value. Arrays of other targets must have one shape per batch.
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the Index that `read` gets: text, numbers, or lists of numbers."""
        ...

    def fitted(self, table: pa.Table) -> Self:
        """Return this target, completed by the table of an Index.

        Raises
        ------
        KeyError, TypeError, ValueError
            If the table lacks a column, or a column has values of another type.
        """
        ...

    def specs(self, name: str) -> tuple[SampleSpec, ...]:
        """Return the specs of the arrays of a target with this name."""
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
            One array for each of `specs`, and the number of bytes read. Shapes depend only on the
            shape of the output.

        Raises
        ------
        OSError, ValueError
            If the row is bad. The row is rejected with this error as the reason.
        """
        ...

    def blank(self, name: str, shape: tuple[int, int]) -> Sample:
        """Return the arrays of a sample without a row, for an output of (height, width)."""
        ...
