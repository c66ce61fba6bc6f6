"""Time this toolkit against others that do the same: equal pixels are checked before any figure.

    python scripts/bench.py --suite loader --cases jpeg_window jpeg_resize fits --rounds 5
    python scripts/bench.py --suite decode

`loader`: the Loader and PyTorch's DataLoader, same files, windows and flips. `decode`: one FITS
frame on one core, against astropy and, where it is installed, fitsio.

All go through the data in turn, and the ratio is taken round by round, so that a drift of the
machine cancels. Start-up is not counted: a round is timed from its first batch to its last.
"""

# Reader processes import this file again: what is heavy is imported in the functions.
from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _cli import option, parse

MEAN, STD = 120.0, 50.0
SEED = 7


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """Flags of bench.py."""

    suite: str = option("loader", "what to compare", choices=("decode", "loader"))
    cases: tuple[str, ...] = option(
        ("jpeg_window", "jpeg_resize", "fits"),
        "what the loader suite times",
        type=str,
        nargs="+",
        choices=("jpeg_window", "jpeg_resize", "fits", "fits_window"),
    )
    jpeg: str | None = option(None, "folder of JPEG files (default: the sample set)")
    fits: str | None = option(None, "folder of FITS files (default: the sample set)")
    num_workers: int = option(2, "worker processes of the DataLoader")
    num_read_processes: int = option(2, "reader processes of the Loader")
    num_threads: int = option(2, "DALI threads of the Loader")
    rounds: int = option(5, "timed rounds of each; the median ratio is given")
    epochs: int = option(3, "passes over the data in a round")
    output: str | None = option(None, "write the figures", metavar="FILE.json")


@dataclass(frozen=True)
class Case:
    """One comparison."""

    pipeline: str
    batch_size: int
    max_rows: int
    crop: tuple[int, int] | None = None
    resize: tuple[int, int] | None = None


CASES = {
    "jpeg_window": Case("jpeg", 16, 144, crop=(224, 224)),
    "jpeg_resize": Case("jpeg", 16, 144, resize=(224, 224)),
    "fits": Case("fits", 4, 16),
    "fits_window": Case("fits", 8, 64, crop=(512, 512)),
}


