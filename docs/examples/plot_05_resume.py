"""
Resume on another number of GPUs
================================

Stop in the middle of an epoch on two shards, and continue with three. Every row comes exactly once.
"""

# %%
# The state of a Loader is small: seed, epoch, position, and a digest of the Index. It does not
# depend on batch size or shards, so it can be loaded with others. Here pipelines on the CPU
# represent GPUs.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from dali_pipelines import Index, Loader, npy_pipeline


def make_loader(index, shards, batch_size):
    """Make a Loader with one pipeline for each shard."""
    return Loader(
        npy_pipeline,
        index,
        batch_size=batch_size,
        num_read_processes=shards,
        devices=["cpu"] * shards,
    )


def deliver(loader, steps=None):
    """Take some steps; return (row, shard, step) for each sample."""
    delivered = []
    for step, batches in enumerate(loader):
        for shard, batch in enumerate(batches):
            delivered += [(row, shard, step) for row in batch["row"].tolist()]
        if step + 1 == steps:
            break
    return delivered


# %%
# Plot which shard delivered which row, before and after.


def draw(before, after):
    """Show rows by the order of their delivery, in the colour of their shard."""
    figure, axis = plt.subplots(figsize=(10, 3.2), layout="constrained")
    for name, samples, start, marker in (
        ("2 shards of 4", before, 0, "o"),
        ("3 shards of 5", after, len(before), "s"),
    ):
        rows, shards, _ = np.array(samples).T
        order = start + np.arange(len(rows))
        for shard in range(shards.max() + 1):
            mine = shards == shard
            label = f"{name}: shard {shard}"
            axis.scatter(order[mine], rows[mine], marker=marker, s=28, label=label)
    axis.axvline(len(before) - 0.5, color="gray", linestyle=":")
    axis.set(xlabel="sample of the epoch, in the order of delivery", ylabel="row of the Index")
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for number in range(60):
            np.save(Path(folder, f"{number:02}.npy"), np.zeros((8, 8), np.float32))
        index = Index.scan(folder)

        with make_loader(index, shards=2, batch_size=4) as loader:
            before = deliver(loader, steps=3)
            state = loader.state_dict()

        with make_loader(index, shards=3, batch_size=5) as loader:
            loader.load_state_dict(state)
            after = deliver(loader)

    print({**state, "digest": state["digest"][:12] + "..."})
    rows = [row for row, _, _ in before + after]
    assert sorted(rows) == list(range(60))
    draw(before, after)
    plt.show()
