"""Output of a run while it goes on: progress bar, NVTX ranges, audit, state, first images."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import nvtx

from dali_pipelines.cli.errors import one_line
from dali_pipelines.cli.paths import OutputFile, write_file, write_table
from dali_pipelines.cli.progress import Bar
from dali_pipelines.cli.run.stages import Moment, Stages
from dali_pipelines.cli.single_rows import bad_image
from dali_pipelines.loading.batches import listed
from dali_pipelines.runtime.ranks import Ranks
from readers.cache.folder import cache_folder
from readers.chunks.array import NOTE
from readers.places.opener import Places

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from dali_pipelines import Index, Loader
    from dali_pipelines.cli.run_config import RunConfig

DOMAIN = "dali-pipelines"
"""NVTX domain of the ranges run, epoch and batch."""

AUDIT_HEADER = ("epoch", "step", "shard", "slot", "row", "path", "valid")

REJECTED_HEADER = ("path", "hdu", "row", "reason", "epoch", "step", "image")
"""The last column is the image that could not be read, if a sample has several: a name of --hdus,
or a part."""

NUM_IMAGES, COLUMNS, SIZE = 12, 6, 240
"""Contact sheet of the first images: their number, columns, and the size of each in pixels."""


class Run:
    """One run over a Loader, from the first batch to the last."""

    def __init__(self, loader: Loader, config: RunConfig, ranks: Ranks) -> None:
        self.loader = loader
        self.config = config
        self.ranks = ranks
        self.steps_done = 0
        self.ready_at_first = 0
        """Number of batches that readers and graph may have had ready when the first was
        delivered."""
        self.began = self.last = time.perf_counter()
        """Times of the start, and of the last delivered step."""
        self._state = loader.state_dict()
        self._images: list[tuple[int, torch.Tensor]] = []
        self._held = ExitStack()

    def __enter__(self) -> Run:
        """Open the audit file and the progress bar, and begin the range ``run``."""
        total = len(self.loader) * self.config.batch_size * self.loader.num_shards
        if self.config.pipeline_config.epoch_steps is None:
            total = min(len(self.loader.index), total)
        rows = total * self.config.epochs
        self._held.enter_context(nvtx.annotate("run", domain=DOMAIN))
        self._audit = None
        self._held.callback(self._write_rejected)
        self._held.callback(self._write_state)
        if self.config.audit is not None:
            file = OutputFile(self.config.audit)
            self._held.callback(file.close)
            self._audit = csv.writer(file)
            self._audit.writerow((*AUDIT_HEADER, *self.config.pipeline_config.columns))
        self._bar = self._held.enter_context(
            Bar(
                total=rows // self.ranks.world_size,
                unit="images",
                disable=self.ranks.rank != 0,
            )
        )
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files; write the state and the rejected rows, however the run ended."""
        self._held.close()  # writes the other files even if one cannot be written

    def _write_state(self) -> None:
        if self.config.state is not None:
            write_file(self.config.state, json.dumps(self._state) + "\n")

    def _write_rejected(self) -> None:
        if self.config.rejected is not None:
            images, parts = dict(self.config.hdus or ()), self.loader.index.frames.parts
            rows = []
            for bad in self.loader.stats.rejected.values():
                known = (getattr(bad, name) for name in REJECTED_HEADER[:-1])
                rows.append((*known, bad_image(bad.reason, images, parts)))
            write_table(self.config.rejected, REJECTED_HEADER, rows)

    def steps(self, epoch: int) -> Iterator[list[dict[str, Any]]]:
        """Yield the batches of an epoch inside NVTX ranges."""
        with nvtx.annotate(f"epoch {epoch}", domain=DOMAIN):
            batches = iter(self.loader)
            while True:
                with nvtx.annotate("batch", domain=DOMAIN):
                    batch = next(batches, None)
                if batch is None:
                    return
                yield batch
                del batch  # DALI can use its memory for the next one

    def deliver(self, epoch: int, step: int, batches: list[dict[str, Any]]) -> None:
        """Record a delivered step."""
        self.last = time.perf_counter()
        if self.steps_done == 0:
            self.at_first = Moment.of(self.loader)
            # ready at the readers, and at the graph
            self.ready_at_first = 2 * max(each.ahead for each in self.loader.pipelines)
            if self.config.data is None and self.ranks.rank == 0:
                self._images = first_images(batches[0], self.config)
        self.steps_done += 1
        for shard, batch in enumerate(batches, self.loader.first_shard):
            rows, valid = batch["row"].tolist(), batch["valid"].tolist()
            self._bar.update(sum(valid))
            if self._audit is not None:
                named = [listed(batch[name]) for name in self.config.pipeline_config.columns]
                self._audit.writerows(
                    (epoch, step, shard, slot, row, self.loader.index.path(row), int(is_valid), *of)
                    for slot, (row, is_valid, *of) in enumerate(
                        zip(rows, valid, *named, strict=True)
                    )
                )
        seconds = self.last - self.began
        rate = self.loader.stats.input_bytes / seconds / 1e6
        self._bar.set_postfix_str(f"{rate:.0f} MB/s read", refresh=False)
        self._state = self.loader.state_dict()

    def end(self) -> Stages | None:
        """End the readers; return the times of all stages, None if the run was too short."""
        # While the readers live, as their CPU times vanish with them.
        enough = self.steps_done > self.ready_at_first and self.loader.stats.samples > 0
        lives = bool(self.loader.pipelines)
        measured = self.at_first.stages(self.loader) if enough and lives else None
        self.loader.close()
        self._bar.close()
        return measured

    def draw(self) -> None:
        """Draw the first images of the sample set; an error does not end the run."""
        if not self._images:
            return
        try:
            path = save_delivered(self._images, self.loader.index, self.config)
            print(f"The first images are drawn in {path}")
        except (ImportError, OSError) as error:
            print(f"No contact sheet is drawn: {one_line(error)}", file=sys.stderr)


