"""Frames that look like AIA level 1: a drawn Sun, seen in a channel, with the noise of the camera.

SYNTHETIC. A scene is drawn once per process, turned and scaled as in the header of each frame, and
noise is added.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from astropy.io.fits import Header
    from numpy.typing import NDArray
    from PIL import Image

SEED = 20150101
FRAME_SIZE = 4096
SATURATION_DN = 16383  # the camera has 14 bits
FIRST_TIME = datetime(2015, 1, 1)  # UTC, as in FITS time keywords
CADENCE_S = 12
RSUN_REF_M = 696_000_000.0
OBSERVER_SPEED_M_S = 500.0

# Every 16th frame has a flag in QUALITY, alternately bit 17, image stabilisation off, and bit 12,
# off point (JSOC, AIA/SDO FITS Keywords).
FLAGGED_EVERY = 16
QUALITY_FLAGS = (1 << 17, 1 << 12)

# Number of cards in place of the housekeeping of a real file, so that headers are as long.
NUM_STAND_INS = 120

# By camera: electrons per DN, and read noise in DN. SolarSoft's aia_bp_estimate_error, after
# Boerner et al. (2012), Solar Physics 275, 41.
GAIN = {1: 17.6, 2: 18.3, 3: 17.7, 4: 18.3}
READ_NOISE_DN = {1: 1.18, 2: 1.20, 3: 1.15, 4: 1.14}

# The scene is drawn at half the resolution of a frame.
SCENE_SIZE = 2048
SCENE_RADIUS = 800.0  # of the Sun, in pixels
TEXTURE_SIZE = 2560  # pixels for half a turn of the Sun: as fine as the scene is at disk centre
NUM_REGIONS = 16
LOOPS_OF_A_REGION = 45


@dataclass(frozen=True, slots=True)
class Channel:
    """An AIA channel: its observation, and the looks of the drawn Sun in it."""

    camera: int  # number of telescope and CCD
    exposure_s: float  # nominal
    scale_arcsec: float  # of a pixel
    temperature_mk: float  # of the corona; determines how fast the light falls off above the limb
    level_dn: float  # quiet Sun at disk centre in the nominal exposure
    network: float  # contrast of the quiet Sun, as a power of the common texture
    active: float  # brightness of the active regions, in units of the quiet Sun
    loops: float  # brightness of the loops, in units of the quiet Sun


# By wavelength in angstrom. 94, 131 and 335 are some ten times brighter than the real ones, so that
# all files hold 5 to 7 bits per pixel.
CHANNELS = {
    94: Channel(4, 2.9, 0.600109, 1.5, 75.0, 0.5, 5.0, 1.5),
    131: Channel(1, 2.9, 0.600698, 0.7, 120.0, 0.8, 3.0, 2.5),
    171: Channel(3, 2.0, 0.599489, 0.9, 190.0, 1.0, 2.0, 4.0),
    193: Channel(2, 2.0, 0.600714, 1.4, 200.0, 1.1, 3.5, 2.0),
    211: Channel(2, 2.9, 0.600758, 1.9, 150.0, 1.2, 5.0, 1.5),
    304: Channel(4, 2.9, 0.600165, 0.5, 210.0, 1.3, 2.0, 0.4),
    335: Channel(1, 2.9, 0.600737, 2.4, 130.0, 0.8, 6.0, 1.0),
}


def frame_name(number: int) -> str:
    """Return the file name of frame `number`."""
    return f"aia_{_time(number):%Y%m%dT%H%M%S}_{_wavelength(number):04d}.fits"


def save_frame(path: Path, number: int) -> None:
    """Write a frame as JSOC does: an empty primary HDU, then RICE_1 with one row per tile."""
    from astropy.io import fits

    header = frame_header(number)
    image = _with_noise(scene_in_frame(header), header, number)
    header.extend((key, value, "of all pixels") for key, value in statistics(image).items())
    tile = (1, FRAME_SIZE)
    tiled = fits.CompImageHDU(image, header, compression_type="RICE_1", tile_shape=tile)
    fits.HDUList([fits.PrimaryHDU(), tiled]).writeto(path)


# ---- The header --------------------------------------------------------------------------------


def _wavelength(number: int) -> int:
    """Return the wavelength of a frame in angstrom: the channels take turns."""
    return list(CHANNELS)[number % len(CHANNELS)]


def _time(number: int) -> datetime:
    return FIRST_TIME + timedelta(seconds=CADENCE_S * number)


def frame_header(number: int) -> Header:
    """Return the cards of a JSOC level 1 file, except statistics; a comment says SYNTHETIC.

    The observer is the Earth at the beginning of 2015, to about a degree: the Carrington rotation
    is from Meeus, Astronomical Algorithms, chapter 29, other angles are for 1 January. The world
    coordinates are helioprojective, with the centre of the Sun at (0, 0).
    """
    import numpy as np
    from astropy.io.fits import Header

    random = np.random.default_rng([SEED, number, 1])
    wavelength, time = _wavelength(number), _time(number)
    channel = CHANNELS[wavelength]
    scale = channel.scale_arcsec
    exposure_s = round(channel.exposure_s * random.uniform(0.95, 1.0), 6)
    start = time + timedelta(seconds=0.34)
    x, y = (round(2048.5 + random.uniform(-6, 6), 6) for _ in range(2))
    roll = round(0.02 + 0.01 * random.standard_normal(), 9)
    distance = 1.471e11 + OBSERVER_SPEED_M_S * CADENCE_S * number
    rsun_arcsec = math.degrees(math.asin(RSUN_REF_M / distance)) * 3600
    rotation = (2457023.5 + number * CADENCE_S / 86400 - 2398140.2270) / 27.2752316
    ecliptic_longitude = math.radians(100.1)
    flag = QUALITY_FLAGS[number // FLAGGED_EVERY % len(QUALITY_FLAGS)]
    is_flagged = (number + 1) % FLAGGED_EVERY == 0
    cards: list[tuple[str, str | float, str]] = [
        ("T_REC", _iso(time), "[ISO] slotted observation time"),
        ("WAVELNTH", wavelength, "[angstrom] wavelength"),
        ("WAVEUNIT", "angstrom", ""),
        ("WAVE_STR", f"{wavelength}_THIN", "wavelength and filter position"),
        ("FSN", 86_000_000 + number, "filtergram sequence number"),
        ("EXPTIME", exposure_s, "[s] exposure duration"),
        ("QUALITY", flag if is_flagged else 0, "level 1 quality word"),
        ("LVL_NUM", 1.0, "data level"),
        ("ORIGIN", "SYNTHETIC", "dali_pipelines.cli.samples"),
        ("TELESCOP", "SDO/AIA", ""),
        ("INSTRUME", f"AIA_{channel.camera}", ""),
        ("CAMERA", channel.camera, ""),
        ("DATE-OBS", _iso(start), "[ISO] start of the exposure"),
        ("T_OBS", _iso(start + timedelta(seconds=exposure_s / 2)), "[ISO] middle of the exposure"),
        ("IMG_TYPE", "LIGHT", "LIGHT or DARK"),
        ("PERCENTD", 100.0, "[%] pixels that are not missing"),
        ("NSPIKES", 0, "pixels hit by cosmic rays"),
        ("PIXLUNIT", "DN", ""),
        ("DN_GAIN", GAIN[channel.camera], "electrons per DN"),
        ("CTYPE1", "HPLN-TAN", ""),
        ("CUNIT1", "arcsec", ""),
        ("CRVAL1", 0.0, "[arcsec]"),
        ("CDELT1", scale, "[arcsec/pixel] image scale along x"),
        ("CRPIX1", x, "[pixel] Sun centre, the first pixel is 1"),
        ("CTYPE2", "HPLT-TAN", ""),
        ("CUNIT2", "arcsec", ""),
        ("CRVAL2", 0.0, "[arcsec]"),
        ("CDELT2", scale, "[arcsec/pixel] image scale along y"),
        ("CRPIX2", y, "[pixel] Sun centre, the first pixel is 1"),
        ("CROTA2", roll, "[deg] INST_ROT + SAT_ROT"),
        ("R_SUN", rsun_arcsec / scale, "[pixel] radius of the Sun"),
        ("INST_ROT", roll, "[deg] rotation of the CCD"),
        ("SAT_ROT", 0.0, "[deg] rotation of the spacecraft"),
        ("IMSCL_MP", scale, "[arcsec/pixel] image scale"),
        ("X0_MP", x - 1, "[pixel] Sun centre, the first pixel is 0"),
        ("Y0_MP", y - 1, "[pixel] Sun centre, the first pixel is 0"),
        ("DSUN_OBS", distance, "[m] distance to Sun centre"),
        ("RSUN_REF", RSUN_REF_M, "[m] reference radius of the Sun"),
        ("RSUN_OBS", rsun_arcsec, "[arcsec] apparent radius of the Sun"),
        ("HAEX_OBS", distance * math.cos(ecliptic_longitude), "[m] heliocentric ecliptic x"),
        ("HAEY_OBS", distance * math.sin(ecliptic_longitude), "[m] heliocentric ecliptic y"),
        ("HAEZ_OBS", 0.0, "[m] heliocentric ecliptic z"),
        ("OBS_VR", OBSERVER_SPEED_M_S, "[m/s] speed away from the Sun"),
        ("CRLN_OBS", 360 * (1 - rotation % 1), "[deg] Carrington longitude"),
        ("CRLT_OBS", -2.98, "[deg] Carrington latitude"),
        ("CAR_ROT", int(rotation), "Carrington rotation"),
        ("HGLN_OBS", 0.0, "[deg] Stonyhurst longitude"),
        ("HGLT_OBS", -2.98, "[deg] Stonyhurst latitude"),
        ("BLANK", -32768, "value of missing pixels"),
        ("COMMENT", "SYNTHETIC frame made by dali-pipelines, not an observation", ""),
        *((f"HK_{n:03d}", n, "stands in for housekeeping") for n in range(NUM_STAND_INS)),
    ]
    return Header(cards)


def _iso(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds")


def statistics(image: NDArray[np.int16]) -> dict[str, float]:
    """Return the keywords DATA... and NSATPIX, in DN, from the histogram of the int16."""
    import numpy as np

    counts = np.roll(np.bincount(image.view(np.uint16).ravel(), minlength=65536), 32768)
    values = np.arange(-32768, 32768)
    mean = float((counts * values).sum() / image.size)
    variance = float((counts * (values - mean) ** 2).sum() / image.size)
    percents = (1, 10, 25, 50, 75, 90, 95, 98, 99)
    ranks = np.array(percents) * image.size / 100
    quantiles = dict(zip(percents, values[np.searchsorted(counts.cumsum(), ranks)], strict=True))
    median = quantiles.pop(50)
    return {
        "DATAMIN": int(values[counts > 0][0]),
        "DATAMAX": int(values[counts > 0][-1]),
        "DATAMEAN": round(mean, 6),
        "DATARMS": round(math.sqrt(variance), 6),
        "DATAMEDN": int(median),
        "NSATPIX": int(counts[values >= SATURATION_DN].sum()),
        **{f"DATAP{percent:02d}": int(value) for percent, value in quantiles.items()},
    }


# ---- The pixels --------------------------------------------------------------------------------


def scene_in_frame(header: Mapping[str, float]) -> NDArray[np.float32]:
    """Return the scene with the geometry of a header, without noise.

    The image has the shape (4096, 4096), in DN at the nominal exposure, row 0 at the bottom of the
    picture: the centre of the Sun is on CRPIX, its radius is RSUN_OBS, and it is turned by CROTA2
    (Thompson 2006, A&A 449, 791). Pillow measures both images from the corner of the first pixel,
    FITS from one pixel before its centre, hence the 0.5.
    """
    import numpy as np
    from PIL import Image

    scale = SCENE_RADIUS * header["CDELT1"] / header["RSUN_OBS"]  # scene pixels per frame pixel
    cos = scale * math.cos(math.radians(header["CROTA2"]))
    sin = scale * math.sin(math.radians(header["CROTA2"]))
    x, y = header["CRPIX1"] - 0.5, header["CRPIX2"] - 0.5
    centre = SCENE_SIZE / 2
    matrix = (cos, -sin, centre - cos * x + sin * y, sin, cos, centre - sin * x - cos * y)
    frame = _channel_scene(int(header["WAVELNTH"])).transform(
        (FRAME_SIZE, FRAME_SIZE), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR
    )
    return np.array(frame)


def _with_noise(
    image: NDArray[np.float32], header: Mapping[str, float], number: int
) -> NDArray[np.int16]:
    """Expose, and add noise of the variance DN * (DN per photon) + (read noise)**2, like SolarSoft.

    A photon of wavelength L angstrom has 12398 / L eV and frees an electron in silicon for each
    3.65 eV.
    """
    import numpy as np

    wavelength, camera = int(header["WAVELNTH"]), int(header["CAMERA"])
    random = np.random.default_rng([SEED, number])
    dn_per_photon = 12398.0 / wavelength / 3.65 / GAIN[camera]
    image *= header["EXPTIME"] / CHANNELS[wavelength].exposure_s
    for rows in np.array_split(image, 16):  # new pages for whole frames would take longer
        deviation = np.sqrt(rows * dn_per_photon + READ_NOISE_DN[camera] ** 2)
        rows += deviation * random.standard_normal(rows.shape, np.float32)
    np.rint(image, out=image)
    return image.clip(-64, SATURATION_DN, out=image).astype(np.int16)


@functools.cache
def _channel_scene(wavelength: int) -> Image.Image:
    """Return the scene in one channel, 2048x2048 float, in DN at the nominal exposure."""
    import numpy as np
    from PIL import Image

    channel = CHANNELS[wavelength]
    radius, network, active, loops = _scene()
    fraction = 0.12  # of the light at disk centre that comes from the extended corona
    disk = np.clip((1 - radius) * SCENE_RADIUS + 0.5, 0, 1)
    corona = _corona(radius, channel.temperature_mk)
    quiet = np.exp(channel.network * network)
    quiet *= (1 - fraction) * disk + fraction * corona + 0.02
    bright = channel.active * active * (0.3 * disk + 0.7 * np.minimum(corona, 1))
    image = channel.level_dn * (quiet + bright + channel.loops * loops)
    return Image.fromarray(np.minimum(image, SATURATION_DN).astype(np.float32))


def _corona(radius: NDArray[np.float32], temperature_mk: float) -> NDArray[np.float32]:
    """Return the light of a hydrostatic corona at `radius` (solar radii), relative to disk centre.

    Optically thin light is the electron density squared, summed along the line of sight; the
    density falls by e in 47 Mm per MK (Aschwanden, Physics of the Solar Corona, chapter 3).
    It gives the bright limb.
    """
    import numpy as np

    scale_height = 47.0 * temperature_mk / 696.0
    knots, path = np.linspace(0, 2, 1601), np.linspace(0, 1.5, 1500)
    surface = np.sqrt(np.maximum(1 - knots**2, 0))
    height = np.hypot(knots[:, None], surface[:, None] + path) - 1
    light = np.exp(-2 * height / scale_height).sum(axis=1)
    light *= np.where(knots < 1, 1, 2)  # beside the disk both halves are visible
    return np.interp(radius, knots, light / light[0]).astype(np.float32)


@functools.cache
def _scene() -> tuple[NDArray[np.float32], ...]:
    """Draw the maps of all channels, from their own seed: shape (2048, 2048), axes (y, x).

    Returns
    -------
    radius
        Distance from disk centre in solar radii.
    network
        Logarithm of the quiet Sun, with the dark polar holes.
    active, loops
        Active regions, and the coronal loops above them, of order 1.
    """
    import numpy as np

    random = np.random.default_rng([SEED, 0, 5])
    x = (np.arange(SCENE_SIZE, dtype=np.float32) - (SCENE_SIZE - 1) / 2) / SCENE_RADIUS
    y = x[:, None]
    radius = np.hypot(x, y)
    # Textures are functions of the angle from disk centre, alike in all directions, so no pole
    # distorts them. Above the limb the edge of the sphere continues, and draws radial streaks.
    stretch = np.arcsin(np.minimum(radius, 1)) / radius * 2 / np.pi
    rows, columns = (
        ((axis * stretch + 1) / 2 * (TEXTURE_SIZE - 1)).astype(np.intp) for axis in (y, x)
    )
    coarse = _cloud(random, cells=(8, 16, 32, 64))[rows, columns]
    fine = _cloud(random, cells=(64, 128, 256, 512, 1024))[rows, columns]
    lanes = (0.9 - 1.2 * np.abs(fine)) * np.where(radius < 1, 1, 0.3)  # ridges: a bright net
    latitude = np.arcsin(y / np.maximum(radius, 1))
    hole = 1 / (1 + np.exp((1.1 - np.abs(latitude) - 0.08 * coarse) / 0.03))
    network = 0.35 * coarse + 0.5 * lanes - 1.3 * hole - 0.3

    glow, loops = _active_regions(random, x)
    active = glow * np.exp(0.9 * lanes)
    return radius, network.astype(np.float32), active.astype(np.float32), loops


def _cloud(random: np.random.Generator, cells: tuple[int, ...]) -> NDArray[np.float32]:
    """Return a texture: a sum of enlarged noise, weaker if finer, with standard deviation 1."""
    import numpy as np

    cloud = np.zeros((TEXTURE_SIZE, TEXTURE_SIZE), np.float32)
    for weight, cell in enumerate(cells, start=2):
        noise = random.standard_normal((cell, cell), np.float32)
        cloud += _enlarged(noise, TEXTURE_SIZE) / np.sqrt(weight)
    return (cloud - cloud.mean()) / cloud.std()


def _active_regions(
    random: np.random.Generator, axis: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the glow of active regions, and the loops above them, at `axis` x `axis`.

    Regions are in the two activity belts. Loops are thin half circles, seen in projection.
    """
    import numpy as np

    latitudes = np.radians(random.uniform(8, 28, NUM_REGIONS)) * random.choice([-1, 1], NUM_REGIONS)
    longitudes = np.radians(random.uniform(-88, 88, NUM_REGIONS))
    across = np.cos(latitudes)
    # Unit vectors (x, y, z) from the centre of the Sun, z towards us.
    positions = np.stack(
        (across * np.sin(longitudes), np.sin(latitudes), across * np.cos(longitudes)), axis=-1
    )
    sizes = random.uniform(0.035, 0.1, NUM_REGIONS)  # in solar radii
    strengths = random.lognormal(0, 0.5, NUM_REGIONS)

    x, y = axis[::4], axis[::4, None]
    z = np.sqrt(np.maximum(1 - x**2 - y**2, 0))
    light = np.zeros(z.shape, np.float32)
    for (u, v, w), size, strength in zip(positions, sizes, strengths, strict=True):
        distance2 = (x - u) ** 2 + (y - v) ** 2 + (z - w) ** 2
        light += strength * np.exp(-distance2 / (2 * size**2))
    glow = np.maximum(_enlarged(light, SCENE_SIZE), 0)

    centres, sizes, strengths = (
        np.repeat(each, LOOPS_OF_A_REGION, axis=0) for each in (positions, sizes, strengths)
    )
    num_loops, num_points = len(sizes), 500
    feet = centres + sizes[:, None] * random.normal(0, 0.9, (2, num_loops, 3))
    feet /= np.linalg.norm(feet, axis=-1, keepdims=True)
    middle, half = feet.mean(axis=0), (feet[1] - feet[0]) / 2
    length = np.linalg.norm(half, axis=-1)
    up = middle / np.linalg.norm(middle, axis=-1, keepdims=True)
    up += random.normal(0, 0.25, up.shape)
    up *= (length * random.uniform(0.7, 1.3, num_loops) / np.linalg.norm(up, axis=-1))[:, None]
    angle = np.linspace(0, np.pi, num_points)[:, None, None]
    x, y, z = np.moveaxis(middle + half * np.cos(angle) + up * np.sin(angle), -1, 0)
    weights = strengths * random.uniform(0.2, 1, num_loops) * length / 0.05 * 100 / num_points
    seen = (z > 0) | (np.hypot(x, y) > 1)
    weights = np.broadcast_to(weights, seen.shape)[seen]
    edge = SCENE_SIZE / 2 / SCENE_RADIUS
    limits = (-edge, edge), (-edge, edge)
    loops, *_ = np.histogram2d(y[seen], x[seen], SCENE_SIZE, limits, weights=weights)
    for side in (0, 1, 0, 1):  # a little blur
        loops = (np.roll(loops, 1, side) + 2 * loops + np.roll(loops, -1, side)) / 4
    return glow, loops.astype(np.float32)


def _enlarged(image: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    import numpy as np
    from PIL import Image

    return np.array(Image.fromarray(image).resize((size, size), Image.Resampling.BICUBIC))
