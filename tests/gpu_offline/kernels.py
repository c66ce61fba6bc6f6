"""The CUDA kernels of the package: how they are launched, and what their code depends on."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import pkgutil
import textwrap
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from numba import types
from numba.cuda.dispatcher import CUDADispatcher

from dali_pipelines import kernels
from dali_pipelines.kernels import stretch_cuda
from dali_pipelines.kernels.augment import color_cuda, noise_cuda
from dali_pipelines.kernels.fits import image_cuda
from dali_pipelines.kernels.fits.image_cuda_table import WARP
from dali_pipelines.kernels.resample import prefilter_cuda, warp_cuda

_WORD, _REAL = types.int64, types.float32  # what numba makes of Python's int, and of np.float32
_PREFILTER = prefilter_cuda.THREADS


class Kernel(NamedTuple):
    """A kernel, and how the package launches it."""

    module: ModuleType
    name: str
    types: tuple[Any, ...]
    """numba's types of its arguments."""
    threads: int
    """Threads of a block."""

    @property
    def dispatcher(self) -> Any:
        """What numba made of the kernel's function."""
        return getattr(self.module, self.name)


KERNELS = (
    Kernel(image_cuda, "decode_images", (*[_WORD] * 3, _REAL, _REAL, _WORD), WARP),
    Kernel(prefilter_cuda, "prefilter_rows", (_WORD,), _PREFILTER),
    Kernel(prefilter_cuda, "set_limits", (_WORD, _WORD), _PREFILTER),
    Kernel(prefilter_cuda, "prefilter_columns", (_WORD,), _PREFILTER),
    Kernel(warp_cuda, "warp", (_WORD,), warp_cuda.BLOCK[0] * warp_cuda.BLOCK[1]),
    Kernel(color_cuda, "sum_gray", (_WORD,), color_cuda.THREADS),
    Kernel(color_cuda, "retouch", (_WORD,), color_cuda.THREADS),
    Kernel(noise_cuda, "add_noise", (_WORD,), noise_cuda.THREADS),
    Kernel(noise_cuda, "add_photon_noise", (_WORD,), noise_cuda.THREADS),
    Kernel(stretch_cuda, "stretch_images", (_WORD,) * 3, stretch_cuda.THREADS),
)


def kernels_of_the_package() -> set[tuple[str, str]]:
    """Search `dali_pipelines.kernels` for kernels; return the module and name of each."""
    found = set()
    for module in pkgutil.walk_packages(kernels.__path__, f"{kernels.__name__}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, CUDADispatcher) and value.py_func.__module__ == module.name:
                found.add((module.name, name))
    return found


def fingerprint(kernel: Kernel) -> str:
    """Hash the source of a kernel with all functions and constants that it uses.

    Comments, docstrings and layout do not count, and neither do the versions of numba and CUDA.
    """
    parts: dict[str, str] = {}
    _add_function(kernel.dispatcher.py_func, parts)
    return hashlib.sha256("\n".join(sorted(parts.values())).encode()).hexdigest()[:12]


def _add_function(function: FunctionType, parts: dict[str, str]) -> None:
    name = f"{function.__module__}.{function.__qualname__}"
    if name in parts:
        return
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    parts[name] = f"{name}: {ast.unparse(tree)}"
    for used in function.__code__.co_names:
        value = function.__globals__.get(used)
        inner = getattr(value, "py_func", getattr(value, "_defn", value))  # compiled, or intrinsic
        if isinstance(inner, FunctionType):
            _add_function(inner, parts)
        elif isinstance(value, (int, float, tuple)) or type(value).__module__ == "numpy":
            parts[f"{name} {used}"] = f"{used} = {value!r}"
