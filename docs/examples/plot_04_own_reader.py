"""
A Reader of your own
====================

Read a format of your own: 16-bit PGM files, of which only the rows of each window are read.
"""

# %%
# The Reader is a class in a module of its own, because reader processes import it:
#
# .. literalinclude:: ../examples/pgm_reader.py
#    :language: python
#
# ``reader_pipeline`` makes a pipeline from it. ``decode_array`` is the graph fragment for Readers
# that decode the image themselves. All features work with it, such as windows, flips, shards and
# resuming.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from pgm_reader import PgmReader

from dali_pipelines import Index, Loader, PipelineConfig, decode_array, reader_pipeline


def pgm_pipeline(index, **settings):
    """Make a pipeline of PGM files."""
    return reader_pipeline(index, PgmReader(), decode_array, PipelineConfig(**settings))


# %%
# Make some star fields, and damage one of the files.


def save_star_field(path, seed, size=256):
    """Write stars of many magnitudes, on a background with noise."""
    random = np.random.default_rng(seed)
    rows, columns = np.indices((size, size))
    field = np.full((size, size), 200.0)
    for flux in 3000 * random.pareto(1.5, 40):
        y, x = random.uniform(0, size, 2)
        field += flux * np.exp(-((rows - y) ** 2 + (columns - x) ** 2) / (2 * 1.5**2))
    counts = random.poisson(field).clip(0, 65535).astype(">u2")
    path.write_bytes(b"P5\n%d %d\n65535\n" % (size, size) + counts.tobytes())


# %%
# With ``bad_sample="skip"`` the damaged file is skipped, and the Loader says why.


def draw(batch):
    """Show the windows of a batch on a scale of magnitudes."""
    figure, axes = plt.subplots(1, len(batch["row"]), figsize=(10, 2.6), layout="constrained")
    for axis, image, row in zip(axes, batch["image"], batch["row"], strict=True):
        axis.imshow(image[0].log(), cmap="gray")
        axis.set(title=f"file {row}", xticks=[], yticks=[])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for number in range(6):
            save_star_field(Path(folder, f"{number}.pgm"), number)
        Path(folder, "3.pgm").write_bytes(b"P5\n256 256\n65535\nand then the disk was full")

        loader = Loader(
            pgm_pipeline,
            Index.scan(folder, suffixes=(".pgm",)),
            batch_size=6,
            num_read_processes=2,
            devices="cpu",
            crop=160,
            window="random",
            shuffle=False,
            bad_sample="skip",
        )
        with loader:
            (batch,) = loader
    for rejected in loader.stats.rejected.values():
        print(f"file {rejected.row}: {rejected.reason}")
    draw(batch)
    plt.show()
