"""Stretch and scale pixels for a network, and back for plots."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from dali_pipelines.kernels import stretch_parameters as kernel
from dali_pipelines.values import are_all, check_choice
from readers.values import check_positive, is_number

Kind = Literal["none", "sqrt", "log1p", "signed_log1p", "asinh"]
Array = TypeVar("Array")

# Code of each kind in the kernel, its curve and its inverse; xp is a namespace of arrays.
_CURVES: dict[Kind, tuple[int, Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "none": (kernel.NONE, lambda xp, x: x, lambda xp, x: x),
    "sqrt": (kernel.SQRT, lambda xp, x: xp.sqrt(x), lambda xp, x: x * xp.abs(x)),
    "log1p": (kernel.LOG1P, lambda xp, x: xp.log1p(x), lambda xp, x: xp.expm1(x)),
    "signed_log1p": (
        kernel.SIGNED_LOG1P,
        lambda xp, x: xp.sign(x) * xp.log1p(xp.abs(x)),
        lambda xp, x: xp.sign(x) * xp.expm1(xp.abs(x)),
    ),
    "asinh": (kernel.ASINH, lambda xp, x: xp.arcsinh(x), lambda xp, x: xp.sinh(x)),
}
_UNLIMITED = (-math.inf, math.inf)
LEAST_STD = 2.0**-126
"""Minimum std. Between this and its inverse, std and 1 / std are normal numbers in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Map pixel values to the input of a network, in this order.

    1. Divide by `unit`.
    2. Clip to `clip`, in multiples of `unit`.
    3. Apply the curve of `kind`.
    4. Subtract `mean` and divide by `std`.
    5. Clip to `clip_output`.

    As in published recipes, the first clip comes before the curve: square roots and logarithms need
    it. NaN stays NaN.

    Raises
    ------
    ValueError
        If a value is invalid, or `clip` allows numbers for which the curve is undefined.

    Examples
    --------
    >>> stretch = Stretch(kind="sqrt", unit=100, clip=(0, 4), mean=1)
    >>> stretch(np.array([-50.0, 0.0, 100.0, 900.0])).tolist()
    [-1.0, -1.0, 0.0, 1.0]
    """

    kind: Kind = "none"
    """Curve: ``none``; ``sqrt``; ``log1p``, log(1 + x); ``signed_log1p``, sign(x) log(1 + abs(x));
    or ``asinh``, asinh(x / a)."""
    unit: float = 1.0
    """Divisor of the pixels, in their units, such as DN/s."""
    clip: tuple[float, float] = _UNLIMITED
    """Lowest and highest value before the curve."""
    a: float = 1.0
    """Point where asinh turns from linear to logarithmic, in multiples of `unit`, as in
    `astropy.visualization.AsinhStretch`."""
    mean: float = 0.0
    """Mean of the values after the curve."""
    std: float = 1.0
    """Standard deviation of the values after the curve."""
    clip_output: tuple[float, float] = _UNLIMITED
    """Lowest and highest value of the result."""

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, list(_CURVES))
        for name in ("unit", "a", "std"):
            check_positive(name, getattr(self, name))
            if not LEAST_STD <= float(getattr(self, name)) <= 1 / LEAST_STD:
                raise ValueError(
                    f"{name} and its inverse must be finite in float32, got {getattr(self, name)!r}"
                )
        if not is_number(self.mean) or not math.isfinite(self.mean):
            raise ValueError(f"mean must be a number, got {self.mean!r}")
        for name in ("clip", "clip_output"):
            limits = getattr(self, name)
            if not are_all(limits, Real) or len(limits) != 2 or not limits[0] < limits[1]:
                raise ValueError(f"{name} must be (low, high) with low < high, got {limits!r}")
        for name in ("unit", "a", "std", "mean"):  # NumPy's scalars keep their own precision
            object.__setattr__(self, name, float(getattr(self, name)))
        for name in ("clip", "clip_output"):
            object.__setattr__(self, name, tuple(map(float, getattr(self, name))))
        if self.a != 1 and self.kind != "asinh":
            raise ValueError(f"a={self.a} needs kind 'asinh', got kind {self.kind!r}")
        if self.kind == "sqrt" and self.clip[0] < 0:
            raise ValueError(
                "kind 'sqrt' needs a clip that begins at 0 or above, such as clip=(0, inf), got "
                f"clip={self.clip}"
            )
        if self.kind == "log1p" and self.clip[0] <= -1:
            raise ValueError(
                "kind 'log1p' needs a clip that begins above -1, such as clip=(0, inf), got "
                f"clip={self.clip}; or choose kind 'signed_log1p'"
            )

    @classmethod
    def onto(
        cls,
        low: float,
        high: float,
        *,
        clip: tuple[float, float],
        kind: Kind = "none",
        unit: float = 1.0,
        a: float = 1.0,
    ) -> Stretch:
        """Return the stretch that maps the range of `clip` onto the range from low to high.

        Parameters
        ----------
        low, high : float
            Lowest and highest value of the result.
        clip : tuple of float
            Lowest and highest value before the curve, in multiples of `unit`.
        kind : {"none", "sqrt", "log1p", "signed_log1p", "asinh"}
            Curve, see `Stretch`.
        unit, a : float
            See `Stretch`.

        Notes
        -----
        With clip (0, 1), kind ``asinh`` and range 0 to 1 the result equals astropy's
        ``ImageNormalize(vmin=0, vmax=unit, stretch=AsinhStretch(a), clip=True)``.
        """
        are_numbers = are_all((low, high), Real) and are_all(clip, Real)
        if not are_numbers or not (low < high and all(map(math.isfinite, (low, high, *clip)))):
            raise ValueError(
                f"expected four finite numbers with low < high, got {(low, high)} and clip={clip}"
            )
        curve = cls(kind=kind, clip=clip, a=a)
        first, last = (float(value) for value in curve(np.array(clip, np.float64)))
        std = (last - first) / (high - low)
        return cls(kind=kind, unit=unit, clip=clip, a=a, mean=first - low * std, std=std)

    def __call__(self, array: Array) -> Array:
        """Stretch an array.

        Parameters
        ----------
        array : numpy.ndarray, torch.Tensor, jax.Array or cupy.ndarray, any shape
            Floats, or integers, which become floats.

        Returns
        -------
        array of the same kind, shape and, if floating, dtype
        """
        xp = _namespace(array)
        values: Any = array
        x = xp.clip(values / self.unit, *self.clip)
        _, curve, _ = _CURVES[self.kind]
        x = curve(xp, x / self.a)  # a is 1 for kinds other than asinh
        return xp.clip((x - self.mean) / self.std, *self.clip_output)

    def inverse(self, array: Array) -> Array:
        """Return the pixel values of stretched values; clipped values become the limit of `clip`.

        Parameters
        ----------
        array : numpy.ndarray, torch.Tensor, jax.Array or cupy.ndarray, any shape, floating
            Stretched values. A network's output may be outside the range of the curve. The inverse
            is defined there, too: below 0 the inverse of ``sqrt`` is -x**2.
        """
        xp = _namespace(array)
        stretched: Any = array
        _, _, inverse = _CURVES[self.kind]
        values: Array = inverse(xp, stretched * self.std + self.mean) * self.a * self.unit
        return values

    def parameters(self) -> NDArray[np.float64]:
        """Return the parameters for `dali_pipelines.kernels.stretch`.

        Returns
        -------
        ndarray, shape (9,), float64
            Code of the kind (0 to 4, in the order of `Kind`), 1/unit, lowest and highest value
            before the curve, 1/a, mean, 1/std, lowest and highest value of the result.
        """
        fields = np.empty(kernel.NUM_PARAMETERS)
        fields[kernel.KIND] = _CURVES[self.kind][0]
        fields[kernel.SCALE] = 1 / self.unit
        fields[[kernel.LOW, kernel.HIGH]] = self.clip
        fields[kernel.STEEPNESS] = 1 / self.a
        fields[kernel.MEAN] = self.mean
        fields[kernel.FACTOR] = 1 / self.std
        fields[[kernel.FLOOR, kernel.CEILING]] = self.clip_output
        return fields


Stretches = Stretch | Sequence[Stretch] | Mapping[str, Stretch]
"""One stretch for all channels, one for each channel, or a mapping by the name of the channel."""


def _namespace(array: Any) -> Any:
    """Return an array's library (NumPy, CuPy, JAX or torch), without importing any."""
    package = type(array).__module__.partition(".")[0]
    library = sys.modules.get("jax.numpy" if package in ("jax", "jaxlib") else package)
    if not hasattr(library, "arcsinh"):
        raise TypeError(
            f"expected an array of NumPy, CuPy or JAX, or a torch tensor, got "
            f"{type(array).__qualname__}"
        )
    return library
