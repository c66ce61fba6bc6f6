"""Frames that look like AIA level 1: a drawn Sun, seen in a channel, with the noise of the camera.

SYNTHETIC. A scene is drawn once per process, turned and scaled to what the header of each frame
says, and given noise.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dali_pipelines.cli.samples import header as aia
from dali_pipelines.cli.samples.active_regions import draw_region, glow, loops

if TYPE_CHECKING:
    import numpy as np
    from astropy.io.fits import Header
    from numpy.typing import NDArray
    from PIL import Image

    Pixels = tuple[NDArray[np.intp], NDArray[np.intp]]  # rows, columns


@dataclass(frozen=True, slots=True)
class Look:
    """Appearance of the drawn Sun in a channel.

    94, 131 and 335 are some ten times brighter than the real ones, so that all files hold 5 to 7
    bits per pixel.
    """

    temperature_mk: float  # of the corona; sets how fast the light falls off above the limb
    level_dn: float  # quiet Sun at disk centre in the nominal exposure
    network: float  # contrast of the quiet Sun, as a power of the common texture
    active: float  # brightness of the active regions, in units of the quiet Sun
    loops: float  # brightness of the loops, in units of the quiet Sun


LOOKS = {
    94: Look(1.5, 75.0, 0.5, 5.0, 1.5),
    131: Look(0.7, 120.0, 0.8, 3.0, 2.5),
    171: Look(0.9, 190.0, 1.0, 2.0, 4.0),
    193: Look(1.4, 200.0, 1.1, 3.5, 2.0),
    211: Look(1.9, 150.0, 1.2, 5.0, 1.5),
    304: Look(0.5, 210.0, 1.3, 2.0, 0.4),
    335: Look(2.4, 130.0, 0.8, 6.0, 1.0),
}

# Rows made at a time: with whole frames, the page faults of the 67 MB arrays cost more than the
# arithmetic.
BAND_ROWS = 256

# The scene is drawn at half the resolution of a frame, 1 solar radius being 800 pixels.
SCENE_SIZE = 2048
SCENE_RADIUS = 800.0
TEXTURE_SIZE = 2560  # pixels for half a turn of the Sun: as fine as the scene is at disk centre


def frame_name(number: int) -> str:
    """Return the file name of frame `number`."""
    return f"aia_{aia.frame_time(number):%Y%m%dT%H%M%S}_{aia.frame_wavelength(number):04d}.fits"


def save_frame(path: Path, number: int) -> None:
    """Write a frame as JSOC does: an empty primary HDU, then RICE_1 with one row per tile."""
    from astropy.io import fits

    image, header = aia_frame(number)
    tiled = fits.CompImageHDU(
        image, header, compression_type="RICE_1", tile_shape=(1, aia.FRAME_SIZE)
    )
    fits.HDUList([fits.PrimaryHDU(), tiled]).writeto(path)


def aia_frame(number: int) -> tuple[NDArray[np.int16], Header]:
    """Draw frame `number`, which sets channel, time, pointing and noise.

    The image has the shape (4096, 4096), int16, in DN, axes (y, x), row 0 at the bottom of the
    picture, no missing pixels. The centre of the disk is on CRPIX, its radius is RSUN_OBS.
    """
    import numpy as np

    wavelength, pointing = aia.frame_wavelength(number), aia.frame_pointing(number)
    brightness = pointing["EXPTIME"] / aia.CHANNELS[wavelength].exposure_s
    random = np.random.default_rng([aia.SEED, number])
    image = np.empty((aia.FRAME_SIZE, aia.FRAME_SIZE), np.int16)
    for row in range(0, aia.FRAME_SIZE, BAND_ROWS):
        band = _scene_band(wavelength, pointing, row)
        band *= brightness
        _add_noise(band, wavelength, random)
        image[row : row + BAND_ROWS] = np.clip(np.rint(band), -64, aia.SATURATION_DN)
    return image, aia.frame_header(number, image)


def _add_noise(band: NDArray[np.float32], wavelength: int, random: np.random.Generator) -> None:
    """Add noise of the variance DN * (DN per photon) + (read noise)**2, as in SolarSoft.

    A photon of wavelength L angstrom has 12398 / L eV and frees an electron in silicon for each
    3.65 eV.
    """
    import numpy as np

    camera = aia.CHANNELS[wavelength].camera
    dn_per_photon = 12398.0 / wavelength / 3.65 / aia.GAIN[camera]
    deviation = np.sqrt(band * dn_per_photon + aia.READ_NOISE_DN[camera] ** 2)
    band += deviation * random.standard_normal(band.shape, np.float32)


def _scene_band(wavelength: int, pointing: dict[str, float], row: int) -> NDArray[np.float32]:
    """Return the noise-free frame from `row` on, shape (BAND_ROWS, 4096), float32, in DN.

    Maps each frame pixel to the scene with the matrix of CROTA2 (Thompson 2006, A&A 449, 791).
    Pillow measures both images from the corner of the first pixel, FITS from one pixel before its
    centre, hence the 0.5.
    """
    import numpy as np
    from PIL import Image

    scale = SCENE_RADIUS * pointing["CDELT1"] / pointing["RSUN_OBS"]  # scene pixels per frame pixel
    cos = scale * math.cos(math.radians(pointing["CROTA2"]))
    sin = scale * math.sin(math.radians(pointing["CROTA2"]))
    x, y = pointing["CRPIX1"] - 0.5, pointing["CRPIX2"] - 0.5 - row
    centre = SCENE_SIZE / 2
    matrix = (cos, -sin, centre - cos * x + sin * y, sin, cos, centre - sin * x - cos * y)
    band = _channel_scene(wavelength).transform(
        (aia.FRAME_SIZE, BAND_ROWS), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR
    )
    return np.array(band)


@functools.cache
def _channel_scene(wavelength: int) -> Image.Image:
    """Return the scene in one channel, 2048x2048 float, in DN at the nominal exposure."""
    import numpy as np
    from PIL import Image

    look, scene = LOOKS[wavelength], _scene()
    fraction = 0.12  # of the light at disk centre that comes from the extended corona
    disk = np.clip((1 - scene.radius) * SCENE_RADIUS + 0.5, 0, 1)
    corona = _corona(scene.radius, look.temperature_mk)
    quiet = np.exp(look.network * scene.network)
    quiet *= (1 - fraction) * disk + fraction * corona + 0.02
    bright = (look.active * scene.active) * (0.3 * disk + 0.7 * np.minimum(corona, 1))
    image = look.level_dn * (quiet + bright + look.loops * scene.loops)
    return Image.fromarray(np.minimum(image, aia.SATURATION_DN).astype(np.float32))


def _corona(radius: NDArray[np.float32], temperature_mk: float) -> NDArray[np.float32]:
    """Return the light of a hydrostatic corona at `radius` (solar radii), relative to disk centre.

    Optically thin light is the electron density squared, summed along the line of sight; the
    density falls by e in 47 Mm per MK (Aschwanden, Physics of the Solar Corona, chapter 3).
    It gives the bright limb.
    """
    import numpy as np

    scale_height = 47.0 * temperature_mk / 696.0
    ranges = (0, 0.9, 64), (0.9, 1.1, 400), (1.1, 2, 64)  # finest at the limb
    knots = np.concatenate([np.linspace(*each) for each in ranges])
    halves = np.where(knots < 1, 1, 2)  # beside the disk one also sees the half behind it
    start = np.sqrt(np.clip(1 - knots**2, 0, None))
    path = np.linspace(0, 1.5, 1500)
    height = np.hypot(knots[:, None], start[:, None] + path) - 1
    column = np.exp(-2 * height / scale_height).sum(axis=1) * halves
    return np.interp(radius, knots, column / column[0]).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Scene:
    """Maps of all channels; each field is a float32 array of shape (2048, 2048), axes (y, x)."""

    radius: NDArray[np.float32]  # distance from disk centre in solar radii
    network: NDArray[np.float32]  # logarithm of the quiet Sun, with the dark polar holes
    active: NDArray[np.float32]  # active regions, of order 1
    loops: NDArray[np.float32]  # coronal loops, of order 1


@functools.cache
def _scene() -> Scene:
    """Draw the scene, from its own seed and on a sphere: texture narrows towards the limb."""
    import numpy as np

    random = np.random.default_rng([aia.SEED, 0, 2])
    axis = np.arange(SCENE_SIZE, dtype=np.float32) - (SCENE_SIZE - 1) / 2
    axis /= SCENE_RADIUS
    y = axis[:, None]
    radius = np.hypot(axis, y)
    seen = _texture_pixels(axis, radius)
    coarse = _cloud(random, cells=(8, 16, 32, 64))[seen]
    fine = _cloud(random, cells=(64, 128, 256, 512, 1024))[seen]
    lanes = 0.9 - 1.2 * np.abs(fine)  # ridges: a net of bright lanes
    lanes *= np.where(radius < 1, np.float32(1), np.float32(0.3))
    latitude = np.arcsin(y / np.maximum(radius, 1))
    hole = 1 / (1 + np.exp((1.1 - np.abs(latitude) - 0.08 * coarse) / 0.03))
    network = (0.35 * coarse + 0.5 * lanes - 1.3 * hole - 0.3).astype(np.float32)

    regions = [draw_region(random) for _ in range(16)]
    light = np.maximum(_enlarge(glow(regions, axis[::4]), SCENE_SIZE), 0)
    active = light * np.exp(0.9 * lanes)
    return Scene(radius, network, active, loops(regions, random, SCENE_SIZE, SCENE_RADIUS))


def _texture_pixels(axis: NDArray[np.float32], radius: NDArray[np.float32]) -> Pixels:
    """Return the pixels of a texture that are seen at each point of the scene.

    Textures are drawn on the angle from disk centre, in all directions alike, so there is no pole
    to pinch them. Above the limb the sphere goes on as its own edge, which draws them out into
    radial streaks.
    """
    import numpy as np

    middle = (TEXTURE_SIZE - 1) / 2
    stretch = np.arcsin(np.minimum(radius, 1)) / radius * (TEXTURE_SIZE - 1) / np.pi
    rows, columns = axis[:, None] * stretch + middle, axis * stretch + middle
    return rows.astype(np.intp), columns.astype(np.intp)


def _cloud(random: np.random.Generator, cells: tuple[int, ...]) -> NDArray[np.float32]:
    """Return a texture: a sum of enlarged noise, the finer the weaker, standard deviation 1."""
    import numpy as np

    cloud = np.zeros((TEXTURE_SIZE, TEXTURE_SIZE), np.float32)
    for weight, cell in enumerate(cells, start=2):
        noise = random.standard_normal((cell, cell), np.float32)
        cloud += _enlarge(noise, TEXTURE_SIZE) / np.sqrt(weight)
    deviation = cloud.std()
    cloud -= cloud.mean()
    cloud /= deviation
    return cloud


def _enlarge(image: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    import numpy as np
    from PIL import Image

    return np.array(Image.fromarray(image).resize((size, size), Image.Resampling.BICUBIC))
