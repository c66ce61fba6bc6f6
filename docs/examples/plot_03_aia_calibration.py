"""
AIA: before and after calibration
=================================

Level 1 frames are tilted, off centre, and in counts (DN). ``aia_pipeline`` registers them,
divides by the exposure time, and stretches them for a network.
"""

# %%
# ``Stretch`` is the curve from DN/s to the input of a network. Here it is asinh, onto -1 to 1.

import matplotlib.pyplot as plt
import numpy as np

from dali_pipelines import Index, Loader, Stretch, aia_pipeline, fits_pipeline, fits_samples

STRETCH = Stretch.onto(-1, 1, kind="asinh", unit=2000, a=0.02, clip=(0, 1))


def first_image(factory, index, **settings):
    """Return the image of the first row."""
    with Loader(
        factory, index, batch_size=1, num_read_processes=1, devices="cpu", **settings
    ) as loader:
        (batch,) = loader
    return batch["image"][0, 0].numpy()


# %%
# The Index has one file of the channel 171. The first image is the frame as stored. The second is
# calibrated. The third is a random window of it, turned by up to 30 degrees. Rotation, zoom and
# window are part of the registration, so pixels are interpolated only once.


def draw(images):
    """Show images side by side."""
    figure, axes = plt.subplots(1, len(images), figsize=(11, 4), layout="constrained")
    for axis, (title, image) in zip(axes, images.items(), strict=True):
        low, high = np.percentile(image, (1, 99.7))
        shown = axis.imshow(image, cmap="afmhot", origin="lower", vmin=low, vmax=high)
        axis.set(title=title, xticks=[], yticks=[])
        figure.colorbar(shown, ax=axis, orientation="horizontal", shrink=0.8)


if __name__ == "__main__":
    files = sorted(fits_samples(num_frames=4).glob("*_0171.fits"))
    index = Index.from_paths(files)
    calibrated = {"size": 1024, "exposure": True, "stretch": STRETCH}
    draw(
        {
            "level 1, DN": first_image(fits_pipeline, index, resize=1024),
            "registered, stretched DN/s": first_image(aia_pipeline, index, **calibrated),
            "a window of it, turned": first_image(
                aia_pipeline, index, **calibrated, crop=384, window="random", rotate=30, seed=5
            ),
        }
    )
    plt.show()
