"""Operators from Python functions of batches of CuPy arrays, and kernel launches.

They run on DALI's stream and on the GPU of their pipeline, and do not wait for the GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import Any
from weakref import WeakKeyDictionary

from nvidia.dali import Pipeline, fn

from readers.messages import install


def python_operator(function: Callable[..., Any], inputs: list[Any], layouts: list[str]) -> Any:
    """Add an operator on batches of CuPy arrays to the pipeline under construction.

    Parameters
    ----------
    function : callable
        It takes a list of CuPy arrays for each input, and returns one for each output. During the
        call the pipeline's GPU is CuPy's current device, and DALI's stream its current stream.
    inputs : list of DataNode
        On the CPU or the GPU.
    layouts : list of str
        Layout of each output.

    Raises
    ------
    ModuleNotFoundError
        If CuPy or numba-cuda is not installed.
    """
    for name, package in (("cupy", "CuPy"), ("numba_cuda", "numba-cuda")):
        if find_spec(name) is None:
            raise ModuleNotFoundError(
                f"on a GPU, FITS, nearest pixels and some augmentations need {package}, which is "
                f"not installed: {install('gpu')}, or pass None as the device to run on the CPU"
            )
    return fn.python_function(
        *(node.gpu() for node in inputs),
        function=_placed(function, Pipeline.current().device_id),
        device="gpu",
        batch_processing=True,
        num_outputs=len(layouts),
        output_layouts=layouts,
    )


def _placed(function: Callable[..., Any], device_id: int | None) -> Callable[..., Any]:
    """Return a function that calls `function` with this GPU and DALI's stream as current in CuPy.

    With None it is the current GPU. DALI 2.4 sets the device once in each of its threads
    (``Executor2::Impl::Start``), and other code in the thread may change it. CuPy has a current
    stream for each device. DALI wraps its stream in a CuPy object, which destroys the stream if an
    error is raised, unless its pointer is cleared.
    """

    def run(*batch: Any) -> Any:
        import cupy

        stream = cupy.cuda.get_current_stream()  # it would fail after a CUDA error
        try:
            with cupy.cuda.Device(device_id), stream:
                return function(*batch)
        except BaseException:
            stream.ptr = 0
            raise

    return run


_at_close: WeakKeyDictionary[Pipeline, list[Callable[[], None]]] = WeakKeyDictionary()


def at_close(free: Callable[[], None]) -> None:
    """Register a function to call on the GPU when the pipeline under construction is closed.

    DALI 2.4 keeps the functions of operators, with the memory that they hold, until the pipeline is
    garbage-collected.
    """
    _at_close.setdefault(Pipeline.current(), []).append(free)


def free_unused(pipeline: Pipeline) -> None:
    """Free the GPU memory of a pipeline's operators and of CuPy's pool.

    The pool reuses memory only on the stream where it was allocated. Each pipeline has its own
    stream, so the pool would keep the memory of all closed pipelines.
    """
    if pipeline.device_id is not None and "cupy" in sys.modules:
        import cupy

        with suppress(cupy.cuda.runtime.CUDARuntimeError), cupy.cuda.Device(pipeline.device_id):
            for free in _at_close.pop(pipeline, ()):
                free()
            cupy.get_default_memory_pool().free_all_blocks()


def launch(kernel: Any, blocks: Any, threads: Any, *arguments: Any) -> None:
    """Launch a kernel on CuPy's current stream and device.

    Pass arrays as addresses, because numba waits for the stream of a CuPy array.
    """
    import cupy
    from numba import cuda
    from numba.cuda.core import config

    config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # small images and windows have few blocks
    stream = cuda.external_stream(cupy.cuda.get_current_stream().ptr)
    kernel[blocks, threads, stream](*arguments)
