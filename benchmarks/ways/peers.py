"""How others read a file, to the same pixels: astropy, fitsio, torchfits, Pillow, torchvision."""

# Worker processes import this file: what is heavy is imported in the functions.
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.measure.ledger import Ledger

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from readers.sampling.draws import Draws, Pairs

MEAN, STD = 120.0, 50.0
SEED = 7
_CLOSED = Ledger()


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is made of the files."""

    kind: Literal["fits", "jpeg"]
    batch_size: int
    crop: tuple[int, int] | None = None
    """(height, width) of a window."""
    window: Literal["random", "center"] = "random"
    random_area: tuple[float, float] | None = None
    """Least and most share of the image's area of a random region, in place of a window."""
    pairs: Pairs | None = None
    """What such a region of one row is drawn by."""
    resize: tuple[int, int] | None = None
    flip: bool = True
    normalise: bool = True

    def agreement(self) -> dict[str, Any]:
        """Return how far pixels may be from Pillow's or astropy's.

        Photographs may differ by 2 grey levels of rounding, and where they are resized at the
        border, which Pillow and DALI treat differently.
        """
        if self.kind == "fits":
            return {"atol": 1e-4}
        return {"atol": 2.5 / STD, "outliers": 1e-3 if self.resize is None else 0.03}

    def place(self, draws: Draws | None, height: int, width: int) -> tuple[int, int]:
        """Return the first row and column of the window, if this crops."""
        from readers.window import Window

        assert self.crop is not None
        window = Window(height=self.crop[0], width=self.crop[1])
        if self.window == "random":
            assert draws is not None
            window = replace(window, y=draws.y, x=draws.x)
        return window.place(height, width)

    def region(self, draws: Draws | None, height: int, width: int) -> tuple[int, int, int, int]:
        """Return first column and row, and the ends, of the random region."""
        from readers.sampling.geometry import ASPECT_RATIOS
        from readers.sampling.region import RandomRegion

        assert draws is not None
        assert self.random_area is not None
        assert self.pairs is not None
        drawn = RandomRegion(
            height=1,
            width=1,
            y=draws.y,
            x=draws.x,
            area=self.random_area,
            aspect_ratio=ASPECT_RATIOS,
            attempts=self.pairs,
        )
        window = drawn.within(height, width)
        y, x = window.place(height, width)
        return x, y, x + window.width, y + window.height

    def flipped(self, image: NDArray[Any], draws: Draws) -> NDArray[Any]:
        """Return the image flipped as chance has it, without a copy, if this flips."""
        if not self.flip:
            return image
        return image[:: -1 if draws.vertical else 1, :: -1 if draws.horizontal else 1]


def with_astropy(source: Any, case: Case, draws: Draws | None) -> NDArray[Any]:
    """Read a frame, or by `section` a window of it."""
    from astropy.io import fits

    with fits.open(source, memmap=False) as hdus:
        hdu = next(hdu for hdu in hdus if hdu.is_image and len(hdu.shape) == 2)
        if case.crop is None:
            return hdu.data[..., None]
        y, x = case.place(draws, *hdu.shape)
        return hdu.section[y : y + case.crop[0], x : x + case.crop[1]][..., None]


def with_fitsio(path: str, case: Case, draws: Draws | None) -> NDArray[Any]:
    """Read a frame, or by a slice a window of it."""
    import fitsio

    with fitsio.FITS(path) as hdus:
        hdu = next(hdu for hdu in hdus if hdu.has_data())
        if case.crop is None:
            return hdu.read()[..., None]
        y, x = case.place(draws, *hdu.get_dims())
        return hdu[y : y + case.crop[0], x : x + case.crop[1]][..., None]


def with_torchfits(path: str, case: Case, draws: Draws | None) -> NDArray[Any]:
    """Read a frame, or a subset of it."""
    import torchfits

    hdu = next(
        hdu
        for hdu in range(torchfits.read_num_hdus(path))
        if len(torchfits.read_shape(path, hdu)[1]) == 2
    )
    if case.crop is None:
        return torchfits.read(path, hdu=hdu).numpy()[..., None]
    y, x = case.place(draws, *torchfits.read_shape(path, hdu)[1])
    window = torchfits.read_subset(path, hdu, x, y, x + case.crop[1], y + case.crop[0])
    return window.numpy()[..., None]


