"""Pictures of images as the pipeline delivers them, with captions."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from dali_pipelines.cli.errors import one_line
from dali_pipelines.cli.pipeline_flags import augmentation_of, factory_of
from dali_pipelines.cli.show.direction import is_first_on_top
from dali_pipelines.cli.show.pictures import (
    BLANK,
    Overlay,
    Sketch,
    left_out_picture,
    missing_picture,
    rejected_picture,
    sketched,
)
from dali_pipelines.cli.show.sheet import Picture
from dali_pipelines.cli.show.sounds import pictured
from dali_pipelines.cli.single_rows import Rejections, bad_image, single_rows
from dali_pipelines.factories import clip_of
from dali_pipelines.loading.settings import window_settings
from dali_pipelines.variables import channels_of
from readers.chunks.array import NOTE
from readers.header_scan import file_facts
from readers.index.schema import check_column
from readers.places.opener import Places

if TYPE_CHECKING:
    import pyarrow as pa
    import torch

    from dali_pipelines.cli.show.config import ShowConfig
    from readers import Index
    from readers.contract import Row
    from readers.fits.headers import HduName


def delivered_pictures(index: Index, config: ShowConfig) -> Generator[Picture | Sketch, None, None]:
    """Yield a picture, or its sketch, for each draw of each row, and for each file of the row.

    With ``--each_augment`` this is repeated for each single augmentation.
    """
    settings = config.factory_settings()
    for name in config.captions or ():
        check_column(index.table, name)
    settings |= window_settings(index, settings)
    if config.pipeline == "fits" and settings.get("window") == "row":  # for the position on the sky
        settings["outputs"] = tuple({*settings.get("outputs", ()), "matrix"})
    index = index.select([row for row in range(len(index)) for _ in range(config.draws)])
    if not config.each_augment:
        yield from _pictures(index, config, settings)
        return
    for text in config.settings.get("augment", ()):
        settings["augment"] = (augmentation_of(text),)
        yield from _pictures(index, config, settings, (text,))


def _pictures(
    index: Index, config: ShowConfig, settings: dict[str, Any], caption: tuple[str, ...] = ()
) -> Generator[Picture | Sketch, None, None]:
    parts = index.frames.parts if index.parts else ()
    notes = (NOTE,) if config.pipeline == "chunked" else ()
    columns = index.columns(parts=parts, notes=notes).with_places(Places(config.storage))
    rejections = Rejections()
    names = variable_names(index, settings) if config.pipeline == "chunked" else [("",)]
    with single_rows(factory_of(config.pipeline), index, **settings) as loader:
        for number, (batch,) in enumerate(loader):
            row = columns.row(number)
            files: list[Row | None] = [row.part(part) for part in parts] or [row]
            refusal = rejections.reason(loader, number)
            if config.pipeline == "video":  # each frame is a picture
                files *= clip_of(index, config.frames, config.stride).frames
            for place, file in enumerate(files):
                variables = names[place % len(names)]
                if file is None:
                    yield missing_picture(parts[place])
                elif refusal is not None:
                    bad = bad_image(refusal, (), parts)
                    is_bad = (parts or place == 0) and bad in ("", *parts[place : place + 1])
                    yield rejected_picture(file, refusal) if is_bad else left_out_picture(file)
                elif config.pipeline == "audio":
                    lines = [*caption, *_captions(index.table, config.captions or (), number)]
                    yield pictured(file, batch, config.size, lines)
                else:
                    file = _at_hdu(file, config.hdu)
                    image = batch["image"][0]
                    if image.ndim > 3 or parts:
                        image = image.reshape(len(files), -1, *image.shape[-2:])[place]
                    targets = Overlay.of(batch, config.labels, index.classes, place)
                    time = parts[place : place + 1] if index.offsets else ()
                    lines = [*caption, *time, *_placed(batch, config.pipeline_config.outputs)]
                    lines += _captions(index.table, config.captions or (), number)
                    if "matrix" in batch and settings.get("window") == "row":
                        lines.append(_sky_position(file, batch["matrix"][0], image.shape))
                    has_header = config.pipeline not in ("chunked", "video")
                    if config.pipeline == "video":
                        lines.insert(0, f"{float(batch['time'][0, place]):.3f} s")
                    if not has_header and file.plane is not None:
                        lines.insert(0, f"position {file.plane}")
                    first_on_top = is_first_on_top(file)
                    channels = image[:, None] if len(variables) > 1 else (image,)
                    for variable, channel in zip(variables, channels, strict=True):
                        yield sketched(
                            file,
                            channel,
                            config.size,
                            targets,
                            [variable, *lines],
                            has_header=has_header,
                            variable=variable,
                            first_on_top=first_on_top,
                        )
                if file is None or refusal is not None:  # a cell for each variable
                    yield from [BLANK] * (len(variables) - 1)
            del batch  # DALI can reuse its memory for the next one


def variable_names(index: Index, settings: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the names of the channels of chunked arrays, for each part of one time."""
    named = channels_of(index, settings.get("variables"), settings.get("targets")).named
    count = len(named) // len(index.frames.channels or ("",))
    names = [array.name for _, array in named]
    return [tuple(names[at : at + count]) for at in range(0, len(names), count)]


def _at_hdu(file: Row, hdu: HduName | None) -> Row:
    """Return a file with the number of the requested HDU, unless the Index names one."""
    if hdu is None or file.hdu is not None:
        return file
    facts, *_ = file_facts(file.place, (), hdu)
    return replace(file, hdu=cast("int", facts["hdu"]))


def _placed(batch: dict[str, torch.Tensor], outputs: Sequence[str]) -> list[str]:
    """Return lines about the position of a sample in its image."""
    return [
        f"{name} " + " ".join(f"{number:.4g}" for number in batch[name][0].flatten().tolist())
        for name in outputs
    ]


def _captions(table: pa.Table, names: Sequence[str], row: int) -> list[str]:
    """Return a line for each column, with its name and the value of a row."""
    return [f"{name} {one_line(_in_words(table[name][row]))}" for name in names]


def _in_words(value: pa.Scalar) -> str:
    """Return a value as text: numbers with 6 digits, times to the second, a dash for null."""
    import numpy as np
    import pyarrow as pa

    if not value.is_valid:
        return "-"
    if pa.types.is_timestamp(value.type):
        time = np.datetime64(value.value, value.type.unit)
        return str(np.datetime_as_string(time, unit="s"))
    return _rounded(value.as_py())


def _rounded(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_rounded, value))}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _sky_position(file: Row, matrix: torch.Tensor, shape: Sequence[int]) -> str:
    """Return the sky coordinates of the middle of a sample, such as ``RA 150.1 DEC +2.2 deg``.

    Empty if the file has none. `matrix`, shape (2, 3), converts pixels (x, y) of the sample, of
    `shape` (..., height, width), to pixels of the file's image.
    """
    import numpy as np

    from readers.index.catalogue.headers import image_facts

    image = file.path, -1 if file.hdu is None else file.hdu
    (facts,) = image_facts([image], with_wcs=True, places=file.places)
    if isinstance(facts, str) or facts.wcs is None:
        return ""
    *_, height, width = shape
    place = matrix.numpy() @ ((width - 1) / 2, (height - 1) / 2, 1)
    (world,) = facts.wcs.all_pix2world(place[None], 0)
    if not np.isfinite(world).all():
        return ""
    axes = facts.wcs.wcs
    longitude, latitude = world[axes.lng], world[axes.lat]
    # wcslib has converted all units to degrees.
    return f"{axes.lngtyp.strip()} {longitude:.5f} {axes.lattyp.strip()} {latitude:+.5f} deg"
