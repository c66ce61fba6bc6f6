"""How others read a file, to the same pixels: astropy, Pillow, torchvision and others."""

# Worker processes import this file: what is heavy is imported in the functions.
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.measure.ledger import Ledger

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from readers.sampling.draws import Draws

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
    resize: tuple[int, int] | None = None
    resize_shorter: int | None = None
    """Pixels of the shorter side, to which an image is resized before the window is cut."""
    flip: Literal["", "h", "hv"] = "hv"
    """Axes that are flipped by chance."""
    normalise: bool = True
    dtype: Literal["float32", "uint8"] = "float32"
    """Type that is delivered; uint8 is not normalised, which is left to the GPU."""

    def agreement(self) -> dict[str, Any]:
        """Return how far pixels may be from Pillow's or astropy's.

        Photographs may differ by 2 grey levels of rounding, and where they are resized at the
        border, which Pillow and DALI treat differently.
        """
        if self.kind == "fits":
            return {"atol": 1e-4}
        found = {"atol": 2.5 / STD, "outliers": 1e-3 if self.resize is None else 0.03}
        return found | ({"comparable": normalised} if self.dtype == "uint8" else {})

    def place(self, draws: Draws | None, height: int, width: int) -> tuple[int, int]:
        """Return the first row and column of the window, if this crops."""
        from readers.window import Window

        assert self.crop is not None
        if self.resize_shorter is not None:  # as torchvision's CenterCrop
            return round((height - self.crop[0]) / 2), round((width - self.crop[1]) / 2)
        window = Window(height=self.crop[0], width=self.crop[1])
        if self.window == "random":
            assert draws is not None
            window = replace(window, y=draws.y, x=draws.x)
        return window.place(height, width)

    def region(self, draws: Draws | None, height: int, width: int) -> tuple[int, int, int, int]:
        """Return first column and row, and the ends, of the random region."""
        from readers.sampling.draws import RandomPairs
        from readers.sampling.geometry import ASPECT_RATIOS
        from readers.sampling.region import RandomRegion

        assert draws is not None
        assert self.random_area is not None
        drawn = RandomRegion(
            height=1,
            width=1,
            y=draws.y,
            x=draws.x,
            area=self.random_area,
            aspect_ratio=ASPECT_RATIOS,
            attempts=RandomPairs(*draws.key),
        )
        window = drawn.within(height, width)
        y, x = window.place(height, width)
        return x, y, x + window.width, y + window.height

    def flipped(self, image: NDArray[Any], draws: Draws) -> NDArray[Any]:
        """Return the image flipped as chance has it, without a copy, if this flips."""
        down, across = self.flips(draws)
        return image[:: -1 if down else 1, :: -1 if across else 1]

    def flips(self, draws: Draws) -> tuple[bool, bool]:
        """Return whether rows and columns of an image are flipped."""
        return draws.vertical and "v" in self.flip, draws.horizontal and "h" in self.flip


