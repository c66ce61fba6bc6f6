"""
Random windows of FITS images
=============================

Read random 512x512 windows of 4096x4096 frames, and plot them as a network will see them.
"""

# %%
# The sample frames are like AIA level 1: 4096x4096 integers, compressed with RICE_1. Only the
# tiles that a window touches are read and decoded.

import matplotlib.pyplot as plt

from dali_pipelines import Index, Loader, fits_pipeline, fits_samples


def draw(batch):
    """Show the windows of a batch, each with the number of its file."""
    figure, axes = plt.subplots(2, 4, figsize=(10, 5.4), layout="constrained")
    for axis, image, row in zip(axes.flat, batch["image"], batch["row"], strict=True):
        brightest = float(image.quantile(0.999))
        axis.imshow(image[0].cpu(), cmap="afmhot", origin="lower", vmin=0, vmax=brightest)
        axis.set(title=f"file {row}", xticks=[], yticks=[])


# %%
# ``mean`` and ``std`` scale the values roughly to unit size. Window and flips of a row depend only
# on (seed, epoch, row), so the picture is the same each time this page is built. Here the four
# files come in two epochs, each time with other windows.

if __name__ == "__main__":
    loader = Loader(
        fits_pipeline,
        Index.scan(fits_samples(num_frames=4)),
        batch_size=4,
        num_read_processes=2,
        devices="cpu",  # the CPU; leave it out to use your GPUs
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
