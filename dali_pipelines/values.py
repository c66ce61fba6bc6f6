"""Checks and conversions of the values of settings."""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Mapping, Sequence
from numbers import Integral, Real
from threading import TIMEOUT_MAX
from typing import Any, TypeGuard

import numpy as np

from readers.places.storage import Storage
from readers.sampling.order import Shuffle
from readers.targets.contract import Target
from readers.values import is_integer, is_number

logger = logging.getLogger(__name__)

_MOST = float(np.finfo(np.float32).max)
_LEAST_STD = 2.0**-126
"""Up to its inverse, 1 / std is a normal number in float32."""


def check_type(name: str, value: object, kind: Any, expected: str) -> None:
    """Raise ValueError if the value of a setting is not of a type, or of one of several."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {expected}, got {value!r}")


def check_choice(name: str, value: object, choices: Collection[object]) -> None:
    """Raise ValueError if the value of a setting is none of some choices; True is not 1."""
    if value not in choices or isinstance(value, bool | np.bool_):
        known = ", ".join(map(repr, choices))
        raise ValueError(f"{name} must be one of {known}, got {value!r}")


def shuffle_of(name: str, value: object) -> Shuffle:
    """Return a setting that is True, False or "blocks", of Python's types; or raise ValueError."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if value != "blocks":
        raise ValueError(f"{name} must be True, False or 'blocks', got {value!r}")
    return "blocks"


def check_order(shuffle: Shuffle, block_rows: int | None, weights: str | None) -> None:
    """Raise ValueError if settings of the order contradict each other."""
    if weights is not None and shuffle is not True:
        raise ValueError(
            f"weights={weights!r} draws rows at random: leave out shuffle={shuffle!r} and mode "
            "'eval'"
        )
    if block_rows is not None and shuffle != "blocks":
        raise ValueError(f"block_rows={block_rows} needs shuffle='blocks'")


def pair_of(name: str, value: int | tuple[int, int] | None) -> tuple[int, int] | None:
    """Return (height, width) of a setting that takes one or two integers; or raise ValueError."""
    if value is None:
        return None
    pair = (value, value) if is_integer(value, 1) else value
    if not are_all(pair, Integral) or len(pair) != 2 or min(pair) < 1:
        raise ValueError(
            f"{name} must be (height, width) in pixels, at least 1x1, or one integer for both, "
            f"got {value!r}"
        )
    return int(pair[0]), int(pair[1])


def numbers_of(name: str, value: float | tuple[float, ...] | None) -> tuple[float, ...] | None:
    """Return the numbers of a setting that takes one or more; or raise ValueError."""
    if value is None:
        return None
    values = (value,) if isinstance(value, Real) else value
    if not are_all(values, Real):
        raise ValueError(f"{name} must be a number, or one for each channel, got {value!r}")
    return tuple(float(number) for number in values)


def are_all(values: Any, kind: type, least: int = 1) -> TypeGuard[Sequence[Any]]:
    """Return whether these are `least` or more numbers of a kind; also of NumPy, but no bools."""
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


def check_mean_and_std(mean: tuple[float, ...] | None, std: tuple[float, ...] | None) -> None:
    """Raise ValueError if a number, or the inverse of a std, is not finite in float32."""
    if mean is not None and not all(abs(value) <= _MOST for value in mean):
        raise ValueError(f"mean must be finite in float32, got {mean}")
    if std is not None and not all(_LEAST_STD <= value <= 1 / _LEAST_STD for value in std):
        raise ValueError(
            f"std must be positive, got {std}"
            + "; and its inverse must be finite in float32" * all(value > 0 for value in std)
        )


@functools.cache  # a Loader makes several pipelines
def warn_of_fractions(mean: tuple[float, ...] | None, std: tuple[float, ...] | None) -> None:
    """Log a warning if mean and std look like those of images from 0 to 1, as torchvision has."""
    given = [(name, values) for name, values in (("mean", mean), ("std", std)) if values]
    numbers = [abs(value) for _, values in given for value in values]
    if all(value in (0, 1) for value in numbers) or max(numbers) > 1:
        return
    found = " and ".join(f"{name}={values}" for name, values in given)
    meant = ", ".join(
        f"{name}={tuple(float(f'{255 * value:.6g}') for value in values)}" for name, values in given
    )
    message = "%s: images of 8 bits have values from 0 to 255, and this is for 0 to 1: give %s"
    logger.warning(message, found, meant)


