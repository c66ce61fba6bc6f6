"""AugMix: images mixed with several augmented versions of themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import fn, types

from dali_pipelines.augment.parts import constant
from dali_pipelines.augment.policies import (
    NAMES,
    Interpolation,
    Operation,
    Policy,
    Ranges,
    table_of,
)
from dali_pipelines.graph.user_operators.chance import Chance
from dali_pipelines.graph.user_operators.operators import ImageKind
from readers.values import check_bool, check_integer, check_number

_BINS = 10
_DEEPEST = 3
_RANGES = Ranges(0.3, Operation(x_share=1 / 3, y_share=1 / 3), 30, 0.9, 4, least_bits=4)
_COLORS = ("Brightness", "Color", "Contrast", "Sharpness")
_NOT_MIXED = ("Identity", "Invert")
_QUANTILES = 4096


@dataclass(frozen=True)
class AugMix(Policy):
    """Mix an image with several augmented versions of itself; for images of 8 bits.

    Like torchvision.transforms.v2.AugMix. A chain of random operations of `RandAugment` makes each
    version. The weights of the versions are drawn from a Dirichlet distribution, and the weight of
    the image itself from a Beta distribution. Results are rounded if the images are uint8.

    Parameters
    ----------
    severity : int
        Magnitudes are drawn from 0 to severity - 1, on a scale from 0 to 9.
    mixture_width : int
        Number of chains.
    chain_depth : int
        Number of operations of each chain; with -1 it is random, 1 to 3.
    alpha : float
        Parameter of both distributions, from 0.1 to 100.
    all_ops : bool
        Whether operations may also change brightness, saturation, contrast and sharpness.
    interpolation : {"nearest", "bilinear"}
        Interpolation of shear, shift and rotation.
    fill : float
        Value of pixels outside the image.

    Raises
    ------
    ValueError
        If a value is out of range.

    Notes
    -----
    Hendrycks et al., "AugMix: A Simple Data Processing Method to Improve Robustness and
    Uncertainty", 2019. Pixels differ from torchvision's in the details that `TrivialAugment` lists.
    """

    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1
    alpha: float = 1.0
    all_ops: bool = True
    interpolation: Interpolation = "bilinear"
    fill: float = 0.0

    def __post_init__(self) -> None:
        self._check()
        check_integer("severity", self.severity, 1, _BINS)
        check_integer("mixture_width", self.mixture_width, 1, 16)
        if self.chain_depth != -1:
            check_integer("chain_depth", self.chain_depth, 1, 16)
        check_number("alpha", self.alpha, 0.1, 100)
        check_bool("all_ops", self.all_ops)

    @property
    def num_images(self) -> int:
        """Number of images that the graph makes on the way: two per operation, one per chain."""
        return self.mixture_width * (2 * self._most + 1)

    @property
    def _most(self) -> int:
        return _DEEPEST if self.chain_depth == -1 else self.chain_depth

    def add(self, image: Any, chance: Chance, kind: ImageKind) -> Any:
        """Add the operators to the graph; see `dali_pipelines.settings.Augmentation`."""
        start = self._in_8_bits(image, kind)
        own, others, *chains = _gammas(self.alpha, 2 + self.mixture_width, chance)
        # Both distributions are quotients of gamma variates.
        share = 1.0 / (own + others)
        of_chains = others * share / sum(chains[1:], chains[0])
        mix = start * _beside(own * share, start)
        for chain in chains:
            changed = start
            for row in self._rows(chance):
                changed = self._operate(changed, kind, row)
            mix = mix + changed * _beside(chain * of_chains, start)
        return fn.cast(mix, dtype=types.UINT8) if kind.dtype == "uint8" else mix

    def _rows(self, chance: Chance) -> list[Any]:
        """Draw the operations of one chain. Operations beyond its depth do nothing."""
        names = [name for name in NAMES if name not in _NOT_MIXED]
        names = [name for name in names if self.all_ops or name not in _COLORS]
        table = table_of(_RANGES, [bin_ / (_BINS - 1) for bin_ in range(self.severity)], names)
        nothing = len(table)
        table = np.vstack((table, np.array([Operation()], np.float32)))
        depth = chance.choice(_DEEPEST) + 1 if self.chain_depth == -1 else None
        rows = []
        for place in range(self._most):
            number = chance.choice(nothing)
            if depth is not None:
                is_used = fn.cast(depth > place, dtype=types.INT32)
                number = nothing + is_used * (number - nothing)
            rows.append(constant(table)[number])
        return rows


def _beside(weight: Any, image: Any) -> Any:
    """Return the weight on the device of the image."""
    return weight if image.device == "cpu" else weight.gpu()


def _gammas(alpha: float, count: int, chance: Chance) -> list[Any]:
    """Draw from the gamma distribution of shape `alpha`, as one of its quantiles."""
    table = constant(gamma_quantiles(alpha))
    return [table[chance.choice(_QUANTILES)] for _ in range(count)]


def gamma_quantiles(alpha: float) -> NDArray[np.float32]:
    """Return the quantiles of the gamma distribution at the centres of `_QUANTILES` intervals."""
    # Integrate over log(x); e**-80 is a normal number in float32.
    logs = np.linspace(-80, math.log(alpha + 20 * math.sqrt(alpha) + 20), 200_001)
    density = np.exp(alpha * logs - np.exp(logs))
    below = np.concatenate(([0.0], np.cumsum(density[1:] + density[:-1])))
    wanted = (np.arange(_QUANTILES) + 0.5) / _QUANTILES * below[-1]
    return np.exp(np.interp(wanted, below, logs)).astype(np.float32)
