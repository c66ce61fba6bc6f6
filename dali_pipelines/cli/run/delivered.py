"""A contact sheet of the first images that a run delivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from readers.cache.folder import cache_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from dali_pipelines import Index
    from dali_pipelines.cli.run_config import RunConfig

COUNT, COLUMNS, SIZE = 12, 6, 240


def first_images(batch: Mapping[str, Any], config: RunConfig) -> list[tuple[int, torch.Tensor]]:
    """Copy the first images of a batch, with the row that each is of."""
    rows, valid = batch["row"].tolist(), batch["valid"].tolist()
    found = [slot for slot, is_valid in enumerate(valid) if is_valid][:COUNT]
    images = [batch["image"][slot] for slot in found]
    if config.pipeline_config.ragged == "pad":
        sizes = batch["size"].tolist()
        images = [
            image[..., : sizes[slot][0], : sizes[slot][1]]
            for slot, image in zip(found, images, strict=True)
        ]
    return [(rows[slot], image.cpu().clone()) for slot, image in zip(found, images, strict=True)]


def save_delivered(images: list[tuple[int, torch.Tensor]], index: Index, config: RunConfig) -> Path:
    """Draw the images as they were delivered, in a PNG file in the user's cache folder.

    Raises
    ------
    ImportError
        If Matplotlib or SunPy is not installed.
    OSError
        If the file cannot be written.
    """
    from dali_pipelines.cli.show.pictures import Targets, image_picture
    from dali_pipelines.cli.show.sheet import save_sheet

    columns = index.columns()
    pictures = [
        image_picture(columns.row(row), _displayable(image, config), SIZE, Targets())
        for row, image in images
    ]
    path = cache_folder() / f"run-{config.pipeline}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [pictures[first : first + COLUMNS] for first in range(0, len(pictures), COLUMNS)]
    save_sheet(str(path), lines, heading="The first images that were delivered", size=SIZE)
    return path


def _displayable(image: torch.Tensor, config: RunConfig) -> torch.Tensor:
    """Undo the normalisation of photographs, whose colours are shown from 0 to 255."""
    if config.pipeline != "jpeg":
        return image
    import torch

    std, mean = (
        torch.tensor(values).reshape(-1, 1, 1)
        for values in (config.pipeline_config.std or (1,), config.pipeline_config.mean or (0,))
    )
    return image * std + mean
