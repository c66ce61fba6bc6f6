from __future__ import annotations

import pytest

from dali_pipelines import Index, memory, npy_pipeline
from dali_pipelines.memory import MemoryEstimate, estimate_memory

GIB = 2**30


def test_estimate_counts_every_batch_in_flight(npy_index: Index) -> None:
    options = {"batch_size": 4, "num_read_processes": 3}
    plain = npy_pipeline(npy_index, prefetch=2, **options)
    found = estimate_memory([plain, plain])
    frame = 6 * 8 * 4
    assert found.shared == 2 * (2 + 2) * 4 * frame
    assert found.images == 2 * 3 * 4 * frame
    worked_on = npy_pipeline(npy_index, prefetch=1, flip="h", resize=3, mean=1, **options)
    assert estimate_memory([worked_on]).images == (2 + 3) * 4 * 3 * 3 * 4


@pytest.mark.parametrize(
    ("shared", "images", "message"),
    [
        (9, 0, r"the readers need 9.0 GiB in /dev/shm, which has 8.0 GiB free: .* --batch_size"),
        (7, 12, r"needs about 20.0 GiB of memory \(7.0 GiB for .* and 16.0 GiB are free: use a "),
    ],
)
def test_what_cannot_fit_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, shared: int, images: int, message: str
) -> None:
    class Usage:
        free = 8 * GIB

    monkeypatch.setattr(memory.shutil, "disk_usage", lambda _: Usage)
    monkeypatch.setattr(memory, "free_memory", lambda: 16 * GIB)
    with pytest.raises(MemoryError, match=message):
        MemoryEstimate(shared * GIB, images * GIB, GIB).check()
    MemoryEstimate(7 * GIB, 7 * GIB, GIB).check()


def test_each_rank_of_a_machine_takes_as_much(npy_index: Index) -> None:
    pipelines = [npy_pipeline(npy_index, batch_size=4)]
    one, four = (estimate_memory(pipelines, ranks) for ranks in (1, 4))
    assert four.total == 4 * one.total > 0
    assert four.shared == 4 * one.shared > 0
