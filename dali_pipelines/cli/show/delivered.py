"""Pictures of images as the pipeline delivers them, with all that the flags ask for."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from dali_pipelines.cli.pipeline_flags import augmentation_of, factory_of
from dali_pipelines.cli.show.captions import captions_of
from dali_pipelines.cli.show.pictures import (
    Targets,
    image_picture,
    left_out_picture,
    missing_picture,
    rejected_picture,
)
from dali_pipelines.cli.show.sheet import Picture
from dali_pipelines.cli.show.sky import sky_position
from dali_pipelines.cli.single_rows import Rejections, single_rows
from readers.header_scan import file_facts
from readers.index.schema import check_column
from readers.places.opener import Places

if TYPE_CHECKING:
    import torch

    from dali_pipelines import Calibration
    from dali_pipelines.cli.show.config import ShowConfig
    from readers import Index
    from readers.contract import Row
    from readers.fits.headers import HduName


def delivered_pictures(
    index: Index, config: ShowConfig, calibration: Calibration | None
) -> Generator[Picture, None, None]:
    """Yield a picture for each file of each row, as often as it is drawn.

    With ``--each_augment`` that is done for each augmentation by itself.
    """
    settings = config.pipeline_settings()
    for name in config.captions or ():
        check_column(index.table, name)
    if calibration is not None:
        settings["calibration"] = calibration
    if config.pipeline == "fits":
        settings["hdu"] = config.hdu
        if config.pipeline_config.window == "row":  # for the position on the sky
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
) -> Generator[Picture, None, None]:
    parts = index.frames.parts if index.parts else ()
    columns = index.columns(parts=parts).with_places(Places(config.storage))
    rejections = Rejections()
    with single_rows(factory_of(config.pipeline), index, **settings) as loader:
        for number, (batch,) in enumerate(loader):
            row = columns.row(number)
            files: list[Row | None] = [row.part(part) for part in parts] or [row]
            refusal = rejections.reason(loader, number)
            for place, file in enumerate(files):
                if file is None:
                    yield missing_picture(parts[place])
                elif refusal is not None:
                    bad = _bad_part(refusal, parts)
                    is_bad = bad is None or bad == parts[place]
                    yield rejected_picture(file, refusal) if is_bad else left_out_picture(file)
                else:
                    file = _at_hdu(file, config.hdu)
                    image = batch["image"][0]
                    if parts:
                        image = image.reshape(len(files), -1, *image.shape[-2:])[place]
                    targets = Targets.of(batch, config.labels)
                    time = parts[place : place + 1] if index.offsets else ()
                    lines = [*caption, *time, *_placed(batch, config.pipeline_config.outputs)]
                    lines += captions_of(index.table, config.captions or (), number)
                    if "matrix" in batch and config.pipeline_config.window == "row":
                        lines.append(sky_position(file, batch["matrix"][0], image.shape))
                    yield image_picture(file, image, config.size, targets, lines)
            del batch  # what is held here cannot be reused for the next one


def _at_hdu(file: Row, hdu: HduName | None) -> Row:
    """Return a file with the number of the HDU that is asked for, unless the Index names one."""
    if hdu is None or file.hdu is not None:
        return file
    facts, *_ = file_facts(file.place, (), hdu)
    return replace(file, hdu=cast("int", facts["hdu"]))


def _bad_part(reason: str, parts: Sequence[str]) -> str | None:
    """Return the part for which a sample is rejected; None if it is none of them alone."""
    begins = {part: (f"part {part}:", f"part {part},") for part in parts}
    return next((part for part in parts if reason.startswith(begins[part])), None)


def _placed(batch: dict[str, torch.Tensor], outputs: Sequence[str]) -> list[str]:
    """Return lines that say where a sample is in its image."""
    return [
        f"{name} " + " ".join(f"{number:.4g}" for number in batch[name][0].flatten().tolist())
        for name in outputs
    ]
