"""Operations of policies, and the policies TrivialAugment and RandAugment.

For each sample a row is drawn from a table of operations; it has all parameters of the operation.
The graph has an operator for each kind of operation, which is applied to the samples that drew it.

The notes of `TrivialAugment` list the differences from torchvision.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import fn, types
from nvidia.dali import math as dali_math

from dali_pipelines.augment.checks import check_8_bits
from dali_pipelines.augment.parts import constant, in_some, side_by_side
from dali_pipelines.graph.operators_augment import retouch
from dali_pipelines.graph.user_operators.chance import Chance
from dali_pipelines.graph.user_operators.operators import ImageKind
from dali_pipelines.kernels.augment.color import (
    BRIGHTNESS,
    CONTRAST,
    POSTERIZE,
    SATURATION,
    SOLARIZE,
)
from dali_pipelines.settings import Augmentation
from dali_pipelines.values import check_choice
from readers.values import check_integer, check_number

Interpolation = Literal["nearest", "bilinear"]
_INTERPOLATIONS = {"nearest": types.INTERP_NN, "bilinear": types.INTERP_LINEAR}

COLOR, GEOMETRY, SHARPNESS, AUTOCONTRAST, EQUALIZE, NOTHING = range(6)
"""Kinds of operations. Each, except NOTHING, is one operator of the graph."""
_LARGEST = 255

NAMES = (
    *("Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"),
    *("Brightness", "Color", "Contrast", "Sharpness", "Posterize", "Solarize"),
    *("AutoContrast", "Equalize", "Invert"),
)
"""Names of the `operations`, as in torchvision."""


class Operation(NamedTuple):
    """Parameters of an operation: a row of the table."""

    kind: int = NOTHING
    code: int = BRIGHTNESS
    magnitude: float = 1.0
    """Magnitude of `COLOR`, in units of `dali_pipelines.kernels.augment.color`, or the factor of
    `SHARPNESS`."""
    xx: float = 1.0
    xy: float = 0.0
    yx: float = 0.0
    yy: float = 1.0
    """`GEOMETRY`: xx to yy are the matrix from (x, y) of the output to (x, y) of the input."""
    centre: float = 0.0
    """Origin of the matrix: 1 for the centre of the image, 0 for its upper left corner."""
    x: float = 0.0
    y: float = 0.0
    """x and y: shift in whole pixels."""
    x_share: float = 0.0
    y_share: float = 0.0
    """x_share and y_share: shift as a share of width and height, rounded towards zero."""


class Ranges(NamedTuple):
    """Largest magnitudes of the operations."""

    shear: float
    shift: Operation
    """Shift in x and y."""
    degrees: float
    factor: float
    bits: int
    """Largest number of bits that posterize removes, in addition to `least_bits`."""
    least_bits: int = 0


_WIDE = Ranges(0.99, Operation(x=32, y=32), 135, 0.99, 6)
RAND = Ranges(0.3, Operation(x_share=150 / 331, y_share=150 / 331), 30, 0.9, 4)


def operations(ranges: Ranges, strength: float, sign: int) -> list[Operation]:
    """Return the operations `NAMES` at a strength from 0 to 1, with a sign if they have one.

    Only AutoAugment uses the last one, Invert.
    """
    signed = sign * strength
    shear, factor = ranges.shear * signed, 1 + ranges.factor * signed
    cos, sin = (f(math.radians(ranges.degrees * signed)) for f in (math.cos, math.sin))
    x, y, x_share, y_share = (signed * value for value in ranges.shift[-4:])
    level = 2.0 ** (ranges.least_bits + round(ranges.bits * strength))
    return [
        Operation(),
        Operation(GEOMETRY, xy=shear),
        Operation(GEOMETRY, yx=shear),
        Operation(GEOMETRY, x=x, x_share=x_share),
        Operation(GEOMETRY, y=y, y_share=y_share),
        Operation(GEOMETRY, xx=cos, xy=sin, yx=-sin, yy=cos, centre=1),
        Operation(COLOR, BRIGHTNESS, factor),
        Operation(COLOR, SATURATION, factor),
        Operation(COLOR, CONTRAST, factor),
        Operation(SHARPNESS, magnitude=factor),
        Operation(COLOR, POSTERIZE, level),
        Operation(COLOR, SOLARIZE, _LARGEST * (1 - strength)),
        Operation(AUTOCONTRAST),
        Operation(EQUALIZE),
        Operation(COLOR, SOLARIZE, 0.0),
    ]


def table_of(
    ranges: Ranges, strengths: Sequence[float], names: Collection[str] = NAMES[:-1]
) -> NDArray[np.float32]:
    """Return the table of operations at these strengths and both signs, all equally likely."""
    rows = [
        operation
        for strength in strengths
        for sign in (1, -1)
        for name, operation in zip(NAMES, operations(ranges, strength, sign), strict=True)
        if name in names
    ]
    return np.array(rows, np.float32)


class Policy(Augmentation):
    """Base class of augmentations that apply random operations to images of 8 bits."""

    interpolation: Interpolation
    fill: float
    of_8_bits = True
    moves_pixels = True

    def _check(self) -> None:
        check_number("fill", self.fill, 0, _LARGEST)
        check_choice("interpolation", self.interpolation, get_args(Interpolation))

    def _apply(self, image: Any, kind: ImageKind, rows: Iterable[Any]) -> Any:
        """Apply the operations of these rows, one after the other, and keep the type."""
        changed = self._in_8_bits(image, kind)
        for row in rows:
            changed = self._operate(changed, kind, row)
        return changed if kind.dtype == "uint8" else fn.cast(changed, dtype=types.FLOAT)

    def _in_8_bits(self, image: Any, kind: ImageKind) -> Any:
        """Return the image as uint8; ValueError if it may have other values."""
        check_8_bits(type(self).__name__, kind)
        return image if kind.dtype == "uint8" else fn.cast(image, dtype=types.UINT8)

    def _operate(self, image: Any, kind: ImageKind, row: Any) -> Any:
        """Add the operators of all kinds for uint8 images. Each sample gets the one of its row."""
        numbers = fn.cat(constant([_LARGEST]), row[1:3], axis=0)
        blur = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]]) / 13
        same = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]])
        weights = constant(blur) + constant(same - blur) * row[2]
        operators: list[tuple[int, Callable[..., Any], list[Any]]] = [
            (GEOMETRY, self._warped, [_matrix(row, image.shape())]),
            (COLOR, functools.partial(_recolored, kind), [numbers]),
            (SHARPNESS, _filtered, [weights]),
            (AUTOCONTRAST, _stretched, []),
            (EQUALIZE, fn.equalize, []),
        ]
        for code, change, arguments in operators:
            image = in_some(row[0] == float(code), image, change, *arguments)
        return image

    def _warped(self, image: Any, matrix: Any) -> Any:
        return fn.warp_affine(
            image,
            matrix=matrix,
            fill_value=float(self.fill),
            interp_type=_INTERPOLATIONS[self.interpolation],
        )


@dataclass(frozen=True)
class TrivialAugment(Policy):
    """Apply one of 14 operations at a random magnitude; for images of 8 bits.

    Like torchvision.transforms.v2.TrivialAugmentWide. The operations are: none, shear, shift,
    rotation, brightness, saturation, contrast, sharpness, posterize, solarize, autocontrast and
    equalize.

    Parameters
    ----------
    num_magnitude_bins : int
        Number of different magnitudes.
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
    Müller and Hutter, "TrivialAugment: Tuning-free Yet State-of-the-Art Data Augmentation", 2021.

    Operations and magnitudes are those of torchvision.transforms.v2. Pixels differ in details:
    results are rounded, not truncated; sharpness also changes the border; equalize is DALI's, like
    OpenCV's equalizeHist, and differs from torchvision and Pillow by a few gray levels.
    """

    num_magnitude_bins: int = 31
    interpolation: Interpolation = "nearest"
    fill: float = 0.0

    num_images = 2

    def __post_init__(self) -> None:
        self._check()
        _check_bins(self.num_magnitude_bins)

    def add(self, image: Any, chance: Chance, kind: ImageKind) -> Any:
        """Add its operators to the graph; see `dali_pipelines.settings.Augmentation`."""
        table = table_of(_WIDE, np.linspace(0, 1, self.num_magnitude_bins).tolist())
        return self._apply(image, kind, [drawn(table, chance)])


@dataclass(frozen=True)
class RandAugment(Policy):
    """Apply several random operations of `TrivialAugment`, one after the other, at one magnitude.

    Like torchvision.transforms.v2.RandAugment, with smaller ranges than `TrivialAugment`.

    Parameters
    ----------
    num_ops : int
        Number of operations; each is drawn independently, so an operation may come twice.
    magnitude : int
        Magnitude from 0 to num_magnitude_bins - 1.
    num_magnitude_bins : int
        Number of different magnitudes.
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
    Cubuk et al., "RandAugment: Practical automated data augmentation with a reduced search space",
    2019.
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: Interpolation = "nearest"
    fill: float = 0.0

    def __post_init__(self) -> None:
        self._check()
        _check_bins(self.num_magnitude_bins)
        check_integer("num_ops", self.num_ops, 1, 16)
        check_integer("magnitude", self.magnitude, 0)
        if self.magnitude >= self.num_magnitude_bins:
            raise ValueError(
                f"magnitude must be below num_magnitude_bins, {self.num_magnitude_bins}, got "
                f"{self.magnitude}"
            )

    @property
    def num_images(self) -> int:
        """Number of images that the graph makes on the way: two per operation."""
        return 2 * self.num_ops

    def add(self, image: Any, chance: Chance, kind: ImageKind) -> Any:
        """Add the operators to the graph; see `dali_pipelines.settings.Augmentation`."""
        table = table_of(RAND, [self.magnitude / (self.num_magnitude_bins - 1)])
        return self._apply(image, kind, (drawn(table, chance) for _ in range(self.num_ops)))


