"""
Random windows of FITS images
=============================

Read random 512x512 windows of 4096x4096 frames, and look at them as a network will see them.
"""

# %%
# The sample frames look like AIA level 1: 4096x4096 integers, compressed with RICE_1. Only the
# tiles that a window touches are read and decoded.

import matplotlib.pyplot as plt

from dali_pipelines import Index, Loader, fits_pipeline
from dali_pipelines.cli.samples.sets import fits_samples


def draw(batch):
    """Show the windows of a batch, each with the number of its file."""
    figure, axes = plt.subplots(2, 4, figsize=(10, 5.4), layout="constrained")
    for axis, image, row in zip(axes.flat, batch["image"], batch["row"], strict=True):
        brightest = float(image.quantile(0.999))
        axis.imshow(image[0].cpu(), cmap="afmhot", origin="lower", vmin=0, vmax=brightest)
        axis.set(title=f"file {row}", xticks=[], yticks=[])


# %%
# ``mean`` and ``std`` bring the values near unit size. Window and flips of a row follow from
# (seed, epoch, row) alone: build this page again, and the picture is the same. Here the four files
# come in two epochs, each time with other windows.

if __name__ == "__main__":
    loader = Loader(
        fits_pipeline,
        Index.scan(fits_samples(num_frames=4)),
        batch_size=4,
        num_read_processes=2,
        devices=[None],  # the CPU; leave it out to use your GPUs
        crop=512,
        window="random",
        flip="hv",
        mean=0,
        std=500,
        seed=7,
    )
    with loader:
        ((first,),) = loader
        ((second,),) = loader
    draw({name: [*first[name], *second[name]] for name in ("image", "row")})
    plt.show()
