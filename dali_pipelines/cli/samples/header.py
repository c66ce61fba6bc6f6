"""Header of an AIA frame: channel, time, pointing, observer, statistics. SYNTHETIC."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from astropy.io.fits import Header
    from numpy.typing import NDArray

    Card = tuple[str, str | float, str]  # keyword, value, comment

SEED = 20150101
FRAME_SIZE = 4096
SATURATION_DN = 16383  # the camera has 14 bits
FIRST_TIME = datetime(2015, 1, 1)  # UTC; FITS time keywords do not say so
CADENCE_S = 12
RSUN_REF_M = 696_000_000.0
OBSERVER_SPEED_M_S = 500.0

# Every 16th frame is flagged, in turn, as taken with the image stabilisation off and while off
# point: bits 17 and 12 of QUALITY (JSOC, AIA/SDO FITS Keywords).
FLAGGED_EVERY = 16
QUALITY_FLAGS = (1 << 17, 1 << 12)

# Cards that stand in for the housekeeping of a real file: a header is as long here as it is there.
NUM_STAND_INS = 120


@dataclass(frozen=True, slots=True)
class Channel:
    """Observation of an AIA channel: telescope and CCD number, nominal exposure, pixel size."""

    camera: int
    exposure_s: float
    scale_arcsec: float


CHANNELS = {
    94: Channel(4, 2.9, 0.600109),
    131: Channel(1, 2.9, 0.600698),
    171: Channel(3, 2.0, 0.599489),
    193: Channel(2, 2.0, 0.600714),
    211: Channel(2, 2.9, 0.600758),
    304: Channel(4, 2.9, 0.600165),
    335: Channel(1, 2.9, 0.600737),
}

# By camera: electrons per DN, and read noise. SolarSoft's aia_bp_estimate_error, after Boerner et
# al. (2012), Solar Physics 275, 41.
GAIN = {1: 17.6, 2: 18.3, 3: 17.7, 4: 18.3}
READ_NOISE_DN = {1: 1.18, 2: 1.20, 3: 1.15, 4: 1.14}


def frame_wavelength(number: int) -> int:
    """Return the wavelength of frame `number` in angstrom: the channels take turns."""
    return list(CHANNELS)[number % len(CHANNELS)]


def frame_time(number: int) -> datetime:
    """Return the slotted time of frame `number`."""
    return FIRST_TIME + timedelta(seconds=CADENCE_S * number)


def frame_pointing(number: int) -> dict[str, float]:
    """Return the header keywords that the pixels of frame `number` depend on."""
    import numpy as np

    random = np.random.default_rng([SEED, number, 1])
    channel = CHANNELS[frame_wavelength(number)]
    distance_m = 1.471e11 + OBSERVER_SPEED_M_S * CADENCE_S * number
    return {
        "EXPTIME": round(channel.exposure_s * random.uniform(0.95, 1.0), 6),
        "CRPIX1": round(2048.5 + random.uniform(-6, 6), 6),
        "CRPIX2": round(2048.5 + random.uniform(-6, 6), 6),
        "CDELT1": channel.scale_arcsec,
        "CROTA2": round(0.02 + 0.01 * random.standard_normal(), 9),
        "DSUN_OBS": distance_m,
        "RSUN_OBS": math.degrees(math.asin(RSUN_REF_M / distance_m)) * 3600,
    }


def frame_header(number: int, image: NDArray[np.int16]) -> Header:
    """Return the keywords of a JSOC level 1 file, and a note that the frame is synthetic."""
    from astropy.io.fits import Header

    pointing = frame_pointing(number)
    header = Header()
    header.extend(_exposure_cards(number, pointing["EXPTIME"]))
    header.extend((key, value, "of all pixels") for key, value in _statistics(image).items())
    header.extend(pointing_cards(pointing))
    header.extend(_observer_cards(number, pointing))
    header.extend((f"HK_{n:03d}", n, "stands in for housekeeping") for n in range(NUM_STAND_INS))
    header["BLANK"] = (-32768, "value of missing pixels")
    header["COMMENT"] = "SYNTHETIC frame made by dali-pipelines, not an observation"
    return header


def _exposure_cards(number: int, exposure_s: float) -> list[Card]:
    """Return what was taken, when, by what, and how good it is."""
    wavelength = frame_wavelength(number)
    camera = CHANNELS[wavelength].camera
    start = frame_time(number) + timedelta(seconds=0.34)
    middle = start + timedelta(seconds=exposure_s / 2)
    return [
        ("T_REC", _iso(frame_time(number)), "[ISO] slotted observation time"),
        ("WAVELNTH", wavelength, "[angstrom] wavelength"),
        ("WAVEUNIT", "angstrom", ""),
        ("WAVE_STR", f"{wavelength}_THIN", "wavelength and filter position"),
        ("FSN", 86_000_000 + number, "filtergram sequence number"),
        ("EXPTIME", exposure_s, "[s] exposure duration"),
        ("QUALITY", _quality(number), "level 1 quality word"),
        ("LVL_NUM", 1.0, "data level"),
        ("ORIGIN", "SYNTHETIC", "dali_pipelines.cli.samples"),
        ("TELESCOP", "SDO/AIA", ""),
        ("INSTRUME", f"AIA_{camera}", ""),
        ("CAMERA", camera, ""),
        ("DATE-OBS", _iso(start), "[ISO] start of the exposure"),
        ("T_OBS", _iso(middle), "[ISO] middle of the exposure"),
        ("IMG_TYPE", "LIGHT", "LIGHT or DARK"),
        ("PERCENTD", 100.0, "[%] pixels that are not missing"),
        ("NSPIKES", 0, "pixels hit by cosmic rays"),
        ("PIXLUNIT", "DN", ""),
        ("DN_GAIN", GAIN[camera], "electrons per DN"),
    ]


def _iso(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds")


def _quality(number: int) -> int:
    if (number + 1) % FLAGGED_EVERY:
        return 0
    return QUALITY_FLAGS[number // FLAGGED_EVERY % len(QUALITY_FLAGS)]


def pointing_cards(pointing: dict[str, float]) -> list[Card]:
    """Return the world coordinates: helioprojective, Sun centre at (0, 0)."""
    scale = pointing["CDELT1"]
    return [
        ("CTYPE1", "HPLN-TAN", ""),
        ("CUNIT1", "arcsec", ""),
        ("CRVAL1", 0.0, "[arcsec]"),
        ("CDELT1", scale, "[arcsec/pixel] image scale along x"),
        ("CRPIX1", pointing["CRPIX1"], "[pixel] Sun centre, the first pixel is 1"),
        ("CTYPE2", "HPLT-TAN", ""),
        ("CUNIT2", "arcsec", ""),
        ("CRVAL2", 0.0, "[arcsec]"),
        ("CDELT2", scale, "[arcsec/pixel] image scale along y"),
        ("CRPIX2", pointing["CRPIX2"], "[pixel] Sun centre, the first pixel is 1"),
        ("CROTA2", pointing["CROTA2"], "[deg] INST_ROT + SAT_ROT"),
        ("R_SUN", pointing["RSUN_OBS"] / scale, "[pixel] radius of the Sun"),
        ("INST_ROT", pointing["CROTA2"], "[deg] rotation of the CCD"),
        ("SAT_ROT", 0.0, "[deg] rotation of the spacecraft"),
        ("IMSCL_MP", scale, "[arcsec/pixel] image scale"),
        ("X0_MP", pointing["CRPIX1"] - 1, "[pixel] Sun centre, the first pixel is 0"),
        ("Y0_MP", pointing["CRPIX2"] - 1, "[pixel] Sun centre, the first pixel is 0"),
    ]


def _observer_cards(number: int, pointing: dict[str, float]) -> list[Card]:
    """Return where the observer is: the Earth at the beginning of 2015, to about a degree.

    Carrington rotation from Meeus, Astronomical Algorithms, chapter 29; the other angles are those
    of 1 January.
    """
    julian_date = 2457023.5 + number * CADENCE_S / 86400
    rotation = (julian_date - 2398140.2270) / 27.2752316
    distance, ecliptic_longitude = pointing["DSUN_OBS"], math.radians(100.1)
    return [
        ("DSUN_OBS", distance, "[m] distance to Sun centre"),
        ("RSUN_REF", RSUN_REF_M, "[m] reference radius of the Sun"),
        ("RSUN_OBS", pointing["RSUN_OBS"], "[arcsec] apparent radius of the Sun"),
        ("HAEX_OBS", distance * math.cos(ecliptic_longitude), "[m] heliocentric ecliptic x"),
        ("HAEY_OBS", distance * math.sin(ecliptic_longitude), "[m] heliocentric ecliptic y"),
        ("HAEZ_OBS", 0.0, "[m] heliocentric ecliptic z"),
        ("OBS_VR", OBSERVER_SPEED_M_S, "[m/s] speed away from the Sun"),
        ("CRLN_OBS", 360 * (1 - rotation % 1), "[deg] Carrington longitude"),
        ("CRLT_OBS", -2.98, "[deg] Carrington latitude"),
        ("CAR_ROT", int(rotation), "Carrington rotation"),
        ("HGLN_OBS", 0.0, "[deg] Stonyhurst longitude"),
        ("HGLT_OBS", -2.98, "[deg] Stonyhurst latitude"),
    ]


def _statistics(image: NDArray[np.int16]) -> dict[str, float]:
    """Return the DATA... keywords, all in DN, from how often each int16 occurs."""
    import numpy as np

    counts = np.roll(np.bincount(image.view(np.uint16).ravel(), minlength=65536), 32768)
    values = np.arange(-32768, 32768)
    cumulative = np.cumsum(counts)
    mean = float((counts * values).sum() / image.size)

    def quantile(percent: float) -> int:
        return int(values[np.searchsorted(cumulative, image.size * percent / 100)])

    return {
        "DATAMIN": int(values[counts > 0][0]),
        "DATAMAX": int(values[counts > 0][-1]),
        "DATAMEAN": round(mean, 6),
        "DATARMS": round(math.sqrt((counts * (values - mean) ** 2).sum() / image.size), 6),
        "DATAMEDN": quantile(50),
        "NSATPIX": int(counts[values >= SATURATION_DN].sum()),
        **{f"DATAP{percent:02d}": quantile(percent) for percent in (1, 10, 25, 75, 90, 95, 98, 99)},
    }
