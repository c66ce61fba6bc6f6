"""Run the GPU's operators in numba's CUDA simulator, as long as there are jobs.

On stdin come pickles of an operator's name and of the arguments of each job; on stdout goes, for
each, a pickle of what the operator returned.

The simulator runs each thread of a GPU as a thread of Python. Where it is on, it is on for the
whole process, so this is a program of its own. NumPy stands in for CuPy.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np


class Array(np.ndarray):
    """An array that tells its address as CuPy's do."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)


def cupy() -> ModuleType:
    module: Any = ModuleType("cupy")
    for name in ("inf", "isnan", "maximum", "stack"):
        setattr(module, name, getattr(np, name))
    module.where = lambda *arrays: np.asarray(np.where(*arrays)).view(Array)
    module.empty = lambda shape, dtype: np.full(shape, 7, dtype).view(Array)
    module.zeros = lambda shape, dtype: np.zeros(shape, dtype).view(Array)
    module.asarray = lambda array: array.view(Array)
    module.cuda = SimpleNamespace(
        get_current_stream=lambda: SimpleNamespace(ptr=0, synchronize=lambda: None),
        runtime=SimpleNamespace(getDevice=lambda: 0),
    )
    return module


def decode(
    samples: list[Any],
    dtype: str,
    flip: tuple[int, int],
    finish: tuple[tuple[float, float], ...],
) -> tuple[list[Any], list[int]]:
    """Decode the samples as one batch; give images and statuses."""
    from dali_pipelines.graph.operators_gpu import ImageDecoder

    names = ("shape", "payload", "plan", "scaling")
    arrays = [[sample[name].view(Array) for sample in samples] for name in names]
    arrays.append([np.array(flip, np.int32).view(Array) for _ in samples])
    images, statuses = ImageDecoder(dtype, finish)(*arrays)
    return [np.array(image) for image in images], [int(status[0]) for status in statuses]


def warp(samples: list[tuple[Any, ...]], order: int) -> list[Any]:
    """Warp samples of (image, grid, matrix, ..., flip) as one batch."""
    from dali_pipelines.graph.operators_gpu import Warp

    columns = ([array.view(Array) for array in arrays] for arrays in zip(*samples, strict=True))
    return [np.array(image) for image in Warp(order)(*columns)]


if __name__ == "__main__":
    assert os.environ["NUMBA_ENABLE_CUDASIM"] == "1"
    from numba import cuda

    sys.modules["cupy"] = cupy()
    cuda.external_stream = lambda _address: 0  # the simulator has none
    operators: dict[str, Callable[..., Any]] = {"decode": decode, "warp": warp}
    stdin: Any = sys.stdin.buffer
    while stdin.peek(1):
        name, jobs = pickle.load(stdin)
        pickle.dump([operators[name](*arguments) for arguments in jobs], sys.stdout.buffer)
        sys.stdout.buffer.flush()
