"""
Operators of your own, and where a sample lies
==============================================

Blur and brighten samples at random inside the graph, and mark the samples in the whole image.
"""

# %%
# A transform adds nodes to the graph. It gets an image (layout HWC, float32, physical values), and
# random numbers that depend only on the seed, the epoch and the row. The results of DALI's own
# random operators would depend on the batch size, so they are an error.

import matplotlib.pyplot as plt
import numpy as np
from astropy.io import fits
from nvidia.dali import fn

from dali_pipelines import Index, Loader, fits_pipeline, fits_samples

CROP = 1024


def telescope(image, chance, config):
    """Blur every other image, and change the exposure of all."""
    if config.mode == "eval":
        return image
    sigma = chance.uniform(2.0, 6.0) * chance.bernoulli(0.5) + 1e-3
    image = fn.gaussian_blur(image, sigma=sigma, window_size=37)
    return image * chance.uniform(0.5, 2.0)


# %%
# ``outputs`` adds the matrix from pixels of a sample to pixels of the file's image, with crop,
# rotation, flips and resize.


def corners(matrix, size):
    """Return x and y of the corners of a sample in the image, the first one twice."""
    x = np.array([-0.5, size - 0.5, size - 0.5, -0.5, -0.5])
    y = np.array([-0.5, -0.5, size - 0.5, size - 0.5, -0.5])
    return matrix @ np.stack((x, y, np.ones(5)))


# %%
# Six windows of one frame: six rows of the Index, each with its own random numbers.


def draw(path, batch):
    """Show the frame with the samples marked, and the samples."""
    with fits.open(path) as hdus:
        frame = next(hdu.data for hdu in hdus if hdu.header["NAXIS"])
    figure, axes = plt.subplot_mosaic("aabcd;aaefg", figsize=(10, 4), layout="constrained")
    whole, *cells = axes.values()
    style = {"origin": "lower", "cmap": "gray", "vmin": 0, "vmax": np.percentile(frame, 99)}
    whole.imshow(frame[::8, ::8], extent=(-0.5, 4095.5, -0.5, 4095.5), **style)
    for number, cell in enumerate(cells):
        image = batch["image"][number, 0].numpy()
        cell.imshow(image, **style)
        cell.set(title=f"sample {number}", xticks=[], yticks=[])
        outline = corners(batch["matrix"][number].numpy(), len(image))
        (line,) = whole.plot(*outline, linewidth=1.5)
        whole.annotate(str(number), outline[:, 0], color=line.get_color(), weight="bold", size=14)
    whole.set(title="numbers at pixel (0, 0)", xlim=(-0.5, 4095.5), ylim=(-0.5, 4095.5))
    return figure


if __name__ == "__main__":
    index = Index.scan(fits_samples()).select(np.zeros(6, int))
    with Loader(
        fits_pipeline,
        index,
        batch_size=6,
        num_read_processes=2,
        devices="cpu",
        seed=11,
        crop=CROP,
        window="random",
        rotate=45,
        flip="h",
        resize=128,
        transform=telescope,
        outputs=("matrix",),
    ) as loader:
        batch = next(iter(loader))
    draw(index.path(0), batch)
    plt.show()
