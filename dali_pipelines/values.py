"""Checks and conversions of setting values."""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Sequence
from numbers import Integral
from typing import Any, TypeGuard

import numpy as np

from readers.sampling.order import Shuffle
from readers.values import is_integer

logger = logging.getLogger(__name__)


def check_type(name: str, value: object, kind: Any, expected: str) -> None:
    """Raise ValueError if the value of a setting is not of `kind`, a type or several types."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {expected}, got {value!r}")


def torch_name(value: Any) -> Any:
    """Return the name of a dtype of NumPy, JAX or PyTorch, or of a memory format.

    Other values stay as they are.
    """
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return np.dtype(value).name
    if isinstance(value, type) and isinstance(of_jax := getattr(value, "dtype", None), np.dtype):
        return of_jax.name  # jax.numpy.bfloat16 is a class with a dtype
    is_of_torch = type(value).__module__ == "torch"  # which need not be imported
    return str(value).removeprefix("torch.") if is_of_torch else value


def check_choice(name: str, value: object, choices: Collection[object]) -> None:
    """Raise ValueError if the value of a setting is not one of `choices`; True is not 1."""
    if value not in choices or isinstance(value, bool | np.bool_):
        known = ", ".join(map(repr, choices))
        raise ValueError(f"{name} must be one of {known}, got {value!r}")


def shuffle_of(name: str, value: object) -> Shuffle:
    """Return True, False, "blocks" or "buckets"; ValueError for other values."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if value == "blocks":
        return "blocks"
    if value == "buckets":
        return "buckets"
    raise ValueError(f"{name} must be True, False, 'blocks' or 'buckets', got {value!r}")


def pair_of(name: str, value: int | tuple[int, int] | None) -> tuple[int, int] | None:
    """Return (height, width) for a setting of one or two integers; ValueError for other values."""
    if value is None:
        return None
    pair = (value, value) if is_integer(value, 1) else value
    if not are_all(pair, Integral) or len(pair) != 2 or min(pair) < 1:
        raise ValueError(
            f"{name} must be (height, width) in pixels, at least 1x1, or one integer for both, "
            f"got {value!r}"
        )
    return int(pair[0]), int(pair[1])


def are_all(values: Any, kind: type, least: int = 1) -> TypeGuard[Sequence[Any]]:
    """Return whether this is a sequence of at least `least` numbers of a kind, and no bools."""
    is_text = isinstance(values, str | bytes)
    are_several = (
        isinstance(values, Sequence | np.ndarray)
        and not is_text
        and getattr(values, "ndim", 1) == 1
    )
    return (
        are_several
        and len(values) >= least
        and all(isinstance(value, kind) and not isinstance(value, bool) for value in values)
    )


@functools.cache  # a Loader makes several pipelines
def warn_of_fractions(mean: tuple[float, ...] | None, std: tuple[float, ...] | None) -> None:
    """Log a warning if mean and std seem to be for values from 0 to 1, as in torchvision."""
    given = [(name, values) for name, values in (("mean", mean), ("std", std)) if values]
    numbers = [abs(value) for _, values in given for value in values]
    if all(value in (0, 1) for value in numbers) or max(numbers) > 1:
        return
    found = " and ".join(f"{name}={values}" for name, values in given)
    meant = ", ".join(
        f"{name}={tuple(float(f'{255 * value:.6g}') for value in values)}" for name, values in given
    )
    message = "%s: images of 8 bits have values from 0 to 255, not from 0 to 1: set %s"
    logger.warning(message, found, meant)


def holds(limits: np.iinfo[Any], value: float) -> bool:
    """Return whether a value is exact in float32 and in an integer type with these limits."""
    is_whole = limits.min <= value <= limits.max and value == int(value)
    return bool(is_whole and value == float(np.float32(value)))


def check_several_names(name: str, given: Any, example: str) -> None:
    """Raise ValueError if a setting is not a collection of distinct names."""
    are_several = isinstance(given, Collection) and not isinstance(given, str)
    if not are_several or not all(isinstance(one, str) for one in given):
        raise ValueError(f"{name} must be a tuple of names, such as ('{example}',), got {given!r}")
    if len(set(given)) < len(given):
        raise ValueError(f"{name} must be named once each, got {given!r}")