def normalised(pixels: NDArray[Any]) -> NDArray[Any]:
    """Normalise images of uint8."""
    return (pixels.astype("float32") - MEAN) / STD


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

    bilinear = Image.Resampling.BILINEAR
    with Image.open(source) as opened:
        image = ImageOps.exif_transpose(opened)
        if case.resize_shorter is not None:
            shorter, size = case.resize_shorter, image.size
            width, height = (shorter * side // min(size) for side in size)
            image = image.resize((width, height), bilinear)
        if case.crop is not None:
            y, x = case.place(draws, image.height, image.width)
            image = image.crop((x, y, x + case.crop[1], y + case.crop[0]))
        if case.random_area is not None:
            image = image.crop(case.region(draws, image.height, image.width))
        if case.resize is not None:
            image = image.resize(case.resize[::-1], bilinear)
        return np.array(image.convert("RGB"))  # writable, as torch wants it


def with_torchvision(source: str | bytes, case: Case, draws: Draws | None) -> NDArray[Any]:
    """Decode a photograph by torchvision, and cut and resize it by torchvision."""
    import torch
    from torchvision.io import ImageReadMode, decode_image

    encoded: Any = source
    if isinstance(source, bytes):
        encoded = torch.frombuffer(bytearray(source), dtype=torch.uint8)
    image = decode_image(encoded, mode=ImageReadMode.RGB, apply_exif_orientation=True)
    return _by_torchvision(image, case, draws)


def with_torchcodec(source: str | bytes, case: Case, draws: Draws | None) -> NDArray[Any]:
    """Decode a photograph by torchcodec, and cut and resize it by torchvision."""
    from torchcodec.decoders import decode_image

    return _by_torchvision(decode_image(source, mode="RGB"), case, draws)


def _by_torchvision(image: torch.Tensor, case: Case, draws: Draws | None) -> NDArray[Any]:
    """Cut and resize an image of shape (channels, height, width)."""
    import torch
    from torchvision.transforms.v2 import functional

    # As DataLoader's workers have it: threads of several workers would wait for each other, busily.
    torch.set_num_threads(1)
    if case.resize_shorter is not None:
        image = functional.resize(image, [case.resize_shorter], antialias=True)
    if case.crop is not None:
        y, x = case.place(draws, *image.shape[1:])
        image = image[:, y : y + case.crop[0], x : x + case.crop[1]]
    if case.random_area is not None:
        left, top, right, bottom = case.region(draws, *image.shape[1:])
        image = image[:, top:bottom, left:right]
    if case.resize is not None:
        image = functional.resize(image, list(case.resize), antialias=True)
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
        needs="torchvision.io:decode_image",
        remedy="install the version for this PyTorch, from the same source",
    ),
    "torchcodec": Peer(
        read=with_torchcodec,
        needs="torchcodec.decoders:decode_image",
        remedy="install the version for this PyTorch, from the same source",
    ),
}


def decoded(
    source: str | bytes,
    case: Case,
    peer: str,
    draws: Draws | None = None,
    ledger: Ledger = _CLOSED,
) -> NDArray[Any]:
    """Read a file, or its bytes, by one of `PEERS`.

    Returns
    -------
    ndarray, shape (height, width, channels)
        float32 of FITS, uint8 of photographs; not flipped, not normalised.
    """
    import numpy as np

    by = PEERS[peer]
    with ledger.count("decode"):
        if not by.opens_files:
            image = by.read(source, case, draws)
        elif isinstance(source, bytes):
            image = by.read(BytesIO(source), case, draws)
        else:
            with ledger.opened(source) as opened:
                image = by.read(opened, case, draws)
        return image if case.kind == "jpeg" else image.astype(np.float32, copy=False)


def finished(image: NDArray[Any], case: Case, draws: Draws, ledger: Ledger) -> Any:
    """Flip and normalise pixels by torch: a tensor, shape (channels, height, width)."""
    import torch

    with ledger.count("graph"):
        tensor = torch.from_numpy(image).permute(2, 0, 1)
        if axes := [axis for axis, flips in enumerate(case.flips(draws), 1) if flips]:
            tensor = tensor.flip(axes)
        if case.dtype == "uint8":
            return tensor
        tensor = tensor.float()
        return tensor.sub_(MEAN).div_(STD) if case.normalise else tensor


class Files:
    """The DataLoader's dataset: one file read, then torch, a row at a time."""

    def __init__(
        self, paths: Sequence[str], case: Case, peer: str, ledger: Ledger = _CLOSED
    ) -> None:
        self.paths, self.case, self.peer, self.ledger = list(paths), case, peer, ledger

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        return sample_of(row, self.paths[row], self.case, self.peer, self.ledger), row


def sample_of(row: int, source: Any, case: Case, peer: str, ledger: Ledger = _CLOSED) -> Any:
    """Read one row by one of `PEERS`, and finish it: a tensor as of `finished`."""
    from readers.sampling.draws import Draws

    draws = Draws.of(SEED, 0, row)
    image = decoded(source, case, peer, draws, ledger)
    return finished(image, case, draws, ledger)
