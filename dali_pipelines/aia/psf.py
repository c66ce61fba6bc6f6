"""Point spread functions of AIA's EUV channels, equal to `aiapy.psf.psf`, and cached on disk.

The meshes that support the filters diffract light into a cross of spikes around each point. aiapy
adds the spikes one by one over the whole frame, which takes minutes. A round Gaussian is the
product of a Gaussian in x and one in y. Therefore all spikes of a filter are one product of two
matrices here, which takes about 2 s.
"""

from __future__ import annotations

import logging
import secrets
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from readers.cache.folder import cache_folder

logger = logging.getLogger(__name__)


class FilterMesh(NamedTuple):
    """Geometry of the filter meshes of one channel; `psf` cites the source."""

    angle_arm: tuple[float, float, float, float]
    """Angles of the four arms of spikes of the entrance filter, degrees from the x axis."""
    spacing_e: float
    """Pixels between spikes of the entrance filter."""
    spacing_fp: float
    """Pixels between spikes of the focal plane filter."""


_MESHES = {
    94: FilterMesh((49.81, 40.16, -40.28, -49.92), 8.99, 0.207),
    131: FilterMesh((50.27, 40.17, -39.70, -49.95), 12.37, 0.289),
    171: FilterMesh((49.81, 39.57, -40.13, -50.38), 16.26, 0.377),
    193: FilterMesh((49.82, 39.57, -40.12, -50.37), 18.39, 0.425),
    211: FilterMesh((49.78, 40.08, -40.34, -49.95), 19.97, 0.465),
    304: FilterMesh((49.76, 40.18, -40.14, -49.90), 28.87, 0.670),
    335: FilterMesh((50.40, 39.80, -39.64, -50.25), 31.83, 0.738),
}
_WIDTH = 4.5  # of the core of all channels, 1 / pixel^2: aiapy's default, measured in flight
_MESH_RATIO = 363.0 / 34.0  # pitch of the wires divided by their width, for all channels
_OPEN_AREA = 0.82  # fraction of a filter that the mesh leaves open

PSF_CHANNELS = tuple(_MESHES)
"""Wavelengths in angstrom of the EUV channels, which have a PSF."""

FRAME_SHAPE = (4096, 4096)
"""Shape of a whole AIA frame, (height, width)."""

_VERSION = 1
"""Version in the names of cached files. Increase it if the result of `psf` changes."""


def check_psf_channel(channel: int) -> None:
    """Raise ValueError if a channel in angstrom has no PSF."""
    if channel not in _MESHES:
        raise ValueError(
            f"there is no PSF for {channel} angstrom, only for AIA's EUV channels {PSF_CHANNELS}: "
            "leave out the deconvolution for this channel"
        )


