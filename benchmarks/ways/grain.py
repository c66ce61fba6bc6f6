"""Photographs by grain, the loader of JAX's authors: worker processes and NumPy."""

# Worker processes import this file: what is heavy is imported in the functions.
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.measure.ledger import Ledger
from benchmarks.measure.race import Batch, Run, Way
from benchmarks.ways.peers import MEAN, PEERS, SEED, STD, Case, decoded

_AHEAD = 7
"""Batches of a worker that lie in its buffers when all rest: 4 to 7 were counted."""


@dataclass(frozen=True)
class _Sample:
    """Reads a row: an image of shape (channels, height, width)."""

    paths: Sequence[str]
    case: Case
    peer: str
    ledger: Ledger

    def __call__(self, row: int) -> dict[str, Any]:
        import numpy as np

        from readers.sampling.draws import Draws

        draws = Draws.of(SEED, 0, row)
        image = decoded(self.paths[row], self.case, self.peer, draws, self.ledger)
        with self.ledger.count("graph"):
            pixels = self.case.flipped(image, draws).transpose(2, 0, 1).astype(np.float32)
            if self.case.normalise:
                pixels -= MEAN
                pixels /= STD
        return {"row": row, "image": pixels}


def grain_way(
    paths: Sequence[str],
    case: Case,
    peer: str,
    passes: int,
    num_workers: int,
    ledger: Ledger,
    *,
    to_jax: bool,
) -> Way:
    """Make the way of grain's worker processes; batches may become arrays of JAX here."""
    images, ahead = passes * len(paths), _AHEAD * num_workers

    @contextmanager
    def start() -> Iterator[Run]:
        put: Callable[[Any], Any] = lambda images: images  # noqa: E731
        if to_jax:
            import jax

            put = jax.device_put
        sample = _Sample(paths, case, peer, ledger)
        with closing(_iterator(sample, case.batch_size, num_workers)) as found:
            batches = ((one["row"].tolist(), put(one["image"])) for one in found)

            def run(_: bool) -> Iterator[Batch]:
                return itertools.islice(batches, ahead + -(-images // case.batch_size))

            yield run

    return Way(
        name=f"grain, {peer}",
        start=start,
        ahead=ahead,
        needs=("grain", *["jax"] * to_jax, PEERS[peer].needs),
        ledger=ledger,
        **case.agreement(),
    )


def _iterator(sample: _Sample, batch_size: int, num_workers: int) -> Any:
    """Go through all files in order, over and over."""
    import grain
    from absl import flags

    if not flags.FLAGS.is_parsed():  # grain asks for flags of its own
        flags.FLAGS.mark_as_parsed()
    # A thread for each process, which has one core: with more they wait for each other.
    reading = grain.ReadOptions(num_threads=1, prefetch_buffer_size=batch_size)
    dataset = grain.MapDataset.source(range(len(sample.paths))).repeat().map(sample)
    batches = dataset.to_iter_dataset(reading).batch(batch_size)
    return iter(batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=num_workers)))
