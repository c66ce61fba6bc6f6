"""An image of a row that becomes an output of its own: where it is found."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace

from readers.contract import Row
from readers.fits.hdus import HduName, checked
from readers.fits.planes import Planes, check_num_planes
from readers.fits.reader import FitsReader
from readers.values import is_integer, is_number

DTYPES = ("uint8", "int8", "uint16", "int16", "int32", "int64", "float32")


@dataclass(frozen=True)
class Hdu:
    """An image of a row that becomes an output of its own, see `fits_pipeline`.

    Parameters
    ----------
    hdu : int, str or (str, int), optional
        Its HDU, as for `fits_pipeline`; of several with one EXTNAME the first. By default that of
        the row, else the first one that holds an image.
    relative : int, optional
        Its HDU, counted from that of the row (column ``hdu``): 2 is the second one after it. For
        files of several detectors, whose flags are in an HDU of each. A row is rejected if EXTNAME,
        or the distance of EXTVER, is not that in the first file beside an HDU of the same EXTNAME.
    part : str, optional
        It is in a file of its own, that of column ``path_{part}``. There, too, `relative` counts
        from column ``hdu``; without it and `hdu`, column ``hdu_{part}`` is taken.
    planes : int, sequence of int or "all", optional
        Planes of it, as for `fits_pipeline`; by default that of column ``plane`` (of a part:
        ``plane_{part}``).
    num_planes : int, optional
        With planes "all": how many planes each image must have; by default as many as in the first
        row that can be read.
    outside : number, optional
        Value of pixels outside the image, which rotation and zoom may show, and windows with the
        setting ``outside="fill"``: by default 0, but NaN where floats are filled. What
        ``ragged="pad"`` adds has it, too, by default 0.
    dtype : {"uint8", "int8", "uint16", "int16", "int32", "int64", "float32"}, optional
        Element type of the output; by default that of the first row that can be read. Images whose
        values are of another type are rejected, but all can become float32.

    Raises
    ------
    ValueError
        If a setting makes no sense, alone or with another.
    """

    hdu: HduName | None = None
    _: KW_ONLY
    relative: int | None = None
    part: str | None = None
    planes: Planes | None = None
    num_planes: int | None = None
    dtype: str | None = None
    outside: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "hdu", checked(self.hdu))
        if self.relative is not None:
            if not is_integer(self.relative):
                raise ValueError(f"relative must be an integer, got {self.relative!r}")
            if self.hdu is not None:
                raise ValueError("hdu and relative are two ways to name an HDU: leave out one")
            object.__setattr__(self, "relative", int(self.relative))
        if self.part is not None and not (isinstance(self.part, str) and self.part):
            raise ValueError(f"part must be the name of a part, got {self.part!r}")
        if self.outside is not None and not is_number(self.outside):
            raise ValueError(f"outside must be a number, got {self.outside!r}")
        if self.dtype not in (None, *DTYPES):
            raise ValueError(f"dtype must be one of {DTYPES} or None, got {self.dtype!r}")
        planes = FitsReader(planes=self.planes, num_planes=self.num_planes or 1).planes
        object.__setattr__(self, "planes", planes)
        check_num_planes(planes, self.num_planes)

    @property
    def is_counted(self) -> bool:
        """Whether the number of planes does not depend on files."""
        return self.planes != "all" or self.num_planes is not None

    @property
    def is_known(self) -> bool:
        """Whether dtype and number of planes do not depend on files."""
        return self.dtype is not None and self.is_counted

    def of(self, row: Row) -> tuple[Row, HduName | None]:
        """Return its file, and the HDU in it.

        Raises
        ------
        ValueError
            If the row has no such file, or no HDU from which to count.
        """
        file = row if self.part is None else row.part(self.part)
        if file is None:
            raise ValueError(f"the row has no file of part {self.part!r}: leave it out")
        if self.planes is not None:
            file = replace(file, plane=None)
        if self.relative is None:
            return file, file.hdu if self.hdu is None else self.hdu
        if row.hdu is None:
            raise ValueError(
                f"relative={self.relative} counts from column 'hdu', which is empty in this row"
            )
        if row.hdu + self.relative < 0:
            raise ValueError(f"there is no HDU {row.hdu}{self.relative:+d}")
        return file, row.hdu + self.relative


@dataclass(frozen=True)
class ImageKind:
    """Properties that an image has in all rows."""

    dtype: str
    """Element type of its values."""
    planes: int
    """Number of its planes."""
    outside: float | None = None
    """Value of pixels outside it, see `Hdu`."""

    @classmethod
    def of(cls, image: Hdu, dtype: str = "float32", planes: int = 1) -> ImageKind:
        """Return that of an image, given what its file says where the settings do not."""
        if image.planes != "all":
            planes = len(image.planes) if isinstance(image.planes, tuple) else 1
        elif image.num_planes is not None:
            planes = image.num_planes
        return cls(image.dtype or dtype, planes, image.outside)