def drawn(table: NDArray[np.float32], chance: Chance) -> Any:
    """Return a row of the table, drawn for each sample."""
    return constant(table)[chance.choice(len(table))]


def _check_bins(count: object) -> None:
    check_integer("num_magnitude_bins", count, 2, 1000)


def _matrix(row: Any, shape: Any) -> Any:
    """Return the matrix for `fn.warp_affine`, shape (2, 3), for images of this shape."""
    size = fn.cast(fn.cat(shape[1:2], shape[0:1], axis=0), dtype=types.FLOAT)
    turn, centre = fn.reshape(row[3:7], shape=[2, 2]), size * 0.5 * row[7]
    shift = row[8:10] + row[10:12] * size
    whole = dali_math.floor(dali_math.abs(shift)) * (1.0 - 2.0 * (shift < 0.0))
    moved = centre - fn.reductions.sum(turn * centre, axes=[1]) + whole
    return fn.cat(turn, fn.reshape(moved, shape=[2, 1]), axis=1)


def _recolored(kind: ImageKind, image: Any, numbers: Any) -> Any:
    pixels = fn.cast(image, dtype=types.FLOAT)
    pixels = side_by_side(pixels, kind, lambda wide: retouch(wide, numbers))
    return fn.cast(pixels, dtype=types.UINT8)


def _filtered(image: Any, weights: Any) -> Any:
    return fn.filter(image, weights if image.device == "cpu" else weights.gpu())


def _stretched(image: Any) -> Any:
    """Stretch each channel to the range 0 to 255; a channel of one value stays."""
    low = fn.cast(fn.reductions.min(image, axis_names="HW", keep_dims=True), dtype=types.FLOAT)
    high = fn.cast(fn.reductions.max(image, axis_names="HW", keep_dims=True), dtype=types.FLOAT)
    is_flat = fn.cast(high == low, dtype=types.FLOAT)
    factor = is_flat + (1.0 - is_flat) * float(_LARGEST) / (high - low + is_flat)
    return fn.cast((image - low * (1.0 - is_flat)) * factor, dtype=types.UINT8)