def with_pillow(source: Any, case: Case, draws: Draws | None) -> NDArray[Any]:
    """Read a photograph, cut and resize it."""
    import numpy as np
    from PIL import Image, ImageOps

    with Image.open(source) as opened:
        image = ImageOps.exif_transpose(opened)
        if case.crop is not None:
            y, x = case.place(draws, image.height, image.width)
            image = image.crop((x, y, x + case.crop[1], y + case.crop[0]))
        if case.random_area is not None:
            image = image.crop(case.region(draws, image.height, image.width))
        if case.resize is not None:
            image = image.resize(case.resize[::-1], Image.Resampling.BILINEAR)
        return np.array(image.convert("RGB"))  # writable, as torch wants it


def with_torchvision(path: str, case: Case, draws: Draws | None) -> NDArray[Any]:
    """Decode a photograph by torchvision, and cut it."""
    from torchvision.io import ImageReadMode, decode_image

    image = decode_image(path, mode=ImageReadMode.RGB, apply_exif_orientation=True)
    if case.crop is not None:
        y, x = case.place(draws, *image.shape[1:])
        image = image[:, y : y + case.crop[0], x : x + case.crop[1]]
    return image.permute(1, 2, 0).numpy()


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A library that reads files."""

    read: Callable[[Any, Case, Any], NDArray[Any]]
    """Gives pixels as they are in the file, shape (height, width, channels)."""
    needs: str
    """What is imported of it, as `Way.needs` has it."""
    opens_files: bool = False
    """Whether it takes a file object for a path, so that its reads can be told from the rest."""
    remedy: str = ""


PEERS = {
    "astropy": Peer(read=with_astropy, needs="astropy", opens_files=True),
    "fitsio": Peer(read=with_fitsio, needs="fitsio"),
    "torchfits": Peer(
        read=with_torchfits,
        needs="torchfits._C",
        remedy="each version needs one version of PyTorch: 1.2.0 needs 2.13",
    ),
    "Pillow": Peer(read=with_pillow, needs="PIL", opens_files=True),
    "torchvision": Peer(
        read=with_torchvision,
        needs="torchvision",
        remedy="install the version for this PyTorch, from the same source",
    ),
}


def decoded(
    path: str, case: Case, peer: str, draws: Draws | None = None, ledger: Ledger = _CLOSED
) -> NDArray[Any]:
    """Read a file by one of `PEERS`.

    Returns
    -------
    ndarray, shape (height, width, channels)
        float32 of FITS, uint8 of photographs; not flipped, not normalised.
    """
    import numpy as np

    by = PEERS[peer]
    with ledger.count("decode"):
        if by.opens_files:
            with ledger.opened(path) as source:
                image = by.read(source, case, draws)
        else:
            image = by.read(path, case, draws)
        return image if case.kind == "jpeg" else image.astype(np.float32, copy=False)


def finished(image: NDArray[Any], case: Case, draws: Draws, ledger: Ledger) -> Any:
    """Flip and normalise pixels by NumPy and torch: a tensor, shape (channels, height, width)."""
    import numpy as np
    import torch

    with ledger.count("graph"):
        # Contiguous, as torch takes no negative strides.
        tensor = torch.from_numpy(np.ascontiguousarray(case.flipped(image, draws)))
        tensor = tensor.permute(2, 0, 1).float()
        return tensor.sub_(MEAN).div_(STD) if case.normalise else tensor


class Files:
    """The DataLoader's dataset: one file read, then NumPy, then torch, a row at a time."""

    def __init__(
        self, paths: Sequence[str], case: Case, peer: str, ledger: Ledger = _CLOSED
    ) -> None:
        self.paths, self.case, self.peer, self.ledger = list(paths), case, peer, ledger

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        from readers.sampling.draws import Draws, Pairs

        draws, case = Draws.of(SEED, 0, row), self.case
        if case.random_area is not None:
            case = replace(case, pairs=Pairs(SEED, 0, row))
        image = decoded(self.paths[row], case, self.peer, draws, self.ledger)
        return finished(image, self.case, draws, self.ledger), row
