"""Photographs in shards of litData and MosaicML Streaming, decoded in workers of a DataLoader."""

# Worker processes import this file: what is heavy is imported in the functions.
from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.measure.ledger import Ledger
from benchmarks.measure.race import Run, Way
from benchmarks.ways.peers import PEERS, SEED, Case, sample_of

Jobs = Sequence[tuple[int, str]]
"""Rows and paths."""


def pack_shards(paths: Sequence[str], passes: int, folder: Path) -> None:
    """Write shards of each library that is installed, into a folder that is named after it.

    The files are written several times, because an epoch of few batches would mostly start workers.
    """
    jobs = [*enumerate(paths)] * passes
    for module, pack in {"litdata": _pack_litdata, "streaming": _pack_mosaicml}.items():
        if find_spec(module) is not None:
            pack(jobs, folder / module)


def _packed(job: tuple[int, str]) -> dict[str, Any]:
    row, path = job
    return {"row": row, "jpg": Path(path).read_bytes()}


def _pack_litdata(jobs: Jobs, folder: Path) -> None:
    import litdata

    litdata.optimize(
        fn=_packed,
        inputs=list(jobs),
        output_dir=str(folder),
        chunk_bytes="64MB",
        num_workers=1,
        verbose=False,
    )


def _pack_mosaicml(jobs: Jobs, folder: Path) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=str(folder), columns={"row": "int", "jpg": "bytes"}) as writer:
        for job in jobs:
            writer.write(_packed(job))


def streaming_ways(
    folder: Path, case: Case, peer: str, num_workers: int, ledger: Ledger
) -> list[Way]:
    """Make the ways of both libraries; `folder` is that of `pack_shards`."""

    def way(name: str, module: str, loader_of: Callable[..., Any]) -> Way:
        @contextmanager
        def start() -> Iterator[Run]:
            loader = loader_of(
                str(folder / module),
                case.batch_size,
                num_workers=num_workers,
                persistent_workers=num_workers > 0,
                multiprocessing_context="forkserver" if num_workers else None,
                collate_fn=functools.partial(_decoded, case, peer, ledger),
            )
            yield lambda _: ((rows.tolist(), images) for images, rows in loader)

        return Way(
            name=f"{name}, {peer}",
            start=start,
            needs=(module, PEERS[peer].needs),
            remedy=PEERS[peer].remedy,
            ledger=ledger,
            **case.agreement(),
        )

    return [
        way("litData", "litdata", _litdata),
        way("MosaicML Streaming", "streaming", _mosaicml),
    ]


def _litdata(folder: str, batch_size: int, **loader: Any) -> Any:
    from litdata import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(folder, shuffle=True, seed=SEED)
    return StreamingDataLoader(dataset, batch_size=batch_size, **loader)


def _mosaicml(folder: str, batch_size: int, **loader: Any) -> Any:
    from streaming import StreamingDataset
    from torch.utils.data import DataLoader

    dataset = StreamingDataset(local=folder, shuffle=True, shuffle_seed=SEED, batch_size=batch_size)
    return DataLoader(dataset, batch_size=batch_size, **loader)


def _decoded(case: Case, peer: str, ledger: Ledger, stored: list[dict[str, Any]]) -> Any:
    """Decode and collate a batch, in a worker."""
    from torch.utils.data import default_collate

    rows = [int(one["row"]) for one in stored]
    images = [
        sample_of(row, one["jpg"], case, peer, ledger)
        for row, one in zip(rows, stored, strict=True)
    ]
    return default_collate([*zip(images, rows, strict=True)])
