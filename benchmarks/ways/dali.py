"""Photographs by DALI's own readers: of files, and of samples in tars and TFRecords."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from benchmarks.measure.ledger import Ledger
from benchmarks.measure.race import Batch, Run, Way
from benchmarks.ways.loaders import devices
from benchmarks.ways.peers import MEAN, SEED, STD, Case

_AHEAD = 3
"""Batches: two of DALI's queues, and one in the works."""
_DIGITS = 8
"""Of the row, in tars."""

Read = Callable[[], Sequence[Any]]
"""Adds a reader to DALI's graph; gives encoded photographs and rows, of one number or of digits."""


def read_files(paths: Sequence[str]) -> Sequence[Any]:
    """Read loose files in order."""
    from nvidia.dali import fn

    return fn.readers.file(files=paths, labels=list(range(len(paths))))


def read_tars(paths: Sequence[str], fill: int) -> Sequence[Any]:
    """Read samples of tars, drawn from a buffer of so many; ``.cls`` is the row."""
    from nvidia.dali import fn

    found: Any = fn.readers.webdataset(
        paths=paths, ext=["jpg", "cls"], random_shuffle=True, initial_fill=fill, seed=SEED
    )
    return found


def read_tfrecords(paths: Sequence[str], indexes: Sequence[str], fill: int) -> Sequence[Any]:
    """Read records, drawn from a buffer of so many; the feature ``label`` is the row."""
    from nvidia.dali import fn, tfrecord

    found: Any = fn.readers.tfrecord(
        path=paths,
        index_path=indexes,
        features={
            "image/encoded": tfrecord.FixedLenFeature([], tfrecord.string, ""),
            "label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
        },
        random_shuffle=True,
        initial_fill=fill,
        seed=SEED,
    )
    return found["image/encoded"], found["label"]


def row_digits(row: int) -> bytes:
    """Return a row as tars have it, of as many bytes in all."""
    return str(row).zfill(_DIGITS).encode()


def dali_way(
    name: str, read: Read, images: int, case: Case, num_threads: int, ledger: Ledger
) -> Way:
    """Make the way of one of DALI's own readers, which needs no reader processes."""

    @contextmanager
    def start() -> Iterator[Run]:
        pipeline = _pipeline(read, case, num_threads)
        pipeline.build()
        yield partial(_batches, pipeline, case, _AHEAD + -(-images // case.batch_size))

    agreement = case.agreement()
    if case.window != "center" or case.resize_shorter is not None:
        agreement["atol"] = None  # it draws its own windows, and rounds sizes otherwise
    return Way(name=name, start=start, ahead=_AHEAD, ledger=ledger, **agreement)


def _pipeline(read: Read, case: Case, num_threads: int) -> Any:
    from nvidia.dali import Pipeline, fn, types

    (device_id,) = devices(1)
    pipeline = Pipeline(
        batch_size=case.batch_size,
        num_threads=num_threads,
        device_id=device_id,
        exec_dynamic=True,
        seed=SEED,
    )
    finish: dict[str, Any] = {"mean": [MEAN] * 3, "std": [STD] * 3, "output_layout": "CHW"}
    with pipeline:
        encoded, row = read()
        images = _decoded(encoded, "cpu" if device_id is None else "mixed", case)
        flips = [fn.random.coin_flip() for _ in case.flip]
        if "v" in case.flip:
            images = fn.flip(images, horizontal=0, vertical=flips[1])
        if flips:
            finish["mirror"] = flips[0]
        if case.resize_shorter is not None:
            finish["crop"] = case.crop
        images = fn.crop_mirror_normalize(images, dtype=types.FLOAT, **finish)
        pipeline.set_outputs(images, row, *flips)
    return pipeline


def _decoded(encoded: Any, device: str, case: Case) -> Any:
    from nvidia.dali import fn, types

    if case.resize_shorter is not None:
        images = fn.decoders.image(encoded, device=device)
        shorter = case.resize_shorter
        return fn.resize(images, resize_shorter=shorter, interp_type=types.INTERP_LINEAR)
    if case.random_area is None:
        random = case.window == "random"
        where = {f"crop_pos_{axis}": fn.random.uniform(range=(0, 1)) for axis in "xy" if random}
        # Of an odd play, as the others.
        return fn.decoders.image_crop(
            encoded, device=device, crop=case.crop, rounding="truncate", **where
        )
    # The ranges of regions are DALI's by default, too.
    images = fn.decoders.image_random_crop(encoded, device=device, random_area=case.random_area)
    return fn.resize(images, size=case.resize, interp_type=types.INTERP_LINEAR)


def _batches(pipeline: Any, case: Case, batches: int, pixels: bool) -> Iterator[Batch]:
    from torch.utils.dlpack import from_dlpack

    for _ in range(batches):
        image, row, *flips = (from_dlpack(one.as_tensor()) for one in pipeline.run())
        numbers = [int(bytes(one)) if len(one) == _DIGITS else int(one[0]) for one in row.numpy()]
        if pixels and flips:
            image = _flipped_as_others(image, numbers, *flips)
        yield numbers, image


def _flipped_as_others(images: Any, rows: Sequence[int], *flips: Any) -> Any:
    """Turn DALI's own flips into those that the other ways draw, which can be compared."""
    import torch

    from readers.sampling.draws import Draws

    turned = []
    for image, row, *flipped in zip(images, rows, *flips, strict=True):
        draws = Draws.of(SEED, 0, row)
        wanted = zip((-1, -2), (draws.horizontal, draws.vertical), flipped, strict=False)
        turned.append(torch.flip(image, [axis for axis, flip, now in wanted if flip != bool(now)]))
    return torch.stack(turned)
