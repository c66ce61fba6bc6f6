"""Lists of rectangles for each image, with or without labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from readers.contract import Sample, SampleSpec
from readers.index.list_columns import depth, innermost, is_lists, most_items
from readers.index.schema import check_column
from readers.sampling.placement import Placement
from readers.targets.box_geometry import check_boxes, cut_boxes, placed_boxes
from readers.targets.contract import Target
from readers.values import check_integer, check_number

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Boxes(Target):
    """Boxes of each image, which follow the crop, resize, flips, rotation and zoom.

    Boxes are cut at the edges of the sample, and dropped if too little remains. A rotated box
    becomes the smallest upright box with its corners, as in torchvision.

    A target named ``boxes`` has three outputs: ``boxes``, float32, shape (batch, max_boxes, 4),
    padded with 0; ``num_boxes``, int32, shape (batch,); and the labels, int64, shape (batch,
    max_boxes), padded with -1, named like their column. Boxes of each frame of a clip have an axis
    of frames after the batch.

    Parameters
    ----------
    column : str
        Column of the Index with a list of boxes for each row. A box has four numbers: x1, y1, x2,
        y2 in pixels of the displayed image, from the outer edge of the first pixel, as in COCO and
        torchvision. A list may be empty; null means no boxes. For `video_pipeline` each row may
        have a list for each frame of the whole video, each a list of boxes or null.
    labels : str, optional
        Column with a list of integers for each row or frame, one per box.
    max_boxes : int, optional
        Capacity for boxes. The default is the largest number in any row or frame of the Index. A
        row with more remaining boxes is rejected.
    min_area : float
        Least remaining area of a box, in pixels of the sample. Other boxes are dropped.
    min_visible : float
        Least remaining share of a box's area, 0 to 1. Other boxes are dropped.
    size : str, optional
        Column with (height, width) in pixels of the displayed image to which the boxes belong; null
        if unknown. A row of a video has one size, or a list with a size for each frame. The default
        for column ``boxes`` is ``boxes_size``, if the Index has it, as after `Index.from_coco`.

    Raises
    ------
    ValueError
        If a setting is out of range.

    Notes
    -----
    A row is rejected if its image has another size than `size`, if a box is not finite, beyond 1e9
    pixels, inverted (x2 < x1) or wholly outside the image, or if the numbers of labels and boxes
    differ.
    """

    column: str
    labels: str | None = None
    max_boxes: int | None = None
    min_area: float = 1.0
    min_visible: float = 0.0
    size: str | None = None

    def __post_init__(self) -> None:
        for what in ("column", "labels", "size"):
            value = getattr(self, what)
            if not isinstance(value, str) and (what == "column" or value is not None):
                raise ValueError(f"{what} must be the name of a column, got {value!r}")
        if self.max_boxes is not None:
            check_integer("max_boxes", self.max_boxes, 1)
        check_number("min_area", self.min_area, 0)
        check_number("min_visible", self.min_visible, 0, 1)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of boxes, labels and sizes."""
        return tuple(name for name in (self.column, self.labels, self.size) if name is not None)

    def fitted(self, table: pa.Table) -> Self:
        """Return these Boxes with `max_boxes` and `size` set.

        TypeError if a column has other values, ValueError if a label exceeds int64.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        size = self._size_in(table)
        of_frames = self.frame_columns(table)
        found = {}
        for name in self.columns if size is None else (*self.columns, size):
            check_column(table, name)
            found[name] = table[name]
            if name in of_frames and is_lists(table[name].type):
                found[name] = pc.list_flatten(table[name])
        boxes = found[self.column]
        is_empty = is_lists(boxes.type) and pa.types.is_null(boxes.type.value_type)
        if not is_lists(boxes.type) or not (is_empty or is_lists(boxes.type.value_type)):
            raise TypeError(
                f"column {self.column!r} must have a list of boxes, each of four numbers, for each "
                f"row or for each frame of a row, got {boxes.type}{_parse(self.column, boxes.type)}"
            )
        if self.labels is not None:
            _check_integers(self.labels, found[self.labels])
        if size is not None:
            _check_integers(size, found[size])
        return replace(self, max_boxes=self.max_boxes or max(1, most_items(boxes)), size=size)

    def frame_columns(self, table: pa.Table) -> tuple[str, ...]:
        """Return the columns with a value for each frame of a video; () for boxes of a row."""
        import pyarrow as pa

        kind = table[self.column].type if self.column in table.column_names else None
        is_empty = kind is not None and pa.types.is_null(innermost(kind))
        if kind is None or depth(kind) < 3 - is_empty:
            return ()
        size = self._size_in(table)
        is_each = size in table.column_names and depth(table[size].type) > 1
        names = self.column, self.labels, size if is_each else None
        return tuple(name for name in names if name is not None)

    def _size_in(self, table: pa.Table) -> str | None:
        """Return the column of sizes, if any."""
        default = f"{self.column}_size"
        return default if self.size is None and default in table.column_names else self.size

    def specs(self, name: str) -> tuple[SampleSpec, ...]:
        """Return the specs of the boxes, their number, and any labels."""
        boxes = SampleSpec(name=name, dtype="float32", ndim=2, unit="pixel")
        count = SampleSpec(name=f"num_{name}", dtype="int32", ndim=0)
        if self.labels is None:
            return boxes, count
        return boxes, count, SampleSpec(name=self.labels, dtype="int64", ndim=1)

    def read(self, name: str, values: Mapping[str, Any], placement: Placement) -> Sample:
        """Move the boxes of a row and cut them."""
        boxes = np.asarray(values[self.column], np.float64)
        if len(boxes) and boxes.shape[1:] != (4,):
            raise ValueError(
                f"column {self.column!r} has boxes of {boxes.shape[1]} numbers, expected four: x1, "
                "y1, x2, y2"
            )
        boxes = boxes.reshape(-1, 4)
        labels = None if self.labels is None else values[self.labels]
        if labels is not None and len(labels) != len(boxes):
            raise ValueError(
                f"column {self.labels!r} has {len(labels)} labels for {len(boxes)} boxes"
            )
        if self.size is not None:
            _check_size(self.size, values[self.size], placement.image)
        check_boxes(boxes, placement.image)
        placed = placed_boxes(boxes, placement)
        left, kept = cut_boxes(placed, placement.shape, self.min_area, self.min_visible)
        sample = self.blank(name, placement.shape)
        if len(left) > len(sample[name]):
            raise ValueError(
                f"{len(left)} boxes remain, but max_boxes is {len(sample[name])}: set a larger "
                "max_boxes, or drop small boxes with min_area or min_visible"
            )
        sample[name][: len(left)] = left
        sample[f"num_{name}"][()] = len(left)
        if self.labels is not None and labels is not None:
            sample[self.labels][: len(left)] = labels[kept]
        return sample

    def blank(self, name: str, shape: tuple[int, int]) -> Sample:
        """Return arrays without boxes."""
        del shape
        room = self.max_boxes or 1
        arrays = {
            name: np.zeros((room, 4), np.float32),
            f"num_{name}": np.zeros((), np.int32),
        }
        if self.labels is not None:
            arrays[self.labels] = np.full(room, -1, np.int64)
        return Sample(arrays)


def _check_integers(name: str, column: pa.ChunkedArray) -> None:
    """Raise TypeError unless a column has lists of integers; ValueError if one exceeds int64."""
    import pyarrow as pa
    import pyarrow.compute as pc

    inner = column.type.value_type if is_lists(column.type) else None
    if inner is None or not (pa.types.is_integer(inner) or pa.types.is_null(inner)):
        raise TypeError(
            f"column {name!r} must have a list of integers for each row, or for each frame of a "
            f"row, got {column.type}{_parse(name, column.type)}"
        )
    if pa.types.is_uint64(inner):
        largest = pc.max(pc.list_flatten(column)).as_py() or 0
        if largest >= 2**63:
            raise ValueError(f"column {name!r} has the number {largest}, the limit is 2**63 - 1")


def _parse(name: str, kind: pa.DataType) -> str:
    """Return advice to parse a column of text, such as JSON of tars; empty for other types."""
    import pyarrow as pa

    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return ""
    return (
        f": if it is JSON, parse it by index.with_column({name!r}, [json.loads(text) for text in "
        f"index[{name!r}].to_pylist()])"
    )


def _check_size(name: str, expected: NDArray[Any], image: tuple[int, int]) -> None:
    """Raise ValueError if boxes belong to an image of another size; empty means unknown."""
    if len(expected) not in (0, 2):
        raise ValueError(f"column {name!r} has {len(expected)} numbers, expected height and width")
    if len(expected) and tuple(expected) != image:
        turned = tuple(expected[::-1]) == image
        raise ValueError(
            f"the displayed image has {image[0]}x{image[1]} pixels, but by column {name!r} its "
            f"boxes are for {expected[0]}x{expected[1]} (height x width): "
            + "EXIF may have turned the image; " * turned
            + "convert the boxes and correct the column"
        )
