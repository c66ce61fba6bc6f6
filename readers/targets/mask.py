"""Masks: images of classes or instances that belong to images, in separate files or variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from readers.chunks.array import NOTE, unpacked
from readers.contract import Row, Sample, SampleSpec
from readers.errors import reason_of
from readers.index.list_columns import is_lists
from readers.index.schema import (
    check_column,
    holds_text,
    is_text,
    part_names,
    warn_of_shared_files,
)
from readers.messages import printable
from readers.places.contract import Place
from readers.sampling.placement import Placement
from readers.targets.contract import Target
from readers.targets.mask_files import of_type, read_mask
from readers.targets.nearest import NearestPixels
from readers.values import is_number
from readers.window import Box

if TYPE_CHECKING:
    import pyarrow as pa

    from readers.fits.headers import HduName

_DTYPES = ("uint8", "int8", "uint16", "int16", "int32", "int64", "float32", "float64")


@dataclass(frozen=True)
class Mask(Target):
    """Mask of each image, which follows the crop, resize, flips, rotation and zoom.

    Each pixel of the output has the value of the nearest mask pixel; mean, std and `transform` do
    not apply. The output has shape (batch, height, width), or (batch, frames, height, width) for
    masks of each frame of a clip.

    Parameters
    ----------
    column : str, optional
        Text column of the Index with the mask file of each row. If the name of the column ends in
        ``_path``, relative paths in an Index file or a catalogue are relative to its folder, as for
        images. A row without a mask is rejected. For `video_pipeline` each row may have a list with
        the file of each frame of the whole video. A clip with a frame without a file is rejected.
    dtype : str
        NumPy name of the output's type. A mask with values outside the range of the type is
        rejected.
    hdu : int, str or (str, int), optional
        HDU of FITS files, as in `fits_pipeline`; by default the first HDU with an image. If the row
        has an HDU (column ``hdu``), an EXTNAME means the HDU with this name and the EXTVER of the
        row's HDU, as for `Hdu`.
    outside : number
        Value of pixels outside the image. Such pixels appear with rotation, zoom and
        ``outside="fill"``, and as the padding of ``ragged="pad"``.
    variable : str, optional
        In place of `column`, for `chunked_pipeline`: variable of the same file or store, at the
        same position.
    part : str, optional
        Part of a sample whose `variable` is read, such as ``"+6h"`` of a sequence. A variable
        without the axis of the rows, such as a land mask, needs no part.

    Raises
    ------
    ValueError
        If the dtype is unknown, if `outside` is not a value of the dtype, or unless exactly one of
        `column` and `variable` is set.

    Notes
    -----
    The format of a file is recognised by content. Of FITS only the window is read if astropy can do
    this; BSCALE, BZERO and BLANK are applied. Of .npy, shape (height, width), the rows of the
    window are read. All other files are read whole by Pillow: PNG, TIFF, BMP and others with one
    channel of 1 to 32 bits. Of palettes the indices are used, not the colours. A mask must have the
    size of its image: of the displayed image if EXIF turns it, and of the registered image in
    `aia_pipeline`. Floating-point masks need a floating-point dtype. JPEG, JPEG 2000 and similar
    formats also need one, because lossy compression invents classes.

    With an integer dtype a variable has its stored elements, and ``_FillValue`` is not replaced;
    packed variables are rejected. With a floating-point dtype a variable has the values of xarray,
    with NaN for ``_FillValue``.

    Of two pixels at the same distance the one further right, or further down, is used, as in
    PyTorch's ``nearest-exact``. Pillow and OpenCV may use the other one.
    """

    column: str | None = None
    dtype: str = "uint8"
    hdu: HduName | None = None
    outside: float = 0
    variable: str | None = None
    part: str | None = None

    def __post_init__(self) -> None:
        for name in ("column", "variable", "part"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise ValueError(f"{name} must be a name, got {value!r}")
        if (self.column is None) == (self.variable is None):
            raise ValueError(
                "set column to the name of a column of paths, as Mask('mask_path'), or variable "
                "to the name of a variable of arrays, as Mask(variable='labels'), got "
                f"column={self.column!r} and variable={self.variable!r}"
            )
        for name in ("hdu",) if self.column is None else ("part",):
            if getattr(self, name) is not None:
                other = "column" if name == "hdu" else "variable"
                raise ValueError(f"{name}={getattr(self, name)!r} of a Mask needs its {other}")
        if self.dtype not in _DTYPES:
            raise ValueError(f"dtype of a Mask must be one of {_DTYPES}, got {self.dtype!r}")
        if not is_number(self.outside):
            raise ValueError(f"outside must be a number, got {self.outside!r}")
        try:
            of_type(np.array(self.outside), self.dtype)
        except ValueError:
            raise ValueError(f"outside={self.outside!r} does not fit dtype {self.dtype}") from None
        if self.hdu is not None:
            from readers.fits.headers import checked

            object.__setattr__(self, "hdu", checked(self.hdu))

    @property
    def columns(self) -> tuple[str, ...]:
        """Column of paths, if any."""
        return () if self.column is None else (self.column,)

    @property
    def files(self) -> tuple[str, ...]:
        """Column of paths, if any."""
        return self.columns

    @property
    def needs_row(self) -> bool:
        """Whether the target reads a variable of the row, or needs the HDU of the row."""
        return self.variable is not None or isinstance(self.hdu, str)

    def fitted(self, table: pa.Table) -> Self:
        """Return this Mask; TypeError if the column is not text, ValueError without the part."""
        if self.column is None:
            if self.part is None and (part := self._any_part(table)):
                return replace(self, part=part)
            self._check_variable(table)
            return self
        check_column(table, self.column)
        if not holds_text(table[self.column]) and not self.frame_columns(table):
            raise TypeError(
                f"column {self.column!r} must hold paths of masks, got {table[self.column].type}: "
                "convert it to text, e.g. with column.cast(pyarrow.string())"
            )
        is_each = bool(self.frame_columns(table))
        if not is_each and (self.hdu is None or isinstance(self.hdu, int)):
            taken = "the first image" if self.hdu is None else f"HDU {self.hdu}"
            warn_of_shared_files(table, self.column, taken, "hdu= of the Mask")
        return self

    def frame_columns(self, table: pa.Table) -> tuple[str, ...]:
        """Return the column if its rows are lists with a path for each frame; else ()."""
        if self.column is None or self.column not in table.column_names:
            return ()
        kind = table[self.column].type
        return self.columns if is_lists(kind) and is_text(kind.value_type) else ()

    def _any_part(self, table: pa.Table) -> str | None:
        """Return a part whose variable is the same for all rows, such as a land mask."""
        if "plane" not in table.column_names:  # then each file has one position
            return None
        for part in part_names(table):
            column = f"{NOTE}_{part}"
            if column not in table.column_names:
                continue
            notes = table[column].drop_null()
            noted = unpacked(notes[0].as_py()) if len(notes) else {}
            if (found := noted.get(str(self.variable))) is not None:
                return part if found.num_planes is None else None
        return None

    def _check_variable(self, table: pa.Table) -> None:
        if NOTE not in table.column_names:
            raise ValueError(
                f"Mask(variable={self.variable!r}) needs an Index with a column {NOTE!r}: make the "
                "Index with Index.from_zarr or Index.scan_arrays"
            )
        parts = part_names(table)
        if self.part not in (parts or (None,)):
            raise ValueError(
                f"each row of the Index has several parts: set part of Mask(variable="
                f"{self.variable!r}) to one of {', '.join(parts)}, got {self.part!r}"
                if parts
                else f"rows of the Index have no parts: leave out part={self.part!r} of the Mask"
            )

    def specs(self, name: str) -> tuple[SampleSpec, ...]:
        """Return one spec, of shape (height, width)."""
        return (SampleSpec(name=name, dtype=self.dtype, ndim=2),)

    def read(self, name: str, values: Mapping[str, Any], placement: Placement) -> Sample:
        """Read the part of the mask for the sample."""
        place: Place | None = None if self.column is None else values[self.column]
        if place is None and self.variable is None:
            raise ValueError(
                f"column {self.column!r} is null for this row, expected a path: drop the row"
            )
        nearest = NearestPixels.of(placement)
        source = str(self.variable) if place is None else place.name
        try:
            if place is None:
                part, nbytes = self._read_variable(values["row"], placement.image, nearest.box)
            else:
                of_classes = not self.dtype.startswith("float")
                with self._hdu_of(values.get("row"), place) as hdu:
                    part, nbytes = read_mask(
                        place, hdu, placement.image, nearest.box, of_classes=of_classes
                    )
            part = of_type(part, self.dtype)
        except Exception as error:
            # Pillow, astropy and filters raise many types for malformed input.
            reason = reason_of(error, source) or type(error).__name__
            raise ValueError(f"{printable(source)}: {reason}") from error
        return Sample({name: nearest.take(part, self.outside)}, nbytes)

    @contextmanager
    def _hdu_of(self, row: Row | None, place: Place) -> Iterator[HduName | None]:
        """Yield the HDU to read; an EXTNAME gets the EXTVER of the row's HDU."""
        if row is None or row.hdu is None or not isinstance(self.hdu, str):
            yield self.hdu
            return
        from readers.fits.file import hdu_names
        from readers.fits.multi_hdu import hdu_beside, saying_why

        names = hdu_names(row.place, row.hdu)
        hdu = hdu_beside("mask", self.hdu, row.hdu, names, is_own=place.name == row.name)
        with saying_why(self.hdu, row, hdu):
            yield hdu

    def _read_variable(self, row: Row, size: tuple[int, int], box: Box) -> tuple[NDArray[Any], int]:
        from readers.chunks.reader import read_variable

        found = row if self.part is None else row.part(self.part)
        if found is None:
            raise ValueError(f"part {self.part!r} of the row is missing: drop the row")
        return read_variable(found, str(self.variable), size, box, self.dtype)

    def blank(self, name: str, shape: tuple[int, int]) -> Sample:
        """Return an array of `outside` values."""
        return Sample({name: np.full(shape, self.outside, self.dtype)})
