"""
Forecast the weather from Zarr
==============================

Fields of temperature and wind as Zarr, stored like ERA5: a network learns the temperature six hours
later. Samples are pairs of times in random windows, read chunk by chunk.
"""

# %%
# First the data, in place of ERA5: a hundred days of 6-hourly fields on a small globe. Winds, which
# change from day to day, carry warm and cold air along. Each chunk is one time, as in the stores of
# ARCO-ERA5 and WeatherBench 2.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
import xarray as xr
from scipy.ndimage import gaussian_filter, map_coordinates
from torch import nn

from dali_pipelines import Index, Loader, Stretch, TimeOrder, chunked_pipeline

LATITUDES, LONGITUDES, TIMES = 64, 128, 400
VARIABLES = ("t2m", "u10", "v10")
CROP = 48


def smooth(random, sigma):
    """Return noise without small structures, of standard deviation 1."""
    field = gaussian_filter(random.normal(size=(LATITUDES, LONGITUDES)), sigma, mode="wrap")
    return field / field.std()


def write_store(path):
    """Write the store with xarray."""
    random = np.random.default_rng(0)
    y, x = np.mgrid[:LATITUDES, :LONGITUDES].astype(float)
    air, u, v = (smooth(random, sigma) for sigma in (3, 12, 12))
    fields = {name: [] for name in VARIABLES}
    for _ in range(TIMES):
        u, v = (0.9 * wind + 0.4 * smooth(random, 12) for wind in (u, v))
        eastward = 1.5 + u  # grid cells in six hours
        climate = 15 * np.sin(np.pi * y / LATITUDES)
        for name, field in zip(
            VARIABLES, (265 + climate + 5 * air, 5 * eastward, 5 * v), strict=True
        ):
            fields[name].append(field.astype(np.float32))
        air = map_coordinates(air, (y - v, x - eastward), order=3, mode="grid-wrap")
        air = 0.99 * air + 0.05 * smooth(random, 3)
    axes = ("time", "latitude", "longitude")
    times = np.datetime64("2020-01-01", "ns") + np.arange(TIMES) * np.timedelta64(6, "h")
    dataset = xr.Dataset({name: (axes, np.stack(fields[name])) for name in VARIABLES})
    chunks = {name: {"chunks": (1, LATITUDES, LONGITUDES)} for name in VARIABLES}
    dataset.assign_coords(time=times).to_zarr(path, zarr_format=2, encoding=chunks)


# %%
# ``Index.from_zarr`` makes a row for each time. ``group`` makes pairs of them: a sample has shape
# (2, 3, height, width), times and variables. Each variable is brought near 0 by its own mean and
# standard deviation. The last fifth of the days is for validation.


def make_loaders(index):
    """Return a Loader for training, and one for validation."""
    pairs = index.group(time="time", offsets=("0h", "6h"), tolerance="1min")
    parts = pairs.split({"train": 0.8, "val": 0.2}, by=TimeOrder("time", gap="7h"))
    settings = {
        "batch_size": 8,
        "num_read_processes": 2,
        "devices": "cpu",
        "variables": VARIABLES,
        "stretch": {
            "t2m": Stretch(mean=275, std=7),
            "u10": Stretch(mean=7, std=5),
            "v10": Stretch(std=5),
        },
    }
    random = {"crop": CROP, "window": "random", "tail": "drop"}
    training = Loader(chunked_pipeline, parts["train"], **random, **settings)
    return training, Loader(chunked_pipeline, parts["val"], mode="eval", **settings)


# %%
# The network sees temperature and wind, and forecasts how the temperature changes. The baseline is
# persistence: no change.


class Forecaster(nn.Module):
    """A network that maps the fields of one time to the temperature of the next."""

    def __init__(self, width=24):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(len(VARIABLES), width, 5, padding=2), nn.GELU()),
            *(nn.Conv2d(width, width, 5, padding=2), nn.GELU()),
            nn.Conv2d(width, 1, 5, padding=2),
        )

    def forward(self, fields):
        """Return the temperature, shape (batch, 1, height, width)."""
        return fields[:, :1] + self.layers(fields)


def train(model, loader, epochs):
    """Train; return the loss of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, epochs * len(loader))
    losses = []
    for _ in range(epochs):
        for batch in loader:
            fields = batch["image"]
            loss = nn.functional.mse_loss(model(fields[:, 0]), fields[:, 1, :1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
    return losses


def errors(model, loader):
    """Return the root mean squared errors in K: of the forecast, and of persistence."""
    found, sizes = [], []
    with torch.no_grad():
        for batch in loader:
            fields = batch["image"]
            forecasts = model(fields[:, 0]), fields[:, 0, :1]
            away = [nn.functional.mse_loss(one, fields[:, 1, :1]).item() for one in forecasts]
            found.append(away)
            sizes.append(len(fields))  # the last batch may be short
    return 7 * np.sqrt(np.average(found, axis=0, weights=sizes))


def draw(model, batch, losses):
    """Show how the temperature changed, and how it was forecast to change."""
    fields = batch["image"][:1]
    with torch.no_grad():
        forecast = model(fields[:, 0])
    now = fields[:, 0, :1]
    images = {
        "temperature": now,
        "change in 6 hours": fields[:, 1, :1] - now,
        "its forecast": forecast - now,
    }
    figure = plt.figure(figsize=(10, 2.2), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[4, 1.3])
    for axis, (title, image) in zip(left.subplots(1, 3), images.items(), strict=True):
        is_first = title == "temperature"
        limit = 2 if is_first else 0.6
        axis.imshow(image[0, 0], "RdYlBu_r" if is_first else "RdBu_r", vmin=-limit, vmax=limit)
        axis.set_title(title, fontsize=8)
        axis.set(xticks=[], yticks=[])
    right.subplots().semilogy(losses)
    right.axes[0].set(xlabel="step", ylabel="loss")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)  # on few cores, leave the others to DALI's threads
    with tempfile.TemporaryDirectory() as folder:
        write_store(path := Path(folder) / "weather.zarr")
        training, validation = make_loaders(Index.from_zarr(path, variables=VARIABLES))
        with training, validation:
            losses = train(model := Forecaster(), training, epochs=8)
            forecast, persistence = errors(model, validation)
            batch = next(iter(validation))
    print(f"error: {forecast:.2f} K, of persistence {persistence:.2f} K")
    assert forecast < 0.6 * persistence
    draw(model, batch, losses)
    plt.show()
