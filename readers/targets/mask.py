"""Masks: an image of classes or instances for each image, in a separate file or variable."""

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
    """Mask for each image, which follows the crop, resize, flips, rotation and zoom.

    Each pixel of the output has the unchanged value of the nearest mask pixel; mean, std and
    `transform` do not apply. The output has shape (batch, height, width), and for masks of each
    frame of a clip (batch, frames, height, width).

    Parameters
    ----------
    column : str, optional
        Text column of the Index with the mask file of each row. If the column's name ends in
        ``_path``, relative paths in an Index file or a catalogue refer to its folder, as for
        images. A row without a mask is rejected. For `video_pipeline` there may be a list for each
        row, with the file of each frame of the whole video; a clip is rejected if one of its frames
        has none.
    dtype : str
        NumPy name of the output's type. A mask with values outside the range of the type is
        rejected.
    hdu : int, str or (str, int), optional
        HDU of FITS files, as in `fits_pipeline`; by default the first with an image. If the row
        has an HDU (column ``hdu``), an EXTNAME means the HDU with that name and the EXTVER of the
        row's HDU, as for `Hdu`.
    outside : number
        Value of pixels outside the image, which rotation, zoom and ``outside="fill"`` may show and
        ``ragged="pad"`` adds.
    variable : str, optional
        In place of `column`, for `chunked_pipeline`: variable of the same file or store, at the
        same position.
    part : str, optional
        Part of a sample of several rows whose `variable` is read, such as ``"+6h"`` of a sequence.
        A variable without the axis of the rows, such as a land mask, needs none.

    Raises
    ------
    ValueError
        If the dtype is unknown, or `outside` is not a value of it; or if neither a column nor a
        variable is named, or both.

    Notes
    -----
    The format of a file is recognised by content. FITS: only the window is read if astropy can do
    that; BSCALE, BZERO and BLANK are applied. .npy: the rows of the window are read, shape (height,
    width). All others are read whole by Pillow: PNG, TIFF, BMP and others with one channel of 1 to
    32 bits; for palettes the indices are used, not the colours. A mask must have the size of its
    image: of the displayed image if EXIF turns it, and of the registered image in `aia_pipeline`.
    Floating-point masks need a floating-point dtype. So do JPEG, JPEG 2000 and similar formats,
    because lossy compression invents classes.

    A variable with an integer dtype gives the elements as stored, so ``_FillValue`` keeps its
    number; packed ones are rejected. With a floating-point dtype it gives values as xarray has
    them, NaN for ``_FillValue``.

    If two pixels are equally near, the one further right, or further down, is taken, as in
    PyTorch's ``nearest-exact``. Pillow and OpenCV may take the other one.
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
            raise ValueError(f"outside={self.outside!r} is not a value of {self.dtype}") from None
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
        """Whether it reads a variable of the row, or needs its HDU."""
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
        """Return the column if it has a list for each row, of a path for each frame; else ()."""
        if self.column is None or self.column not in table.column_names:
            return ()
        kind = table[self.column].type
        return self.columns if is_lists(kind) and is_text(kind.value_type) else ()

    def _any_part(self, table: pa.Table) -> str | None:
        """Return a part of samples whose variable is the same at each position, such as land."""
        if "plane" not in table.column_names:  # a file is a position
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
                f"Mask(variable={self.variable!r}) needs an Index with a column {NOTE!r}: make it "
                "by Index.from_zarr or Index.scan_arrays"
            )
        parts = part_names(table)
        if self.part not in (parts or (None,)):
            raise ValueError(
                f"each row of the Index is a sample of {len(parts)} parts: choose that of "
                f"Mask(variable={self.variable!r}), part= one of {', '.join(parts)}"
                if parts
                else f"part={self.part!r} of a Mask: the rows of the Index have no parts"
            )

    def specs(self, name: str) -> tuple[SampleSpec, ...]:
        """Return one spec, of shape (height, width)."""
        return (SampleSpec(name=name, dtype=self.dtype, ndim=2),)

    def read(self, name: str, values: Mapping[str, Any], placement: Placement) -> Sample:
        """Read the part of the mask that the sample shows."""
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
            # Pillow, astropy and filters raise many types on malformed input.
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
            raise ValueError(f"the sample lacks part {self.part!r}: drop the row")
        return read_variable(found, str(self.variable), size, box, self.dtype)

    def blank(self, name: str, shape: tuple[int, int]) -> Sample:
        """Return an array of `outside` values."""
        return Sample({name: np.full(shape, self.outside, self.dtype)})
