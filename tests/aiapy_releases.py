"""What tests use of aiapy and releases name differently: 0.10, for Python 3.11, and later ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import aiapy.psf
import numpy as np
import pytest

IS_LATER = find_spec("aiapy.utils") is not None
_UTILS = "utils" if IS_LATER else "util"
_FULL = 4096, 4096
_ON_CPU: dict[str, Any] = {} if IS_LATER else {"use_gpu": False}

get_correction_table: Any = import_module(f"aiapy.calibrate.{_UTILS}").get_correction_table
QUALITY_FLAG_MESSAGES: dict[int, str] = vars(import_module(f"aiapy.{_UTILS}.{_UTILS}"))[
    "_QUALITY_FLAG_MESSAGES"
]


def version_of(correction_table: Any) -> dict[str, Any]:
    """Return what tells `degradation` the version of a table; 0.10 takes what the table has."""
    return {"calibration_version": int(correction_table["VER_NUM"][0])} if IS_LATER else {}


def deconvolve(smap: Any, **options: Any) -> Any:
    """Deconvolve a map on the CPU."""
    return aiapy.psf.deconvolve(smap, **_ON_CPU, **options)


def small_psf(monkeypatch: pytest.MonkeyPatch, size: int) -> Callable[..., Any]:
    """Return aiapy's function of the PSF, for square frames of a size in place of 4096."""
    module: Any = sys.modules["aiapy.psf.psf"]
    if IS_LATER:
        code = module._psf.__code__
        assert _FULL in code.co_consts
        sizes = tuple((size, size) if const == _FULL else const for const in code.co_consts)
        monkeypatch.setattr(module._psf, "__code__", code.replace(co_consts=sizes))
        return aiapy.psf.calculate_psf
    # It takes their size from its first array.
    zeros = {"zeros": lambda shape, dtype: np.zeros((size, size), dtype)}
    monkeypatch.setattr(module, "np", SimpleNamespace(**{**vars(np), **zeros}))
    return partial(aiapy.psf.psf, **_ON_CPU)
