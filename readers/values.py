"""Checks of settings: True is not the number 1, and "False" is not False."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import TypeGuard

import numpy as np


def is_integer(value: object, least: float = -math.inf) -> TypeGuard[int]:
    """Return whether a value is an integer of at least `least`, of Python or NumPy, not a bool."""
    if type(value) is int:  # the usual case: a check of Integral is slow
        return value >= least
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a number, of Python or NumPy, not a bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_integer(name: str, value: object, least: int, most: int | None = None) -> None:
    """Raise ValueError if a setting is not an integer in [least, most]."""
    if not is_integer(value, least) or (most is not None and int(value) > most):
        limits = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be an integer, {limits}, got {value!r}")


def check_number(
    name: str, value: object, least: float = -math.inf, most: float = math.inf
) -> None:
    """Raise ValueError if a setting is not a number in [least, most]."""
    if not is_number(value) or not least <= float(value) <= most:
        limits = f" from {least:g}" * (least > -math.inf)
        limits += f" to {most:g}" if most < math.inf else " on" * bool(limits)
        raise ValueError(f"{name} must be a number{limits}, got {value!r}")


def check_positive(name: str, value: object) -> None:
    """Raise ValueError if a setting is not a finite number above 0."""
    if not is_number(value) or not 0 < float(value) < math.inf:
        raise ValueError(f"{name} must be a positive number, got {value!r}")


def check_bool(name: str, value: object) -> None:
    """Raise ValueError if a setting is not True or False, of Python or NumPy."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}")
