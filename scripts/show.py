"""Draw a contact sheet of what a network will see: images as the pipeline delivers them.

    python scripts/show.py archive/ -o sheet.png --preset iti

FITS images have their first row at the bottom, and SunPy's colour tables where the header names a
channel of AIA. Colours run from the 1st to the 99.9th percentile; the range under an image is
that of all its pixels. Pixels without a value are grey. A file that cannot be read has its reason
in place of the image. With --preset the values are stretched as that recipe does it.

The exit status is 0; 1 if no image could be shown, 2 for wrong usage, 130 if interrupted.
"""

# Reader processes import this file again: what is heavy is imported in the functions.
from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

from _cli import RefusingParser, at_least
from _files import check_output, index_of
from _refusal import Refusal, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    import torch
    from _sheet import Picture

    from dali_pipelines import Loader, Preset, ReaderPipeline
    from readers import Index
    from readers.facts import Fact

PIPELINES = ("fits", "jpeg")
KEYS = ("TELESCOP", "WAVELNTH", "T_OBS", "DATE-OBS")


def main(argv: Sequence[str] | None = None) -> int:
    """Run; give 0, 1 if nothing could be shown, 2 for wrong usage, 130 if interrupted."""
    logging.basicConfig(format="%(message)s", level=logging.ERROR)
    try:
        return _show(_options(argv))
    except Refusal as refusal:
        print(f"show.py: {refusal}", file=sys.stderr)
        return refusal.status
    except KeyboardInterrupt:
        print("show.py: interrupted", file=sys.stderr)
        return 130


def _show(options: argparse.Namespace) -> int:
    from tqdm import tqdm

    from readers.index import SUFFIXES

    check_output(options.output)
    _check_installed()
    from _sheet import save_sheet

    preset = _preset(options.preset)
    found = index_of(options.files, SUFFIXES[options.pipeline])
    index = _spread(found, options.count)
    pictures: list[Picture] = []
    try:
        with closing(_pictures(index, options.pipeline, preset, options.size)) as made:
            bar = tqdm(made, total=len(index), unit=" images", disable=not sys.stderr.isatty())
            pictures.extend(bar)
        heading = f"{len(index)} of {len(found)} images by the {options.pipeline} pipeline"
        if preset is not None:
            heading += f", stretch of preset {preset.name}, not calibrated"
        save_sheet(
            options.output, pictures, heading=heading, columns=options.columns, size=options.size
        )
    except (OSError, RuntimeError, MemoryError) as error:
        raise Refusal(f"stopped after {len(pictures)} images: {error}", 1) from error
    shown = sum(picture.pixels is not None for picture in pictures)
    print(f"{options.output}: {shown} images, {len(pictures) - shown} rejected", file=sys.stderr)
    return 0 if shown else 1


