"""All targets of a sample, by name."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from readers.contract import ClipFrames, Row, Sample, SampleSpec
from readers.errors import ReadError
from readers.index.columns import Columns
from readers.sampling.placement import Placement
from readers.targets.contract import Target

if TYPE_CHECKING:
    import pyarrow as pa


class Targets(UserDict[str, Target]):
    """Targets of each sample, in order.

    Parameters
    ----------
    targets : mapping of str to Target
        Targets by name.
    frames : int, optional
        Frames of a sample, for clips of videos.
    frame_columns : mapping of str to tuple of str
        Columns whose rows are lists with a value for each frame, by target; set by `fitted`.
    """

    def __init__(
        self,
        targets: Mapping[str, Target] | None = None,
        frames: int | None = None,
        frame_columns: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        super().__init__(targets or {})
        self._frames = frames
        self._of_frames = dict(frame_columns or {})

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the Index that the targets need, without repeats."""
        return tuple(dict.fromkeys(name for one in self.values() for name in one.columns))

    @property
    def frame_columns(self) -> tuple[str, ...]:
        """Columns whose rows are lists with a value for each frame."""
        return tuple(dict.fromkeys(name for names in self._of_frames.values() for name in names))

    @property
    def specs(self) -> tuple[SampleSpec, ...]:
        """Specs of all targets' arrays."""
        return tuple(spec for name in self for spec in self._specs(name))

    @property
    def outside(self) -> dict[str, float]:
        """Value outside the image of each array that is as large as the sample."""
        return {
            spec.name: target.outside
            for name, target in self.items()
            if hasattr(target, "outside")
            for spec in target.specs(name)
        }

    def fitted(self, table: pa.Table) -> Targets:
        """Return the targets, completed by the table of an Index; see `Target.fitted`.

        TypeError if a target has values for each frame, but samples are images.
        """
        of_frames: dict[str, tuple[str, ...]] = {}
        for name, target in self.items():
            find = getattr(target, "frame_columns", None)
            if find is not None and (found := tuple(find(table))):
                of_frames[name] = found
            if name in of_frames and self._frames is None:
                raise TypeError(
                    f"column {found[0]!r} of target {name!r} has type {table[found[0]].type}, a "
                    "value for each frame of a video, but samples of this pipeline are images: use "
                    "video_pipeline, or a column with one value for each row"
                )
        fitted = {name: target.fitted(table) for name, target in self.items()}
        return Targets(fitted, self._frames, of_frames)

    def read(
        self, columns: Columns, row: Row, placement: Placement, frames: ClipFrames | None = None
    ) -> Sample:
        """Read all targets of a row, or raise ReadError."""
        arrays: dict[str, NDArray[Any]] = {}
        input_bytes = 0
        for name in self:
            try:
                if name in self._of_frames:
                    sample = self._read_frames(columns, name, row, placement, frames)
                else:
                    sample = self._read(columns, name, row, placement)
            except Exception as error:
                known = isinstance(error, OSError | ValueError)
                reason = str(error) if known else f"{type(error).__name__}: {error}"
                raise ReadError(row.name, f"{name}: {reason}", row=row.number) from error
            arrays |= sample.arrays
            input_bytes += sample.input_bytes
        return Sample(arrays, input_bytes)

    def _read(
        self, columns: Columns, name: str, row: Row, placement: Placement, frame: int | None = None
    ) -> Sample:
        """Read a target of a row or of a frame."""
        target = self[name]
        files = getattr(target, "files", ())
        each = self._of_frames.get(name, ())
        values: dict[str, Any] = {}
        for column in target.columns:
            get = columns.place if column in files else columns.get
            values[column] = get(column, row.number, frame if column in each else None)
        if getattr(target, "needs_row", False):
            values["row"] = row
        sample = target.read(name, values, placement)
        for spec in target.specs(name):
            spec.check(sample[spec.name])
        return sample

    def _read_frames(
        self,
        columns: Columns,
        name: str,
        row: Row,
        placement: Placement,
        frames: ClipFrames | None,
    ) -> Sample:
        """Read a target of each frame of a clip."""
        if frames is None:
            raise ValueError("the Samples of this Reader must have frames")
        for column in self._of_frames[name]:
            count = columns.num_frames(column, row.number)
            if count not in (None, frames.total):
                raise ValueError(
                    f"column {column!r} has {count} values for this row, but the video has "
                    f"{frames.total} frames: expected a value for each frame, or null"
                )
        found: dict[int, Sample] = {}
        for frame in dict.fromkeys(frames.numbers):
            try:
                found[frame] = self._read(columns, name, row, placement, frame)
            except (OSError, ValueError) as error:
                raise ValueError(f"frame {frame}: {error}") from error
        arrays = {
            spec.name: np.stack([found[frame][spec.name] for frame in frames.numbers])
            for spec in self[name].specs(name)
        }
        return Sample(arrays, sum(sample.input_bytes for sample in found.values()))

    def blank(self, shape: tuple[int, int]) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of a sample without a row, for an output of (height, width)."""
        arrays: dict[str, NDArray[Any]] = {}
        for name, target in self.items():
            for spec, array in target.blank(name, shape).arrays.items():
                if name in self._of_frames:
                    array = np.stack([array] * (self._frames or 1))
                arrays[spec] = array
        return arrays

    def nbytes(self, shape: tuple[int, int]) -> int:
        """Return the bytes of all targets' arrays for an output of (height, width)."""
        return sum(array.nbytes for array in self.blank(shape).values())

    def _specs(self, name: str) -> tuple[SampleSpec, ...]:
        specs = self[name].specs(name)
        if name not in self._of_frames:
            return specs
        shapes = (
            None if spec.shape is None else (self._frames or 1, *spec.shape) for spec in specs
        )
        return tuple(
            replace(spec, ndim=(spec.ndim or 0) + 1, shape=shape)
            for spec, shape in zip(specs, shapes, strict=True)
        )