def psf(
    channel: int,
    *,
    diffraction_orders: ArrayLike | None = None,
    shape: tuple[int, int] = FRAME_SHAPE,
) -> NDArray[np.float64]:
    r"""Return the composite PSF of the entrance and focal plane filters of a channel.

    Parameters
    ----------
    channel : int
        Wavelength in angstrom, one of `PSF_CHANNELS`.
    diffraction_orders : array-like of int, optional
        Diffraction orders to add, by default -100 to 100.
    shape : tuple of int
        (height, width) in pixels, both even. Spikes are cut off at the edges.

    Returns
    -------
    ndarray, shape (height, width), float64
        PSF centred on pixel (height / 2, width / 2), with sum 1. It equals `aiapy.psf.psf` within
        1e-9 of its peak.

    Raises
    ------
    ValueError
        If the channel has no PSF, or shape or orders are invalid.

    Notes
    -----
    A spike of order :math:`m` is :math:`\mathrm{sinc}^2(m w / d) \exp(-W r^2)`, with :math:`r` the
    distance from the spike's centre, :math:`W` the width, and :math:`w / d` the width of the mesh's
    wires divided by their pitch. Formulae and numbers: `Grigis et al. 2012, AIA PSF
    Characterization and Deconvolution, Table 2
    <https://sohoftp.nascom.nasa.gov/solarsoft/sdo/aia/idl/psf/DOC/psfreport.pdf>`__, by way of
    aiapy 0.10.2, which follows ``aia_calc_psf.pro`` of SolarSoft.
    """
    check_psf_channel(channel)
    if min(shape) < 2 or shape[0] % 2 or shape[1] % 2:
        raise ValueError(f"shape must be even in both axes (height, width), got {shape}")
    given = np.arange(-100, 101) if diffraction_orders is None else np.asarray(diffraction_orders)
    orders = given[given != 0]  # the core is order 0
    if not orders.size:
        raise ValueError(f"diffraction_orders needs an order other than 0, got {given.tolist()}")
    mesh = _MESHES[channel]
    spectrum = np.fft.rfft2(_filter_psf(shape, mesh.spacing_e, mesh.angle_arm, orders))
    spectrum *= np.fft.rfft2(_filter_psf(shape, mesh.spacing_fp, (45.0, -45.0), orders))
    composite = np.abs(np.fft.irfft2(spectrum, s=shape))
    # aiapy transforms back by a second forward FFT, which mirrors the image, visibly in the first
    # row and column. The product of two centred PSFs has its centre at the origin.
    return np.roll(composite[::-1, ::-1], (shape[0] // 2 + 1, shape[1] // 2 + 1), axis=(0, 1))


def _filter_psf(
    shape: tuple[int, int],
    spacing: float,
    angles: tuple[float, ...],
    orders: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return the sum of the core and the spikes of one filter."""
    steps = spacing * np.exp(1j * np.deg2rad(angles))  # x + iy
    centers = np.outer(orders, steps).ravel()
    intensity = np.repeat(np.sinc(orders / _MESH_RATIO) ** 2, len(angles))
    y = _gaussians(shape[0], centers.imag)
    x = _gaussians(shape[1], centers.real)
    spikes = (y * intensity[:, None]).T @ x
    core = _gaussians(shape[0], np.zeros(1)).T @ _gaussians(shape[1], np.zeros(1))
    spikes *= (1 - _OPEN_AREA) / spikes.sum()
    core *= _OPEN_AREA / core.sum()
    spikes += core
    return spikes


def _gaussians(length: int, centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a line of `length` pixels for each centre, counted from the middle of the line."""
    return np.exp(-_WIDTH * (np.arange(length) - length // 2 - centers[:, None]) ** 2)


def cached_psf(channel: int, *, shape: tuple[int, int] = FRAME_SHAPE) -> NDArray[np.float64]:
    """Return `psf`, from the user's cache folder if possible; otherwise save it there.

    A whole frame takes 134 MB in the folder, see `readers.cache.folder.cache_folder`.
    """
    check_psf_channel(channel)
    path = cache_folder() / f"psf-v{_VERSION}-{channel}-flight-{shape[0]}x{shape[1]}.npz"
    kept = _load(path, shape)
    if kept is not None:
        return kept
    made = psf(channel, shape=shape)
    try:
        _save(path, made)
    except OSError as error:  # e.g. a full disk: make it again next time
        logger.warning("the PSF of %d angstrom could not be saved to %s: %s", channel, path, error)
    return made


def _load(path: Path, shape: tuple[int, int]) -> NDArray[np.float64] | None:
    try:
        # Reading verifies the checksums of the zip file.
        with path.open("rb") as file, np.load(file) as arrays:
            kept: NDArray[np.float64] = arrays["psf"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        logger.warning("%s is damaged and will be made again: %s", path, error)
        return None
    return kept if kept.shape == shape and kept.dtype == np.float64 else None


def _save(path: Path, made: NDArray[np.float64]) -> None:
    """Write to a hidden file beside `path`, then rename it: nobody reads a partial file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with hidden.open("wb") as file:
            np.savez(file, psf=made)
        hidden.replace(path)
    finally:
        hidden.unlink(missing_ok=True)
