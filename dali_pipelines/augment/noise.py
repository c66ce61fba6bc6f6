"""Random noise, drawn for each value of an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nvidia.dali import fn

from dali_pipelines.augment.checks import LARGEST, range_of
from dali_pipelines.augment.parts import constant, in_float
from dali_pipelines.graph.operators_augment import noise
from dali_pipelines.graph.user_operators.chance import Chance
from dali_pipelines.graph.user_operators.operators import ImageKind
from dali_pipelines.settings import Augmentation
from readers.values import check_number


@dataclass(frozen=True)
class Noise(Augmentation):
    """Add normal noise of mean 0.

    Values are not clamped. With dtype ``uint8`` they are rounded, and limited to 0 ... 255. NaN
    stays.

    Parameters
    ----------
    std : float or (float, float)
        Standard deviation in units of the image, or its range, from which it is drawn uniformly for
        each sample.

    Raises
    ------
    ValueError
        If `std` is negative or not a number.
    """

    std: float | tuple[float, float]

    def __post_init__(self) -> None:
        range_of("std", self.std, 0)

    def add(self, image: Any, chance: Chance, kind: ImageKind) -> Any:
        """Add the operators to the graph; see `dali_pipelines.settings.Augmentation`."""
        least, most = range_of("std", self.std, 0)
        drawn = chance.fractions(3)
        numbers = constant([0, 0, least]) + constant([1, 1, most - least]) * drawn
        return in_float(image, kind, lambda pixels: noise(pixels, numbers, of_photons=False))


@dataclass(frozen=True)
class PhotonNoise(Augmentation):
    """Add photon noise and read noise of a detector, for images in physical units.

    A value v becomes ``(P + R) / gain``. P is from the Poisson distribution of mean ``v * gain``, R
    from the normal distribution of standard deviation `read_noise`. Values below 0, for example
    after background subtraction, only get R. NaN and infinity stay.

    Parameters
    ----------
    gain : float
        Electrons per unit of the image.
    read_noise : float
        Standard deviation of the read noise in electrons.

    Raises
    ------
    ValueError
        If `gain` is not positive, `read_noise` is negative, or either is not a number.

    Notes
    -----
    `dali_pipelines.kernels.augment.noise` describes the accuracy.
    """

    gain: float
    read_noise: float = 0.0

    def __post_init__(self) -> None:
        check_number("gain", self.gain, 1e-30, 1e30)
        check_number("read_noise", self.read_noise, 0, LARGEST)

    def add(self, image: Any, chance: Chance, kind: ImageKind) -> Any:
        """Add the operators to the graph; see `dali_pipelines.settings.Augmentation`."""
        settings = constant([self.gain, self.read_noise])
        numbers = fn.cat(chance.fractions(2), settings, axis=0)
        return in_float(image, kind, lambda pixels: noise(pixels, numbers, of_photons=True))
