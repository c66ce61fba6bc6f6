"""The ways that most suites compare: the Loader, and PyTorch's DataLoader on the same pixels."""

# Worker processes import this file: what is heavy is imported in the functions.
from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from _bench_race import Batch, Expected, Run, Way

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dali_pipelines import Index, Loader

MEAN, STD = 120.0, 50.0
SEED = 7


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is made of the files."""

    kind: Literal["fits", "jpeg"]
    batch_size: int
    crop: tuple[int, int] | None = None
    """(height, width) of a window."""
    window: Literal["random", "center"] = "random"
    resize: tuple[int, int] | None = None
    flip: bool = True

    def agreement(self) -> dict[str, Any]:
        """Give how far pixels may be from Pillow's or astropy's.

        Photographs may differ by 2 grey levels of rounding, and where they are resized at the
        border, which Pillow and DALI treat differently.
        """
        if self.kind == "fits":
            return {"atol": 1e-4}
        return {"atol": 2.5 / STD, "outliers": 1e-3 if self.resize is None else 0.03}


class Files:
    """The DataLoader's dataset: one file read, then NumPy, then torch, a row at a time."""

    def __init__(self, paths: Sequence[str], case: Case, read: str) -> None:
        self.paths, self.case, self.read = list(paths), case, read

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        import numpy as np
        import torch

        from readers.draws import Draws

        draws = Draws.of(SEED, 0, row)
        image = READ[self.read](self.paths[row], self.case, draws)
        if self.case.flip:
            image = image[:: -1 if draws.vertical else 1, :: -1 if draws.horizontal else 1]
        tensor = torch.from_numpy(np.ascontiguousarray(image))  # with the flips as torch takes them
        return tensor.permute(2, 0, 1).float().sub_(MEAN).div_(STD), row


def with_astropy(path: str, case: Case, draws: Any) -> NDArray[Any]:
    """Read a frame, or by `section` a window of it."""
    import numpy as np
    from astropy.io import fits

    with fits.open(path, memmap=False) as hdus:
        hdu = next(hdu for hdu in hdus if hdu.is_image and len(hdu.shape) == 2)
        if case.crop is None:
            return hdu.data.astype(np.float32)[..., None]
        y, x = _place(case, draws, *hdu.shape)
        return hdu.section[y : y + case.crop[0], x : x + case.crop[1]].astype(np.float32)[..., None]


def with_fitsio(path: str, case: Case, draws: Any) -> NDArray[Any]:
    """Read a frame, or by a slice a window of it."""
    import fitsio
    import numpy as np

    with fitsio.FITS(path) as hdus:
        hdu = next(hdu for hdu in hdus if hdu.has_data())
        if case.crop is None:
            return hdu.read().astype(np.float32)[..., None]
        y, x = _place(case, draws, *hdu.get_dims())
        return hdu[y : y + case.crop[0], x : x + case.crop[1]].astype(np.float32)[..., None]


def with_pillow(path: str, case: Case, draws: Any) -> NDArray[Any]:
    """Read a photograph, cut and resize it."""
    import numpy as np
    from PIL import Image, ImageOps

    with Image.open(path) as opened:
        image = ImageOps.exif_transpose(opened)
        if case.crop is not None:
            y, x = _place(case, draws, image.height, image.width)
            image = image.crop((x, y, x + case.crop[1], y + case.crop[0]))
        if case.resize is not None:
            image = image.resize(case.resize[::-1], Image.Resampling.BILINEAR)
        return np.array(image.convert("RGB"))  # writable, as torch wants it


def with_torchvision(path: str, case: Case, draws: Any) -> NDArray[Any]:
    """Decode a photograph by torchvision, and cut it."""
    from torchvision.io import ImageReadMode, decode_image

    image = decode_image(path, mode=ImageReadMode.RGB, apply_exif_orientation=True)
    if case.crop is not None:
        y, x = _place(case, draws, *image.shape[1:])
        image = image[:, y : y + case.crop[0], x : x + case.crop[1]]
    return image.permute(1, 2, 0).numpy()


