"""FitsReader and the graph's kernel on damaged files: astropy's pixels, or a refusal.

``FUZZ_SECONDS=600 pytest tests/readers/test_fuzz_files.py`` goes on with new seeds for as long.
FITS has no checksums that anybody looks at, so flipped bits may well give other pixels: what counts
is that they are astropy's.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from fits_files import write
from fuzz_files import MEMORY_UNSAFE, Outcome, before_a_hole, damaged, judged, outcome, sum_past
from strategies import StoredImage

from dali_pipelines.cli.verify.truth import Truth
from dali_pipelines.parallel.interpreter import Crash
from dali_pipelines.parallel.task_map import isolated_map

logger = logging.getLogger(__name__)

SECONDS = int(os.environ.get("FUZZ_SECONDS", 0))
SEEDS = {"real": 15, "written": 40}
"""Seeds for each file where no time is given."""


def written_images() -> Iterator[tuple[str, StoredImage]]:
    noise = np.random.default_rng(1).normal(100, 20, (60, 50)).astype(np.float32)
    rice = {"compression_type": "RICE_1"}
    yield "int16", StoredImage(noise.astype(np.int16), {}, rice)
    yield "uint8", StoredImage(noise.astype(np.uint8), {}, {**rice, "tile_shape": (7, 9)})
    yield "int32", StoredImage(noise.astype(np.int32) << 18, {"BZERO": 7, "BLANK": 100}, rice)
    yield "one_tile", StoredImage(noise.astype(np.int16), {}, {**rice, "tile_shape": (60, 50)})
    for method in (-1, 1, 2):
        settings = {**rice, "quantize_method": method, "dither_seed": 9999, "tile_shape": (4, 50)}
        yield f"dither{method}", StoredImage(noise, {}, settings)
    yield "gzip_2", StoredImage(noise, {}, {"compression_type": "GZIP_2", "quantize_level": 0.0})
    hcompress = {"compression_type": "HCOMPRESS_1", "tile_shape": (20, 25)}
    yield "hcompress", StoredImage(noise.astype(np.int16), {}, hcompress)
    yield "plain", StoredImage(noise.astype(np.int16), {"BSCALE": 0.5, "BZERO": 1, "BLANK": 80})


@pytest.fixture(scope="module")
def sound_files(
    shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[str]]:
    """Return the paths of real and of written files."""
    folder = tmp_path_factory.mktemp("sound")
    for name, image in written_images():
        write(folder / f"{name}.fits", image)
    real = sorted(map(str, (shared_data / "fits").iterdir()))
    return {"real": real, "written": sorted(map(str, folder.iterdir()))}


def cases(sound_files: dict[str, list[str]], folder: str) -> Iterator[tuple[str, int, str]]:
    """Return (path, seed, folder): a few, the same each time, or new ones until time is up."""
    if SECONDS == 0:
        for kind, paths in sound_files.items():
            for seed in range(SEEDS[kind]):
                yield from ((path, seed, folder) for path in paths)
        return
    end = time.monotonic() + SECONDS
    for seed in count(time.time_ns() // 10**9):
        for path in (path for paths in sound_files.values() for path in paths):
            if time.monotonic() > end:
                return
            yield path, seed, folder


def confirmed(path: str, seed: int, folder: str) -> Outcome:
    """Do a case again in a new process: one before it may have spoilt the memory of the first."""
    (again,) = isolated_map(outcome, [(path, seed, folder)], 1)
    if not isinstance(again, Crash):
        return again if again.kind == "bug" else Outcome("chance", again.codec)
    content = damaged(path, Random(f"{os.path.basename(path)} {seed}"))
    unsafe = any(name.encode() in content for name in MEMORY_UNSAFE)
    return Outcome("chance" if unsafe else "crash", None)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 240)
def test_damaged_files(sound_files: dict[str, list[str]], tmp_path: Path) -> None:
    begun, kinds, wrong = [], Counter[str](), []

    def noted() -> Iterator[tuple[str, int, str]]:
        for case in cases(sound_files, str(tmp_path)):
            begun.append(case)
            yield case

    for number, found in enumerate(isolated_map(outcome, noted(), 2)):
        path, seed, _ = begun[number]
        if isinstance(found, Crash) or found.kind == "bug":
            found = confirmed(path, seed, str(tmp_path))
        kinds[found.kind] += 1
        if found.kind in ("strict", "lenient", "window"):
            logger.info("%s %d: %s %s", os.path.basename(path), seed, found.kind, found.detail)
        if found.kind in ("bug", "crash"):
            wrong.append(f"{os.path.basename(path)} {seed}: {found.kind} {found.detail}")
    logger.info("%d cases: %s", sum(kinds.values()), dict(kinds))
    assert not wrong, "\n".join(wrong)
    assert min(kinds["same"], kinds["refused"]) > 0.1 * sum(kinds.values())


# That the test can fail: a wrong judge or guard would pass all.


OUTCOMES = [
    (Truth(codec="RICE_1", values=np.zeros((2, 3), np.float32)), "same"),
    (Truth(codec="RICE_1", values=np.ones((2, 3), np.float32)), "bug"),
    (Truth(codec="RICE_1", values=np.zeros((3, 2), np.float32)), "bug"),
    (Truth(codec="PLIO_1", values=np.ones((2, 3), np.float32)), "chance"),
    (Truth(complaint="no image"), "bug"),
    (Truth(complaint="OverflowError: BLANK value 1e+300 is too large"), "lenient"),
]


@pytest.mark.parametrize(("truth", "kind"), OUTCOMES)
def test_what_counts_as_a_bug(truth: Any, kind: str) -> None:
    found = np.zeros((2, 3), np.float32)
    assert judged(found, truth, same_header=False).kind == kind
    assert judged(found, truth, same_header=True).kind == kind.replace("lenient", "bug")


def test_reading_past_the_payload_kills() -> None:
    assert before_a_hole(np.arange(5, dtype=np.uint8)).tolist() == [0, 1, 2, 3, 4]
    within, past = isolated_map(sum_past, [(5, 0), (5, 1)], 1)
    assert within == 5
    assert isinstance(past, Crash)
