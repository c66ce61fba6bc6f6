"""Many epochs: memory stays as it is, and no epoch begins with a wait.

A short form by default; the long form is ``SOAK_EPOCHS=200 pytest
tests/dali_pipelines/test_soak.py --log-cli-level=INFO``.
"""

from __future__ import annotations

import ctypes
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from astropy.io import fits
from PIL import Image

from dali_pipelines import Index, Loader, fits_pipeline, jpeg_pipeline
from dali_pipelines.graph.pipeline import ReaderPipeline

pytestmark = pytest.mark.slow

logger = logging.getLogger(__name__)

malloc_trim = ctypes.CDLL(None).malloc_trim
"""Of the tensors that come and go glibc keeps up to 60 MB of freed memory, for which it takes
hundreds of epochs: it is returned before memory is measured."""

EPOCHS = int(os.environ.get("SOAK_EPOCHS", "12"))
WARM = max(6, EPOCHS // 10)
"""Epochs until caches, and the allocator's, are full."""
MAIN_BYTES, READERS_BYTES = max(6e6, 1.5e5 * EPOCHS), 3e6
"""Growth over all epochs that chance may bring; the allocator keeps what it may need again, which
each reader takes by the megabyte. A leak of one window in each step would be 1.3 MB an epoch."""
ROWS, BATCH, SIZE = 32, 4, 256


def save_fits(path: Path, pixels: np.ndarray) -> None:
    fits.CompImageHDU(pixels.astype(np.int16), compression_type="RICE_1").writeto(path)


def save_jpeg(path: Path, pixels: np.ndarray) -> None:
    Image.fromarray(pixels.astype(np.uint8)).save(path)


@pytest.mark.timeout(10 * EPOCHS + 100)
@pytest.mark.parametrize(
    ("pipeline", "save", "suffix"),
    [(fits_pipeline, save_fits, "fits"), (jpeg_pipeline, save_jpeg, "jpg")],
)
def test_memory_is_flat_and_epochs_follow_each_other(
    tmp_path: Path,
    pipeline: Callable[..., ReaderPipeline],
    save: Callable[[Path, np.ndarray], None],
    suffix: str,
) -> None:
    chance = np.random.default_rng(0)
    for row in range(ROWS):
        save(tmp_path / f"{row:02d}.{suffix}", chance.poisson(30, (SIZE, SIZE)))
    memory = []
    with Loader(
        pipeline,
        Index.from_paths(sorted(tmp_path.iterdir())),
        batch_size=BATCH,
        num_read_processes=2,
        devices=[None],
        crop=200,
        window="random",
        flip="hv",
        num_threads=2,
    ) as loader:
        arrivals = [[time.perf_counter() for _ in loader] for _ in range(EPOCHS)]
        # Again, since to look at memory takes longer than a step.
        for _ in range(EPOCHS):
            for _ in loader:
                pass
            malloc_trim(0)
            memory.append(used_memory())
    steps, per_epoch = np.diff(np.concatenate(arrivals)), ROWS // BATCH
    # The last gap of each epoch but the last is that to the first batch of the next one.
    between = steps[per_epoch - 1 :: per_epoch][WARM // 2 :]
    within = np.delete(steps, slice(per_epoch - 1, None, per_epoch))
    growth = np.polyfit(range(EPOCHS - WARM), np.array(memory[WARM:]), 1)[0]
    logger.info(
        "%d epochs of %s: %.1f MB (main), %.1f MB (readers), growing by %.2f and %.2f kB an epoch",
        *(EPOCHS, suffix, *(np.median(memory, axis=0) / 1e6), *(growth / 1e3)),
    )
    logger.info(
        "gap between batches %.2f ms (median), between epochs %.2f ms (median)",
        *(1e3 * np.median(within), 1e3 * np.median(between)),
    )
    assert np.median(between) < 2 * np.median(within)
    assert (growth * len(memory[WARM:]) < (MAIN_BYTES, READERS_BYTES)).all(), memory


def used_memory() -> tuple[int, int]:
    """Return the memory of this process and of all its children in bytes: what is theirs alone.

    Of pages of files, and of the process they are forks of, each other process changes the share.
    """
    this = psutil.Process()
    return own_memory(this.pid), sum(own_memory(p.pid) for p in this.children(recursive=True))


def own_memory(pid: int) -> int:
    """Return the memory of a process; 0 of one that has ended, as other tests leave them."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except (ProcessLookupError, FileNotFoundError):
        return 0
    sizes = {name: int(size) for name, size, _ in map(str.split, lines)}
    return 1024 * (sizes["Private_Dirty:"] + sizes["Pss_Shmem:"])