READ: dict[str, Callable[[str, Case, Any], NDArray[Any]]] = {
    "astropy": with_astropy,
    "fitsio": with_fitsio,
    "Pillow": with_pillow,
    "torchvision": with_torchvision,
}
MODULES = {"astropy": "astropy", "fitsio": "fitsio", "Pillow": "PIL", "torchvision": "torchvision"}


def expected_pixels(paths: Sequence[str], case: Case) -> Expected:
    """Give what astropy and Pillow make of the files."""
    files = Files(paths, case, "astropy" if case.kind == "fits" else "Pillow")
    pixels = functools.cache(lambda row: files[row][0].numpy())
    return lambda row, _: pixels(row)


def loader_way(
    name: str, index: Index, case: Case, passes: int, *, point: Any = None, **settings: Any
) -> Way:
    """Make the way of this toolkit: `settings` are the Loader's."""
    from dali_pipelines import fits_pipeline, jpeg_pipeline

    return loader_of(
        name,
        fits_pipeline if case.kind == "fits" else jpeg_pipeline,
        index,
        passes,
        point=point,
        agreement=case.agreement(),
        batch_size=case.batch_size,
        crop=case.crop,
        window=case.window,
        resize=case.resize,
        flip="hv" if case.flip else "",
        mean=MEAN,
        std=STD,
        **settings,
    )


def loader_of(
    name: str,
    factory: Callable[..., Any],
    index: Index,
    passes: int,
    *,
    agreement: dict[str, Any],
    point: Any = None,
    prefetch: int = 1,
    **settings: Any,
) -> Way:
    """Make a way of a Loader over any factory, on a GPU where there is one."""
    ahead = 2 * prefetch + 1  # the queues of the readers and of the graph, and one in the works

    @contextmanager
    def start() -> Iterator[Run]:
        from dali_pipelines import Loader

        with Loader(
            factory, index, devices=devices(1), seed=SEED, prefetch=prefetch, **settings
        ) as loader:
            yield lambda _: _batches(loader, ahead, passes * len(index))

    return Way(name=name, start=start, ahead=ahead, point=point, ours=True, **agreement)


def devices(num_shards: int) -> list[int | None]:
    """Give a GPU to each shard, or the CPU where there is none."""
    from dali_pipelines.devices import visible_gpus

    gpus = visible_gpus()
    return [shard % gpus if gpus else None for shard in range(num_shards)]


def _batches(loader: Loader, ahead: int, images: int) -> Iterator[Batch]:
    """Give `ahead` batches, then some until there are so many images more."""
    epochs = itertools.chain.from_iterable(itertools.repeat(loader))
    for count, (batch,) in enumerate(epochs):
        rows = batch["row"].tolist()
        yield rows, batch["image"]
        images -= len(rows) if count >= ahead else 0
        if images <= 0:
            return


def data_loader_way(
    name: str,
    dataset: Any,
    passes: int,
    *,
    batch_size: int,
    num_workers: int,
    **way: Any,
) -> Way:
    """Make the way of PyTorch's DataLoader; all passes are one epoch to it, without a gap."""

    @contextmanager
    def start() -> Iterator[Run]:
        from torch.utils.data import DataLoader

        loader = DataLoader(
            dataset,
            batch_size=batch_size,
            sampler=list(range(len(dataset))) * passes,
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
            multiprocessing_context="forkserver" if num_workers else None,
        )
        yield lambda _: ((rows.tolist(), images) for images, rows in loader)

    return Way(name=name, start=start, **way)


def files_way(
    paths: Sequence[str], case: Case, read: str, passes: int, *, num_workers: int, **way: Any
) -> Way:
    """Make the way of a DataLoader that reads files by one of `READ`."""
    return data_loader_way(
        way.pop("name", f"DataLoader, {read}"),
        Files(paths, case, read),
        passes,
        batch_size=case.batch_size,
        num_workers=num_workers,
        needs=(MODULES[read],),
        **case.agreement(),
        **way,
    )


def _place(case: Case, draws: Any, height: int, width: int) -> tuple[int, int]:
    """Give the first row and column of the window of a case that crops."""
    from readers.window import Window

    assert case.crop is not None
    window = Window(height=case.crop[0], width=case.crop[1])
    if case.window == "random":
        window = replace(window, y=draws.y, x=draws.x)
    return window.place(height, width)
