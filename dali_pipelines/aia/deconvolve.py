"""Richardson-Lucy deconvolution on the CPU and on a GPU, as in `aiapy.psf.deconvolve`.

The same code runs with NumPy and SciPy, or with CuPy, depending on the type of the arrays. It never
waits for the GPU. The extra ``aia`` has SciPy, and ``gpu`` has CuPy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from readers.messages import install

WORKING = 8.25
"""Maximum number of images that a `Deconvolver` holds on a GPU: observed, model, estimate, ratio,
two steps, a spectrum, the conjugate transfer function; and the mask, a quarter of an image."""

_COMPLEX = {np.dtype(np.float32): np.complex64, np.dtype(np.float64): np.complex128}


@dataclass(frozen=True, eq=False, kw_only=True)
class Deconvolver:
    r"""Deconvolution with one PSF. Its transfer function is computed once, see `of`.

    Notes
    -----
    :math:`x \leftarrow x \cdot P^T (y / P x)`, where :math:`y` is the image, :math:`P` the
    convolution with the PSF, and initially :math:`x = y`: Richardson 1972, Lucy 1974, as in
    `aiapy.psf.deconvolve`. Negative pixels of :math:`y` are set to 0 first. As in aiapy the
    convolution is circular: light that leaves the image on the left enters on the right.

    There are two differences from aiapy. First, where :math:`P x` is smaller than the rounding
    errors of an FFT, it is replaced by their size. So frames of zeros stay zero instead of becoming
    NaN. Second, pixels that are not finite are ignored: they start as the PSF-weighted mean of the
    finite pixels around them, and their quotient is 1, so that they do not constrain :math:`x`.
    This is the expectation-maximisation algorithm with missing data. In the result they are NaN.
    """

    transfer: Any
    """Fourier transform of the PSF by `rfft2`: complex, shape (height, width // 2 + 1), about as
    many bytes as an image."""
    shape: tuple[int, int]
    """(height, width) of the images."""
    iterations: int = 25
    workers: int = 1
    """Threads of the FFT on the CPU."""
    plans: dict[Any, Any] = field(default_factory=dict, repr=False)
    """Plans of cuFFT on a GPU, by dtype, made for the first frame. CuPy's own cache is per Python
    thread, and DALI makes a new thread for each batch. The plans belong to one stream."""

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise ValueError(f"iterations must be at least 1, got {self.iterations}")

    @classmethod
    def of(cls, psf: Any, *, dtype: DTypeLike = np.float32, **options: Any) -> Deconvolver:
        """Make the deconvolution with a PSF.

        Parameters
        ----------
        psf : ndarray of NumPy or CuPy, shape (height, width)
            PSF centred on pixel (height // 2, width // 2), on the device of the images.
        dtype : float32 or float64
            Type of the computation and the result. In float32, 25 iterations come within 1e-4 of
            float64 for pixels above 1 DN (5e-5 on the sample frames).
        **options
            `iterations` and `workers`.
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
            Floats or integers, on the device of `transfer`. The image is not changed.

        Returns
        -------
        ndarray, shape (height, width)
            Array of the dtype of the computation, on the same device. If all pixels are finite and
            none is negative, its sum equals the sum of the image, up to rounding errors.

        Raises
        ------
        ValueError
            If the image has another shape.
        TypeError
            If the image is on another device.
        """
        if image.shape != self.shape:
            raise ValueError(f"image must have the PSF's shape {self.shape}, got {image.shape}")
        xp = array_module(image)
        if xp is not array_module(self.transfer):
            raise TypeError(
                f"image must be an array on the device of the PSF: expected "
                f"{type(self.transfer)}, got {type(image)}"
            )
        blur = partial(self._convolve, transfer=self.transfer)
        observed = image.astype(self.transfer.real.dtype)
        missing = ~xp.isfinite(observed)
        if xp is not np or missing.any():  # missing.any() would wait for a GPU
            _fill(xp, observed, missing, blur)
        xp.maximum(observed, 0, out=observed)  # Richardson-Lucy assumes non-negative data
        limits = np.finfo(observed.dtype)
        floor = xp.maximum(limits.eps * xp.abs(observed).max(), limits.tiny)
        # The first convolution is in float64, and the others convolve only changes: rounding errors
        # of an FFT grow with the brightest pixels, and would hide dim pixels.
        model = blur(observed.astype(np.float64)).astype(observed.dtype)
        estimate = observed.copy()
        adjoint = partial(self._convolve, transfer=self.transfer.conj())
        level = 1 / self.transfer[0, 0].real  # nearly 1; the adjoint maps it to 1
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
        """Multiply the spectrum of a real image by a transfer function, and transform back."""
        if array_module(array) is not np:
            return _convolve_on_gpu(array, transfer, self.plans)
        fft, workers = scipy_fft(), self.workers
        # Axis by axis, because rfft2 and irfft2 cannot overwrite their input: this takes a third of
        # the time, and one spectrum less of memory.
        spectrum = fft.fft(
            fft.rfft(array, workers=workers), axis=0, overwrite_x=True, workers=workers
        )
        spectrum *= transfer
        columns = fft.ifft(spectrum, axis=0, overwrite_x=True, workers=workers)
        return fft.irfft(columns, array.shape[1], workers=workers)


def _fill(xp: Any, image: Any, missing: Any, blur: Callable[[Any], Any]) -> None:
    """Set missing pixels to the PSF-weighted mean of the others around them."""
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
    """Import `scipy.fft`, or raise an ImportError with the command that installs it."""
    try:
        import scipy.fft
    except ImportError as error:
        raise ImportError(f"deconvolution on the CPU needs SciPy: {install('aia')}") from error
    return scipy.fft
