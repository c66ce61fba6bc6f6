"""Richardson-Lucy deconvolution, as in `aiapy.psf.deconvolve`, on the CPU and on a GPU.

One definition for both: the type of the arrays decides between NumPy with SciPy, and CuPy. No frame
waits for the GPU.
SciPy comes with ``pip install 'dali-pipelines[aia]'``, CuPy with ``'dali-pipelines[gpu]'``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

WORKING = 8.25
"""Images that a `Deconvolver` holds at most on a GPU: observed, model, estimate, ratio, two steps,
a spectrum and the conjugate transfer function; and the mask."""

_COMPLEX = {np.dtype(np.float32): np.complex64, np.dtype(np.float64): np.complex128}


@dataclass(frozen=True, eq=False, kw_only=True)
class Deconvolver:
    r"""The deconvolution with one PSF, whose transfer function is computed once; see `of`.

    Notes
    -----
    :math:`x \leftarrow x \cdot P^T (y / P x)`, where :math:`y` is the image, :math:`P` the
    convolution with the PSF and :math:`x = y` at first: Richardson 1972, Lucy 1974, as in
    `aiapy.psf.deconvolve`. Negative pixels of :math:`y` are set to 0 before. The convolution is
    circular, as there: light that leaves the image on the left enters on the right.

    It differs from aiapy's in two ways. Where :math:`P x` is smaller than the rounding errors of
    an FFT, it is replaced by their size, so that frames of zeros stay zero instead of becoming NaN.
    And pixels that are not finite are left out. They start as the mean of the finite ones
    around them, weighted by the PSF. They are part of :math:`x`, but do not constrain it: there the
    quotient is 1, as in the expectation-maximisation algorithm with missing data, of which this is
    a case. In the result they are NaN.
    """

    transfer: Any
    """Fourier transform of the PSF by `rfft2`: complex, (height, width // 2 + 1). About as many
    bytes as an image."""
    shape: tuple[int, int]
    """(height, width) of the images."""
    iterations: int = 25
    workers: int = 1
    """Threads of the FFT on the CPU."""
    plans: dict[Any, Any] = field(default_factory=dict, repr=False)
    """cuFFT's plans on a GPU, by dtype, made by the first frame. CuPy keeps them for each thread of
    Python, of which DALI makes one for each batch. Their work areas are for one stream."""

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise ValueError(f"iterations must be at least 1, got {self.iterations}")

    @classmethod
    def of(cls, psf: Any, *, dtype: DTypeLike = np.float32, **options: Any) -> Deconvolver:
        """Make the deconvolution with a PSF.

        Parameters
        ----------
        psf : ndarray of NumPy or CuPy, shape (height, width)
            Centred on pixel (height // 2, width // 2); on the device where the images will be.
        dtype : float32 or float64
            Of the computation and of its result. In float32, 25 iterations come within 1e-4 of
            float64 where pixels are above 1 DN (5e-5 on the sample frames).
        **options
            iterations and workers.
        """
        if np.dtype(dtype) not in _COMPLEX:
            raise ValueError(f"dtype must be float32 or float64, got {np.dtype(dtype)}")
        xp = array_module(psf)
        if psf.ndim != 2:
            raise ValueError(f"psf must have shape (height, width), got {psf.shape}")
        transfer = xp.fft.rfft2(xp.fft.ifftshift(psf)).astype(_COMPLEX[np.dtype(dtype)])
        return cls(transfer=transfer, shape=psf.shape, **options)

    def __call__(self, image: Any) -> Any:
        """Deconvolve an image.

        Parameters
        ----------
        image : ndarray of NumPy or CuPy, shape (height, width)
            Real or integer, where `transfer` is. It is not changed.

        Returns
        -------
        ndarray, shape (height, width)
            Of the dtype of the computation, on the same device. With the same sum, up to rounding
            errors, if all pixels are finite and none is negative.

        Raises
        ------
        ValueError
            If the image has another shape.
        TypeError
            If it is on another device.
        """
        if image.shape != self.shape:
            raise ValueError(f"image must have the PSF's shape {self.shape}, got {image.shape}")
        xp = array_module(image)
        if xp is not array_module(self.transfer):
            raise TypeError(
                f"image must be where the PSF is: expected {type(self.transfer)}, got {type(image)}"
            )
        blur = partial(self._convolve, transfer=self.transfer)
        observed = image.astype(self.transfer.real.dtype)
        missing = ~xp.isfinite(observed)
        if xp is not np or missing.any():  # to know whether there are any, a GPU must be waited for
            _fill(xp, observed, missing, blur)
        xp.maximum(observed, 0, out=observed)  # Richardson-Lucy assumes non-negative data
        limits = np.finfo(observed.dtype)
        floor = xp.maximum(limits.eps * xp.abs(observed).max(), limits.tiny)
        # The first convolution is in float64; after it only changes are convolved: the rounding
        # errors of an FFT grow with the brightest pixels, and would hide dim ones.
        model = blur(observed.astype(np.float64)).astype(observed.dtype)
        estimate = observed.copy()
        adjoint = partial(self._convolve, transfer=self.transfer.conj())
        level = 1 / self.transfer[0, 0].real  # the adjoint turns it into 1: it is nearly 1
        for _ in range(self.iterations):
            ratio = model.copy()
            xp.copyto(ratio, floor, where=xp.abs(ratio) < floor)
            xp.divide(observed, ratio, out=ratio)
            xp.copyto(ratio, 1, where=missing)
            ratio -= level
            step = adjoint(ratio)
            step *= estimate
            estimate += step
            model += blur(step)
        xp.copyto(estimate, np.nan, where=missing)
        return estimate

    def _convolve(self, array: Any, transfer: Any) -> Any:
        """Multiply the spectrum of a real image by a transfer function; return the image of it."""
        if array_module(array) is not np:
            return _convolve_on_gpu(array, transfer, self.plans)
        fft, workers = scipy_fft(), self.workers
        # Axis by axis, as rfft2 and irfft2 do not overwrite: a third of the time, and one spectrum
        # less in memory.
        spectrum = fft.fft(
            fft.rfft(array, workers=workers), axis=0, overwrite_x=True, workers=workers
        )
        spectrum *= transfer
        columns = fft.ifft(spectrum, axis=0, overwrite_x=True, workers=workers)
        return fft.irfft(columns, array.shape[1], workers=workers)


def _fill(xp: Any, image: Any, missing: Any, blur: Callable[[Any], Any]) -> None:
    """Set missing pixels to the mean of the others, weighted by the PSF around them."""
    xp.copyto(image, 0, where=missing)
    weight = xp.maximum(blur((~missing).astype(image.dtype)), np.finfo(image.dtype).eps)
    xp.copyto(image, blur(image) / weight, where=missing)


def array_module(array: Any) -> Any:
    """Return the module of an array, numpy or cupy."""
    if hasattr(array, "__cuda_array_interface__"):
        import cupy

        return cupy
    if isinstance(array, np.ndarray):
        return np
    raise TypeError(f"expected an array of NumPy or CuPy, got {type(array)}")


def _convolve_on_gpu(array: Any, transfer: Any, plans: dict[Any, Any]) -> Any:
    from cupyx.scipy.fft import get_fft_plan, irfft2, rfft2

    there, back = plans.get(array.dtype) or (get_fft_plan(array, value_type="R2C"), None)
    spectrum = rfft2(array, plan=there)
    back = back or get_fft_plan(spectrum, array.shape, value_type="C2R")
    plans[array.dtype] = there, back
    spectrum *= transfer
    return irfft2(spectrum, array.shape, overwrite_x=True, plan=back)


def scipy_fft() -> Any:
    """Import `scipy.fft`, or raise an ImportError that says how to install it."""
    try:
        import scipy.fft
    except ImportError as error:
        raise ImportError(
            "the deconvolution needs SciPy on the CPU: pip install 'dali-pipelines[aia]'"
        ) from error
    return scipy.fft
