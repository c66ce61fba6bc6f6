"""The ways that most suites compare: the Loader, and PyTorch's DataLoader on the same pixels."""

# Worker processes import this file: what is heavy is imported in the functions.
from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.measure.ledger import Ledger, counted
from benchmarks.measure.race import Batch, Expected, Run, Way
from benchmarks.ways.peers import MEAN, PEERS, SEED, STD, Case, Files

if TYPE_CHECKING:
    from dali_pipelines import Index, Loader


def expected_pixels(paths: Sequence[str], case: Case) -> Expected:
    """Return what astropy and Pillow make of the files."""
    files = Files(paths, case, "astropy" if case.kind == "fits" else "Pillow")
    pixels = functools.cache(lambda row: files[row][0].numpy())
    return lambda row, _: pixels(row)


def loader_ways(index: Index, case: Case, passes: int, **settings: Any) -> list[Way]:
    """Make the Loader's ways: for windows of photographs, also one with an MCU index."""
    ways = [loader_way("Loader", index, case, passes, **settings)]
    if case.kind == "jpeg" and (case.crop is not None or case.random_area is not None):
        from dali_pipelines import with_mcu_rows

        noted = with_mcu_rows(index)
        ways.insert(0, loader_way("Loader, MCU index", noted, case, passes, **settings))
    return ways


def loader_way(
    name: str, index: Index, case: Case, passes: int, *, point: Any = None, **settings: Any
) -> Way:
    """Make the way of this toolkit: `settings` are the Loader's."""
    from dali_pipelines import fits_pipeline, jpeg_pipeline

    normalise = case.normalise and case.dtype == "float32"
    return loader_of(
        name,
        fits_pipeline if case.kind == "fits" else jpeg_pipeline,
        index,
        passes,
        point=point,
        agreement=case.agreement(),
        batch_size=case.batch_size,
        crop=case.crop,
        window=case.window if case.crop else "center",
        resize_shorter=case.resize_shorter,
        random_area=case.random_area,
        resize=case.resize,
        flip=case.flip,
        mean=MEAN if normalise else None,
        std=STD if normalise else None,
        dtype=case.dtype,
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
    ledger: Ledger | None = None,
    prefetch: int | None = None,
    **settings: Any,
) -> Way:
    """Make a way of a Loader over any factory, on a GPU where there is one."""
    if ledger is not None:
        factory = functools.partial(counted, factory, ledger)
    # The queues of the readers and of the graph, by default of 2 at most, and one in the works.
    ahead = 2 * (prefetch or 2) + 1
    start = functools.partial(
        _start_loader, factory, index, passes, ahead, prefetch=prefetch, **settings
    )
    return Way(
        name=name, start=start, ahead=ahead, point=point, ours=True, ledger=ledger, **agreement
    )


@contextmanager
def _start_loader(
    factory: Callable[..., Any], index: Index, passes: int, ahead: int, **settings: Any
) -> Iterator[Run]:
    from dali_pipelines import Loader

    if settings.get("framework") == "jax":
        from dali_pipelines.frameworks.jax_sharding import own_devices

        settings["devices"] = own_devices()[:1]
    with Loader(factory, index, seed=SEED, **{"devices": devices(1), **settings}) as loader:
        yield lambda _: _batches(loader, ahead, passes * len(index))


def devices(num_shards: int) -> list[int | None]:
    """Return a GPU to each shard, or the CPU where there is none."""
    from dali_pipelines.runtime.devices import visible_gpus

    gpus = visible_gpus()
    return [shard % gpus if gpus else None for shard in range(num_shards)]


def _batches(loader: Loader, ahead: int, images: int) -> Iterator[Batch]:
    """Yield `ahead` batches, then some until there are so many images more."""
    epochs = itertools.chain.from_iterable(itertools.repeat(loader))
    for count, (batch,) in enumerate(epochs):
        rows = batch["row"].tolist()
        yield rows, batch[loader.pipelines[0].output_names[0]]
        images -= len(rows) if count >= ahead else 0
        if images <= 0:
            return


def data_loader_way(
    name: str,
    dataset: Any,
    rows: Sequence[int],
    *,
    batch_size: int,
    num_workers: int,
    **way: Any,
) -> Way:
    """Make the way of PyTorch's DataLoader over some rows, which are one epoch to it."""

    @contextmanager
    def start() -> Iterator[Run]:
        from torch.utils.data import DataLoader

        loader = DataLoader(
            dataset,
            batch_size=batch_size,
            sampler=list(rows),
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
            multiprocessing_context="forkserver" if num_workers else None,
        )
        yield lambda _: ((rows.tolist(), _first(images)) for images, rows in loader)

    return Way(name=name, start=start, **way)


def _first(images: Any) -> Any:
    """Return the images that are compared, where there are several of each row."""
    return images[0] if isinstance(images, list) else images


def files_way(
    paths: Sequence[str],
    case: Case,
    peer: str,
    passes: int,
    *,
    num_workers: int,
    ledger: Ledger | None = None,
    **way: Any,
) -> Way:
    """Make the way of a DataLoader that reads files by one of `PEERS`."""
    return data_loader_way(
        way.pop("name", f"DataLoader, {peer}"),
        Files(paths, case, peer, ledger or Ledger()),
        list(range(len(paths))) * passes,  # without a gap
        batch_size=case.batch_size,
        num_workers=num_workers,
        needs=(PEERS[peer].needs,),
        remedy=PEERS[peer].remedy,
        ledger=ledger,
        **case.agreement(),
        **way,
    )
