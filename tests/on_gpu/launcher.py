"""The package's GPU operators on a real GPU, as `gpu_offline.device.Device` runs them without."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
from gpu_offline.kernels import KERNELS
from numpy.typing import NDArray

from dali_pipelines.graph.gpu.operators import Finish, ImageDecoder, Warp


class Gpu:
    """Run operators on the current GPU, batch by batch.

    Its methods are those of `gpu_offline.device.Device`.
    """

    counts: defaultdict[str, Counter[str]]
    """The ``launches`` of each kernel."""

    def __init__(self) -> None:
        self.counts = defaultdict(Counter)

    def decode(
        self, samples: Sequence[Any], dtype: str, flip: tuple[int, int], finish: Finish
    ) -> tuple[list[NDArray[Any]], list[int]]:
        """Decode the samples as one batch; return images and statuses."""
        import cupy

        with self._counted():
            names = ("shape", "payload", "plan", "scaling")
            arrays = [[cupy.asarray(sample[name]) for sample in samples] for name in names]
            arrays.append([cupy.asarray(np.array(flip, np.int32)) for _ in samples])
            images, statuses = ImageDecoder(dtype, finish)(*arrays)
        return [image.get() for image in images], [int(status.get()[0]) for status in statuses]

    def warp(self, samples: Sequence[tuple[Any, ...]], order: int) -> list[NDArray[np.float32]]:
        """Warp samples of (image, grid, matrix, ..., flip) as one batch."""
        import cupy

        with self._counted():
            columns = [[*map(cupy.asarray, arrays)] for arrays in zip(*samples, strict=True)]
            return [image.get() for image in Warp(order)(*columns)]

    def apply(self, operator: Any, *columns: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Apply the function of an operator to a batch; return its outputs of one kind."""
        import cupy

        with self._counted():
            return [out.get() for out in operator(*([*map(cupy.asarray, c)] for c in columns))]

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with ExitStack() as stack:
            for kernel in KERNELS:
                launcher = _Launcher(kernel.name, kernel.dispatcher, self.counts)
                stack.enter_context(mock.patch.object(kernel.module, kernel.name, launcher))
            yield


class _Launcher:
    """A kernel of numba that counts its launches."""

    def __init__(self, name: str, kernel: Any, counts: dict[str, Counter[str]]) -> None:
        self._name, self._kernel, self._counts = name, kernel, counts

    def __getitem__(self, config: Any) -> Callable[..., None]:
        self._counts[self._name]["launches"] += 1
        launch: Callable[..., None] = self._kernel[config]
        return launch
