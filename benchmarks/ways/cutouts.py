"""Cutouts of a catalogue by others: astropy's Cutout2D, sections of open files, fitsio's slices."""

# Worker processes import this file: what is heavy is imported in the functions.
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.ways.peers import MEAN, STD

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Position(NamedTuple):
    """The first row and column of a cutout in a file."""

    path: str
    y: int
    x: int


def with_cutout2d(files: dict[str, Any], at: Position, hdus: Sequence[int], size: int) -> list[Any]:
    """Read whole images, and cut by `astropy.nddata.Cutout2D`."""
    from astropy.io import fits
    from astropy.nddata import Cutout2D

    del files
    centre = (at.x + size / 2 - 0.5, at.y + size / 2 - 0.5)
    with fits.open(at.path, memmap=False) as opened:
        return [Cutout2D(opened[hdu].data, centre, size).data for hdu in hdus]


def with_section(files: dict[str, Any], at: Position, hdus: Sequence[int], size: int) -> list[Any]:
    """Read sections of files that stay open."""
    from astropy.io import fits

    if at.path not in files:
        files[at.path] = fits.open(at.path, memmap=False)
    inside = slice(at.y, at.y + size), slice(at.x, at.x + size)
    return [files[at.path][hdu].section[inside] for hdu in hdus]


def with_slices(files: dict[str, Any], at: Position, hdus: Sequence[int], size: int) -> list[Any]:
    """Read slices of files that stay open."""
    import fitsio

    if at.path not in files:
        files[at.path] = fitsio.FITS(at.path)
    inside = slice(at.y, at.y + size), slice(at.x, at.x + size)
    return [files[at.path][hdu][inside] for hdu in hdus]


PEERS: dict[str, Callable[..., list[Any]]] = {
    "astropy Cutout2D": with_cutout2d,
    "astropy section, files kept open": with_section,
    "fitsio slices, files kept open": with_slices,
}


@dataclass
class Cutouts:
    """The DataLoader's dataset: the first HDU is normalised, the others are as in the file."""

    positions: Sequence[Position]
    hdus: Sequence[int]
    size: int
    peer: str
    files: dict[str, Any] = field(default_factory=dict)
    """Those that are open, in this process."""

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        import numpy as np
        import torch

        found = PEERS[self.peer](self.files, self.positions[row], self.hdus, self.size)
        arrays = [image.astype(image.dtype.newbyteorder("=")) for image in found]
        image = (arrays[0].astype(np.float32) - MEAN) / STD
        tensors = [torch.from_numpy(one)[None] for one in (image, *arrays[1:])]
        return tensors, row

    def close(self) -> None:
        """Close the files that are open in this process."""
        while self.files:
            self.files.popitem()[1].close()

    def expected(self, row: int) -> NDArray[Any]:
        """Return the pixels of the image of a row, shape (1, size, size)."""
        (image, *_), _ = self[row]
        pixels: NDArray[Any] = image.numpy()
        return pixels