def first_images(batch: Mapping[str, Any], config: RunConfig) -> list[tuple[int, torch.Tensor]]:
    """Copy the first images of a batch, with their rows."""
    rows, valid = batch["row"].tolist(), batch["valid"].tolist()
    found = [slot for slot, is_valid in enumerate(valid) if is_valid][:NUM_IMAGES]
    images = [batch["image"][slot] for slot in found]
    if config.pipeline_config.ragged == "pad":
        sizes = batch["size"].tolist()
        images = [
            image[..., : sizes[slot][0], : sizes[slot][1]]
            for slot, image in zip(found, images, strict=True)
        ]
    # In float, because pictures are reduced to means.
    copies = [image.cpu().float().clone() for image in images]
    return [(rows[slot], image) for slot, image in zip(found, copies, strict=True)]


def save_delivered(images: list[tuple[int, torch.Tensor]], index: Index, config: RunConfig) -> Path:
    """Draw the images as they were delivered, in a PNG file in the user's cache folder.

    Raises
    ------
    ImportError
        If Matplotlib is not installed.
    OSError
        If the file cannot be written.
    """
    from dali_pipelines.cli.show.direction import is_first_on_top
    from dali_pipelines.cli.show.own_folders import use_writable_folders
    from dali_pipelines.cli.show.pictures import Overlay, drawn, sketched
    from dali_pipelines.cli.show.sheet import save_sheet

    use_writable_folders()
    notes = (NOTE,) if config.pipeline == "chunked" else ()
    columns = index.columns(notes=notes).with_places(Places(config.storage))
    sketches = []
    for number, image in images:
        row, shown = columns.row(number), _displayable(image, config)
        first_on_top = is_first_on_top(row)
        sketches.append(sketched(row, shown, SIZE, Overlay(), first_on_top=first_on_top))
    pictures = drawn(sketches, None if config.pipeline == "jpeg" else "asinh")
    path = cache_folder() / f"run-{config.pipeline}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [pictures[first : first + COLUMNS] for first in range(0, len(pictures), COLUMNS)]
    heading = f"The first delivered images; {config.image_flags()}"
    save_sheet(str(path), lines, heading=heading, size=SIZE)
    return path


def _displayable(image: torch.Tensor, config: RunConfig) -> torch.Tensor:
    """Undo the normalisation of photographs: their colours are 0 to 255."""
    if config.pipeline != "jpeg":
        return image
    import torch

    std, mean = (
        torch.tensor(values).reshape(-1, 1, 1)
        for values in (config.pipeline_config.std or (1,), config.pipeline_config.mean or (0,))
    )
    return image * std + mean
