"""PSF deconvolution in the graph, after decoding and before registration, on the CCD's grid.

It runs in Python, frame by frame. On a GPU CuPy launches on DALI's stream. On the CPU SciPy takes
10 s or more per frame, without the GIL during the transforms.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from nvidia.dali import fn

from dali_pipelines.aia.deconvolve import Deconvolver, array_module, scipy_fft
from dali_pipelines.aia.psf import FRAME_SHAPE, cached_psf, check_psf_channel
from dali_pipelines.graph.gpu.cupy_operator import at_close, python_operator


def deconvolve_node(
    image: Any,
    wavelnth: Any,
    channels: tuple[int, ...],
    *,
    num_threads: int = 1,
) -> Any:
    """Add a `Deconvolver` with the PSF of each frame's channel to the graph.

    The PSFs are made here, so that errors come before anything runs. Each takes 2 s, unless it is
    in the user's cache folder.

    Parameters
    ----------
    image : DataNode
        float32, layout HWC, shape (4096, 4096, 1): whole AIA frames, not yet registered.
    wavelnth : DataNode
        Integer of one element on the CPU: the frame's channel in angstrom, from WAVELNTH. Pass
        ``types.Constant(171, device="cpu")`` for a single channel.
    channels : tuple of int
        Possible values of `wavelnth`. Each takes 67 MB per process and per GPU.

    Returns
    -------
    DataNode
        Like `image`, on the same device. Frames of another shape or channel become NaN, because an
        error in the graph would end the pipeline. They are placeholders of rows that could not be
        read; readers must reject files of another shape or channel.

    Raises
    ------
    ValueError
        If a channel has no PSF.
    ImportError
        If SciPy, or on a GPU CuPy, is missing.
    """
    gpu = image.device == "gpu"
    if not gpu:
        scipy_fft()
    for channel in channels:
        check_psf_channel(channel)
    for channel in channels:
        _deconvolver(channel, None)
    function = FrameDeconvolver(channels, num_threads)
    if gpu:
        at_close(function.plans.clear)
        return python_operator(function, [image, wavelnth], ["HWC"])
    return fn.python_function(
        image, wavelnth, function=function, batch_processing=True, output_layouts="HWC"
    )


@dataclass(frozen=True)
class FrameDeconvolver:
    """Function for fn.python_function that deconvolves a batch of NumPy or CuPy arrays."""

    channels: tuple[int, ...]
    workers: int
    plans: dict[Any, Any] = field(default_factory=dict, repr=False)
    """Plans of the FFT, see `Deconvolver`. All frames share them, as they run on one stream."""

    def __call__(self, images: list[Any], wavelnths: list[Any]) -> list[Any]:
        """Deconvolve a batch of images, each by the PSF of its channel."""
        return [self._frame(*frame) for frame in zip(images, wavelnths, strict=True)]

    def _frame(self, image: Any, wavelnth: Any) -> Any:
        shared = self._of(wavelnth) if image.shape == (*FRAME_SHAPE, 1) else None
        if shared is None:
            blank = image.copy()
            blank[...] = np.nan
            return blank
        deconvolver = replace(shared, workers=self.workers, plans=self.plans)
        return deconvolver(image[..., 0])[..., None]

    def _of(self, wavelnth: Any) -> Deconvolver | None:
        """Return the deconvolution of a frame's channel.

        If the channel has none, this is None on a CPU, and a deconvolution to NaN on a GPU.
        """
        xp, one = array_module(wavelnth), wavelnth.reshape(1)
        if xp is np:
            return _deconvolver(int(one[0]), None) if one[0] in self.channels else None
        # DALI has one lock for the Python functions of all GPUs, and waiting for the number would
        # block them. Therefore the GPU selects the transfer function.
        known = {channel: _deconvolver(channel, wavelnth.device.id) for channel in self.channels}
        first = known[self.channels[0]]
        transfer = xp.full_like(first.transfer, np.nan)
        for channel, deconvolver in known.items():
            xp.copyto(transfer, deconvolver.transfer, where=one == channel)
        return replace(first, transfer=transfer)


@cache
def _deconvolver(channel: int, device: int | None) -> Deconvolver:
    """Return the deconvolution of a channel: on the current GPU, or on the CPU if None."""
    if device is None:
        return Deconvolver.of(cached_psf(channel, shape=FRAME_SHAPE))
    import cupy

    host = _deconvolver(channel, None)
    resident = replace(host, transfer=cupy.asarray(host.transfer))
    cupy.cuda.get_current_stream().synchronize()  # once: other pipelines have other streams
    return resident