def check_missing(missing: Any, outside: str, dtype: str, augment: Sequence[Any]) -> None:
    """Raise ValueError if filled pixels cannot have this value; None stands for NaN."""
    if outside != "fill":
        if missing is not None:
            raise ValueError(f"missing={missing!r} is for filled pixels: give outside='fill'")
        return
    if missing is not None and not is_number(missing):
        raise ValueError(f"missing must be a number, or None for NaN, got {missing!r}")
    kind = np.dtype(dtype)
    of_8_bits = [type(one).__name__ for one in augment if one.of_8_bits]
    if kind.kind == "f" and not of_8_bits:
        if missing is not None and abs(missing) > float(np.finfo(kind).max):
            raise ValueError(f"missing={missing!r} is no {dtype}")
        return
    what = f"dtype {dtype!r}" if kind.kind != "f" else of_8_bits[0]
    limits = np.iinfo(kind if kind.kind != "f" else np.uint8)
    if missing is None or not holds(limits, missing):
        given = "" if missing is None else f", got {missing!r}"
        raise ValueError(
            f"{what} has no NaN for filled pixels: give missing, an integer from {limits.min} to "
            f"{limits.max} that float32 holds exactly, such as 0{given}"
        )


def holds(limits: np.iinfo[Any], value: float) -> bool:
    """Return whether integers of a type, and float32, hold a value exactly."""
    is_whole = limits.min <= value <= limits.max and value == int(value)
    return bool(is_whole and value == float(np.float32(value)))


def check_rejected(rejected: object) -> None:
    """Raise ValueError if these are no reasons by row."""
    if not isinstance(rejected, Mapping) or not all(is_integer(row, 0) for row in rejected):
        raise ValueError(f"rejected must be a mapping of rows to reasons, got {rejected!r}")


def check_targets(targets: object) -> None:
    """Raise ValueError if this is not a mapping of names to targets."""
    if not isinstance(targets, Mapping):
        raise ValueError(
            f"targets must be a mapping, as {{'mask': Mask('mask_path')}}, got {targets!r}"
        )
    for name, target in targets.items():
        if not isinstance(name, str) or isinstance(target, type) or not isinstance(target, Target):
            raise ValueError(
                "targets must be named by text, and be Masks, Boxes or your own Target, got "
                f"{name!r}: {target!r}"
            )


def check_transform(transform: object) -> None:
    """Raise ValueError if this is neither a function nor None."""
    if transform is not None and not callable(transform):
        raise ValueError(
            f"transform must be a function of (image, chance, config), or None, got {transform!r}"
        )


def time_limit(name: str, seconds: object) -> float | None:
    """Return a setting of seconds, or None for no limit; raise ValueError for other values."""
    if seconds is None:
        return None
    if not is_number(seconds):
        raise ValueError(f"{name} must be a number of seconds, or None, got {seconds!r}")
    if not 0 < float(seconds) <= TIMEOUT_MAX:
        raise ValueError(f"{name} must be positive, in seconds, got {seconds}; None is no limit")
    return float(seconds)


def check_several_names(name: str, given: Any, example: str) -> None:
    """Raise ValueError if a setting is not a collection of names, each once."""
    are_several = isinstance(given, Collection) and not isinstance(given, str)
    if not are_several or not all(isinstance(one, str) for one in given):
        raise ValueError(f"{name} must be names in a tuple, as ('{example}',), got {given!r}")
    if len(set(given)) < len(given):
        raise ValueError(f"{name} must be named once each, got {given!r}")


def check_cache(storage: object, cache: object, cache_bytes: int | None) -> None:
    """Raise ValueError if settings of remote objects are of wrong types, or one is missing."""
    if not isinstance(storage, Storage):
        raise ValueError(f"storage must be Storage(...), got {storage!r}")
    if cache is not None and not isinstance(cache, str):
        raise ValueError(f"cache must be the path of a folder, or None, got {cache!r}")
    if (cache is None) != (cache_bytes is None):
        raise ValueError(
            f"cache={cache!r} and cache_bytes={cache_bytes!r}: give both, the folder and the bytes "
            "that it may take, or none"
        )