class Files:
    """The DataLoader's dataset: Pillow or astropy, then NumPy, then torch, one row at a time."""

    def __init__(self, paths: list[str], case: Case) -> None:
        self.paths, self.case = paths, case

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        import numpy as np
        import torch

        from readers.draws import Draws

        draws = Draws.of(SEED, 0, row)
        read = self._fits if self.case.pipeline == "fits" else self._jpeg
        image = read(self.paths[row], draws)
        image = image[:: -1 if draws.vertical else 1, :: -1 if draws.horizontal else 1]
        tensor = torch.from_numpy(np.array(image))  # the flips as torch takes them, and writable
        return tensor.permute(2, 0, 1).float().sub_(MEAN).div_(STD), row

    def _jpeg(self, path: str, draws: Any) -> Any:
        import numpy as np
        from PIL import Image, ImageOps

        with Image.open(path) as opened:
            image = ImageOps.exif_transpose(opened)
            if self.case.crop:
                y, x = self._window(draws).place(image.height, image.width)
                image = image.crop((x, y, x + self.case.crop[1], y + self.case.crop[0]))
            if self.case.resize:
                image = image.resize(self.case.resize[::-1], Image.Resampling.BILINEAR)
            return np.asarray(image.convert("RGB"))

    def _fits(self, path: str, draws: Any) -> Any:
        import numpy as np
        from astropy.io import fits

        with fits.open(path) as hdus:
            if self.case.crop is None:
                return hdus[1].data.astype(np.float32)[..., None]
            y, x = self._window(draws).place(*hdus[1].shape)
            height, width = self.case.crop
            return hdus[1].section[y : y + height, x : x + width].astype(np.float32)[..., None]

    def _window(self, draws: Any) -> Any:
        from readers.window import Window

        assert self.case.crop is not None  # asked for by a case that crops
        return Window(height=self.case.crop[0], width=self.case.crop[1], y=draws.y, x=draws.x)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cases; give the exit code."""
    config = parse(BenchConfig, argv, __doc__)
    if config.suite == "decode":
        from _bench_decode import decode_suite

        results = decode_suite(config.rounds)
    else:
        results = [run_case(name, config) for name in config.cases]
    if config.output is not None:
        from _report import hardware, versions

        written = {"hardware": hardware(), "versions": versions(), "results": results}
        Path(config.output).write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")
    return 0


def run_case(name: str, config: BenchConfig) -> dict[str, Any]:
    """Time one case, print its line, and give its figures in images per second."""
    import _samples

    from dali_pipelines import Index, Loader, fits_pipeline, jpeg_pipeline

    case = CASES[name]
    folder = config.fits if case.pipeline == "fits" else config.jpeg
    if folder is None:
        make = _samples.fits_samples if case.pipeline == "fits" else _samples.jpeg_samples
        folder = str(make())
    index = Index.scan(folder)
    index = index.select(range(min(len(index), case.max_rows)))
    loader = Loader(
        fits_pipeline if case.pipeline == "fits" else jpeg_pipeline,
        index,
        batch_size=case.batch_size,
        num_read_processes=config.num_read_processes,
        num_threads=config.num_threads,
        devices=[None],
        seed=SEED,
        crop=case.crop,
        window="random",
        resize=case.resize,
        flip="hv",
        mean=MEAN,
        std=STD,
    )
    peer = _data_loader(index.table["path"].to_pylist(), case, config)
    with loader:
        _check(peer, loader, case)
        ours, theirs = [], []
        for _ in range(config.rounds):
            theirs.append(_rate(peer for _ in range(config.epochs)))
            ours.append(_rate(loader for _ in range(config.epochs)))
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    print(
        f"{name}: Loader {statistics.median(ours):.1f} images/s, DataLoader "
        f"{statistics.median(theirs):.1f} images/s, ratio {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f} in {config.rounds} rounds)"
    )
    return {"case": name, "loader": ours, "data_loader": theirs, "ratios": ratios}


def _data_loader(paths: list[str], case: Case, config: BenchConfig) -> Any:
    from torch.utils.data import DataLoader

    return DataLoader(
        Files(paths, case),  # type: ignore[arg-type]
        batch_size=case.batch_size,
        shuffle=True,
        num_workers=config.num_workers,
        persistent_workers=True,
        multiprocessing_context="forkserver",
    )


def _check(peer: Any, loader: Any, case: Case) -> None:
    """Compare the pixels of the first epoch.

    Resizing may differ by 2 grey levels of rounding, and at the border, which Pillow and DALI treat
    differently; nothing else may.
    """
    import torch

    expected = {}
    for images, rows in peer:
        expected.update(zip(rows.tolist(), images, strict=True))
    limit = 2.5 / STD if case.resize else 1e-5
    for (batch,) in loader:
        for image, row in zip(batch["image"], batch["row"].tolist(), strict=True):
            difference = (image - expected[row]).abs()
            far = float((difference[torch.isfinite(difference)] > limit).float().mean())
            if far > (0.03 if case.resize else 1e-3):
                sys.exit(f"bench.py: row {row} differs in {100 * far:.2f} % of its pixels")


def _rate(epochs: Iterable[Any]) -> float:
    """Images per second from the first batch to the last, over several epochs."""
    first = last = 0.0
    images = 0
    for epoch in epochs:
        for batch in epoch:
            last = time.perf_counter()
            if not first:
                first = last
                continue
            images += len(batch[0]["row"] if isinstance(batch[0], dict) else batch[1])
    return images / (last - first)


if __name__ == "__main__":
    raise SystemExit(main())
