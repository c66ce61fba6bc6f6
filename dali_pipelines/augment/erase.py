"""Random erasing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nvidia.dali import fn

from dali_pipelines.augment.checks import LARGEST, range_of
from dali_pipelines.augment.parts import constant
from dali_pipelines.graph.operators_augment import choose_part
from dali_pipelines.graph.user_operators.chance import Chance
from dali_pipelines.graph.user_operators.operators import ImageKind
from dali_pipelines.kernels.augment.erase import NUM_FRACTIONS
from dali_pipelines.settings import Augmentation
from readers.values import check_number


@dataclass(frozen=True)
class Erase(Augmentation):
    """Overwrite a random rectangle of some images.

    Like torchvision.transforms.v2.RandomErasing, but it comes before mean and std: set `value` to
    the mean to get 0 in the output.

    Parameters
    ----------
    p : float
        Probability that a part of an image is erased. If ten random rectangles do not fit, the
        image stays whole.
    scale : (float, float)
        Range of the erased share of the image's area, uniform.
    ratio : (float, float)
        Range of the ratio of height to width, log-uniform.
    value : float or sequence of float
        Fill value in units of the image; one number, or one for each channel.

    Raises
    ------
    ValueError
        If a value is out of range.
    """

    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: float | Sequence[float] = 0.0

    def __post_init__(self) -> None:
        check_number("p", self.p, 0, 1)
        range_of("scale", self.scale, 0, 1)
        range_of("ratio", self.ratio, 1e-3)
        for value in self._values():
            check_number("value", value, -LARGEST, LARGEST)

    def add(self, image: Any, chance: Chance, kind: ImageKind) -> Any:
        """Add the operators to the graph; see `dali_pipelines.settings.Augmentation`."""
        values = self._values()
        if len(values) not in (1, kind.channels):
            raise ValueError(
                f"value of Erase must be one number, or {kind.channels}, one for each channel of "
                f"the images, got {self.value!r}"
            )
        if kind.dtype == "uint8":
            for value in values:
                check_number("value of Erase with dtype 'uint8'", value, 0, 255)
            values = [float(round(value)) for value in values]
        settings = constant(
            [self.p, *range_of("scale", self.scale, 0, 1), *range_of("ratio", self.ratio, 1e-3)]
        )
        part = choose_part(chance.fractions(NUM_FRACTIONS), image.shape(), settings)
        return fn.erase(
            image, anchor=part[0:2], shape=part[2:4], axis_names="HW", fill_value=values
        )

    def _values(self) -> list[float]:
        return list(self.value) if isinstance(self.value, Sequence) else [self.value]
