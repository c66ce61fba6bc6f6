"""Random blur."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nvidia.dali import fn

from dali_pipelines.augment.checks import range_of
from dali_pipelines.augment.parts import in_some
from dali_pipelines.graph.user_operators.chance import Chance
from dali_pipelines.graph.user_operators.operators import ImageKind
from dali_pipelines.settings import Augmentation
from readers.values import check_integer, check_number

_LARGEST_KERNEL = 1023
"""Largest kernel in pixels. For a kernel ten times as large DALI takes seconds per image."""


@dataclass(frozen=True)
class Blur(Augmentation):
    """Blur images by a Gaussian of random width.

    Like torchvision.transforms.v2.GaussianBlur, but with a probability `p`. Images are mirrored at
    their borders. A NaN spreads over the whole kernel.

    Parameters
    ----------
    kernel_size : int
        Width and height of the kernel in pixels, odd.
    sigma : float or (float, float)
        Range of the standard deviation in pixels, uniform.
    p : float
        Probability that an image is blurred.

    Raises
    ------
    ValueError
        If a value is out of range.
    """

    kernel_size: int
    sigma: float | tuple[float, float] = (0.1, 2.0)
    p: float = 1.0

    num_images = 2

    def __post_init__(self) -> None:
        check_integer("kernel_size", self.kernel_size, 1, _LARGEST_KERNEL)
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd, got {self.kernel_size}")
        range_of("sigma", self.sigma, 1e-3)
        check_number("p", self.p, 0, 1)

    def add(self, image: Any, chance: Chance, kind: ImageKind) -> Any:
        """Add the operators to the graph; see `dali_pipelines.settings.Augmentation`."""
        del kind

        def blurred(pixels: Any, sigma: Any) -> Any:
            return fn.gaussian_blur(pixels, sigma=sigma, window_size=int(self.kernel_size))

        sigma = chance.uniform(*range_of("sigma", self.sigma, 1e-3))
        if self.p == 1:
            return blurred(image, sigma)
        return in_some(chance.bernoulli(self.p), image, blurred, sigma)