# ---- The command line --------------------------------------------------------------------------


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = RefusingParser(
        prog="show.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="file, folder, glob in quotes, or Index file")
    add("-o", "--output", required=True, metavar="SHEET.png", help="the file to write")
    add("--pipeline", choices=PIPELINES, default="fits", help="what the files are (default: fits)")
    add("--preset", metavar="NAME", help="stretch as this preset, or preset file, says")
    add(
        "--count", type=at_least(1), default=24, metavar="N", help="most images, evenly spread (24)"
    )
    add("--columns", type=at_least(1), default=6, metavar="N", help="of the sheet (6)")
    add("--size", type=at_least(64), default=256, metavar="PIXELS", help="of an image (256)")
    return parser.parse_args(argv)


def _check_installed() -> None:
    try:
        import sunpy.visualization.colormaps  # noqa: F401  registers them with Matplotlib
    except ImportError as error:
        raise Refusal(f"{error}: install what AIA needs, pip install '.[aia]'") from error


def _preset(name: str | None) -> Preset | None:
    from dali_pipelines import load_preset

    try:
        return None if name is None else load_preset(name)
    except (OSError, ValueError) as error:
        raise Refusal(error) from error


def _spread(index: Index, count: int) -> Index:
    """Choose rows that are evenly spread over the Index, in its order."""
    if len(index) <= count:
        return index
    return index.select([place * len(index) // count for place in range(count)])


# ---- The images --------------------------------------------------------------------------------


def _pictures(
    index: Index, pipeline: str, preset: Preset | None, size: int
) -> Generator[Picture, None, None]:
    """Give a picture for each row."""
    with _loader(index, pipeline) as loader:
        for row, (batch,) in enumerate(loader):
            rejected = loader.stats.rejected.get(row)
            if rejected is None:
                yield _picture(index, row, batch["image"][0], preset, size)
            else:
                yield _rejected(index, row, rejected.reason)
            del batch  # what is held here cannot be reused for the next one


def _loader(index: Index, pipeline: str) -> Loader:
    """Make a Loader that gives a batch a row, in the order of the Index."""
    from dali_pipelines import Loader, fits_pipeline, jpeg_pipeline
    from dali_pipelines.memory import estimate_memory

    factories: dict[str, Callable[..., ReaderPipeline]] = {
        "fits": fits_pipeline,
        "jpeg": jpeg_pipeline,
    }
    loader = Loader(
        factories[pipeline],
        index,
        batch_size=1,  # images of all sizes
        num_read_processes=min(len(os.sched_getaffinity(0)), 4, len(index)),
        devices=[None],
        shard_id=0,
        num_shards=1,
        shuffle=False,
        bad_sample="skip",
        num_epochs=1,
    )
    estimate_memory(loader.make_pipelines()).check()
    return loader


def _picture(
    index: Index, row: int, image: torch.Tensor, preset: Preset | None, size: int
) -> Picture:
    """Make the picture of an image, shape (channels, height, width)."""
    from _sheet import Picture

    facts = _facts(index, row)
    channel = _channel(facts)
    if preset is not None:
        if channel is None:
            return _rejected(index, row, "the header names no channel of AIA (TELESCOP, WAVELNTH)")
        try:
            image = preset.stretch(channel)(image)
        except ValueError as error:
            return _rejected(index, row, str(error))
    values = image[~image.isnan()]
    empty = image.numel() - len(values)
    caption = (
        index.path(row),
        " ".join(filter(None, (f"AIA {channel}" if channel else "", _time(facts)))),
        "x".join(map(str, image.shape[1:])) + (f", {empty} NaN" if empty else ""),
        f"{values.min():.5g} to {values.max():.5g}" if len(values) else "no values",
    )
    return Picture(tuple(filter(None, caption)), _coloured(_reduced(image, size), channel))


def _rejected(index: Index, row: int, reason: str) -> Picture:
    from _sheet import Picture

    return Picture((index.path(row), "rejected"), None, one_line(reason))


def _facts(index: Index, row: int) -> dict[str, Fact]:
    from readers.facts import file_facts

    return file_facts(index.path(row), KEYS, index.hdu(row))


def _channel(facts: dict[str, Fact]) -> int | None:
    """Give the wavelength of an AIA image in angstrom."""
    wavelength = facts["WAVELNTH"]
    is_aia = facts["TELESCOP"] == "SDO/AIA" and isinstance(wavelength, int | float)
    return int(wavelength) if is_aia else None  # type: ignore[arg-type]


def _time(facts: dict[str, Fact]) -> str:
    """Give the time of an observation without fractions of a second."""
    return re.sub(r"(:\d\d)\.\d+", r"\1", str(facts["T_OBS"] or facts["DATE-OBS"] or ""))


def _reduced(image: torch.Tensor, size: int) -> torch.Tensor:
    """Shrink to the size of a cell, each pixel the mean of the area that it covers."""
    from torch.nn.functional import interpolate

    height, width = image.shape[1:]
    largest = max(height, width)
    if largest <= size:
        return image
    shape = max(1, height * size // largest), max(1, width * size // largest)
    return interpolate(image[None], size=shape, mode="area")[0]


def _coloured(image: torch.Tensor, channel: int | None) -> Any:
    """Give RGB, first row on top."""
    import matplotlib
    import numpy as np

    values = image.numpy()
    if len(values) == 3:  # a photograph
        return values.transpose(1, 2, 0).clip(0, 255).astype(np.uint8)
    plane = values[0, ::-1]
    finite = plane[np.isfinite(plane)]
    low, high = np.percentile(finite, (1, 99.9)) if finite.size else (0, 1)
    scaled = np.ma.masked_invalid((plane - low) / max(high - low, 1e-30))
    name = f"sdoaia{channel}"
    colours = matplotlib.colormaps[name if name in matplotlib.colormaps else "gray"]
    return colours.with_extremes(bad="0.5")(scaled.clip(0, 1), bytes=True)[..., :3]


if __name__ == "__main__":
    raise SystemExit(main())
