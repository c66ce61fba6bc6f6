"""
Sharpen images of a weather satellite
=====================================

Images in netCDF4, packed and compressed like those of GOES: a network learns to enlarge them four
times, from pairs of a random window and its coarse copy.
"""

# %%
# First the data, in place of the product CMIP of GOES: clouds with sharp edges over a warm ground.
# Brightness temperatures are integers of 16 bits with a scale and an offset, in compressed chunks
# of 226x226.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
import xarray as xr
from scipy.ndimage import gaussian_filter
from torch import nn

from dali_pipelines import Index, Loader, chunked_pipeline

EDGE, FILES, CROP, FACTOR = 452, 40, 96, 4
PACKED = {
    "dtype": "int16",
    "_Unsigned": "true",
    "scale_factor": np.float32(0.05),
    "add_offset": np.float32(170),
    "_FillValue": np.int16(-1),
    "zlib": True,
    "shuffle": True,
    "chunksizes": (226, 226),
}


def write_files(folder):
    """Write a file for each time with xarray."""
    random = np.random.default_rng(0)
    for number in range(FILES):
        noise = random.normal(size=(3, EDGE, EDGE))
        height = sum(n * gaussian_filter(one, n) for n, one in zip((24, 8, 3), noise, strict=True))
        cloud = np.clip(4 * (height / height.std() - 0.4), 0, 1)
        texture = gaussian_filter(random.normal(size=(EDGE, EDGE)), 2)
        values = 290 - 60 * cloud * (1 + texture) + random.normal(0, 0.1, (EDGE, EDGE))
        image = xr.Dataset({"CMI": (("y", "x"), values.astype(np.float32))})
        image.attrs["time_coverage_start"] = f"2020-06-01T{number // 6:02}:{number % 6}0:00.0Z"
        image.to_netcdf(folder / f"{number:03}.nc", engine="h5netcdf", encoding={"CMI": PACKED})


# %%
# ``Index.scan_arrays`` reads where the chunks of each file are; each file is a row. A random window
# needs one to four chunks, and is delivered in kelvin.


def make_loader(index, **settings):
    """Make a Loader of brightness temperatures, scaled to about -1 to 1."""
    return Loader(
        chunked_pipeline,
        index,
        batch_size=8,
        num_read_processes=2,
        devices="cpu",
        variables=("CMI",),
        crop=CROP,
        mean=270,
        std=25,
        **settings,
    )


# %%
# The network corrects the usual enlargement: bicubic interpolation.


class Sharpener(nn.Module):
    """A network that enlarges images."""

    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(1, width, 5, padding=2), nn.GELU()),
            *(nn.Conv2d(width, width, 3, padding=1), nn.GELU()),
            nn.Conv2d(width, FACTOR**2, 3, padding=1),
            nn.PixelShuffle(FACTOR),
        )

    def forward(self, coarse):
        """Return images with more pixels, shape (batch, 1, height, width)."""
        return enlarged(coarse) + self.layers(coarse)


def enlarged(coarse):
    """Enlarge images by interpolation."""
    return nn.functional.interpolate(coarse, scale_factor=FACTOR, mode="bicubic")


def coarse_copy(image):
    """Return the means of squares of pixels."""
    return nn.functional.avg_pool2d(image, FACTOR)


def train(model, loader, epochs):
    """Train the network."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, epochs * len(loader))
    for _ in range(epochs):
        for (batch,) in loader:
            image = batch["image"]
            loss = nn.functional.mse_loss(model(coarse_copy(image)), image)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()


def errors(model, loader):
    """Return the root mean squared errors in K: of the network, and of interpolation."""
    found = []
    with torch.no_grad():
        for (batch,) in loader:
            image = batch["image"]
            coarse = coarse_copy(image)
            away = (nn.functional.mse_loss(one, image) for one in (model(coarse), enlarged(coarse)))
            found.append([one.item() for one in away])
    return 25 * np.sqrt(np.mean(found, axis=0))


def draw(model, batch):
    """Show a window in both resolutions, enlarged in both ways."""
    image = batch["image"][:1]
    coarse = coarse_copy(image)
    with torch.no_grad():
        shown = {"coarse": coarse, "bicubic": enlarged(coarse), "network": model(coarse)}
    figure, axes = plt.subplots(1, 4, figsize=(10, 2.7), layout="constrained")
    for axis, (title, one) in zip(axes, (shown | {"truth": image}).items(), strict=True):
        axis.imshow(one[0, 0], "gray_r", vmin=-2.5, vmax=1)
        axis.set(title=title, xticks=[], yticks=[])


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)  # on few cores, leave the others to DALI's threads
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        index = Index.scan_arrays(
            folder, variables=("CMI",), columns={"time": "time_coverage_start"}
        )
        train_rows, test_rows = index.select(range(32)), index.select(range(32, FILES))
        training = make_loader(train_rows, window="random", flip="hv")
        test = make_loader(test_rows, mode="eval")
        with training, test:
            train(model := Sharpener(), training, epochs=80)
            network, bicubic = errors(model, test)
            (batch,) = next(iter(test))
    print(f"error: {network:.2f} K, of bicubic interpolation {bicubic:.2f} K")
    assert network < 0.8 * bicubic
    draw(model, batch)
    plt.show()
