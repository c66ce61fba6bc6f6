"""The pipeline factories: what training code imports."""

from __future__ import annotations

from typing import Any

from dali_pipelines.config import PipelineConfig
from dali_pipelines.decode import decode_array, decode_fits, decode_jpeg
from dali_pipelines.pipeline import ReaderPipeline, reader_pipeline
from readers.fits import FitsReader
from readers.index import Index
from readers.jpeg import JpegReader
from readers.npy import NpyReader


def fits_pipeline(index: Index, *, hdu: int | None = None, **config: Any) -> ReaderPipeline:
    """Make a pipeline of FITS images.

    Parameters
    ----------
    index : Index
        Rows are FITS files, or HDUs of them where there is a column ``hdu``.
    hdu : int, optional
        HDU to read, 0 for the primary; by default the first one that holds an image.
    **config
        Keyword arguments of `PipelineConfig`; ``batch_size`` is needed.

    Returns
    -------
    ReaderPipeline
        Its ``image`` has shape (batch, 1, height, width) and holds physical values (BSCALE and
        BZERO applied, NaN for BLANK), unless mean, std or resize change them. With an integer
        dtype it holds the integers as they are stored, and images of another BITPIX are rejected.
        Without crop or resize all images of a batch must be of one size.
    """
    settings = PipelineConfig(**config)
    stored = settings.dtype if settings.dtype in ("uint8", "int16", "int32") else None
    return reader_pipeline(index, FitsReader(hdu, stored), decode_fits, settings)


def jpeg_pipeline(index: Index, **config: Any) -> ReaderPipeline:
    """Make a pipeline of JPEG or PNG images.

    Parameters
    ----------
    index : Index
        Rows are image files.
    **config
        Keyword arguments of `PipelineConfig`; ``batch_size`` is needed.

    Returns
    -------
    ReaderPipeline
        Its ``image`` has shape (batch, 3, height, width), RGB, 0 to 255 unless mean or std change
        that. Without crop or resize all images of a batch must be of one size.
    """
    return reader_pipeline(index, JpegReader(), decode_jpeg, PipelineConfig(**config))


def npy_pipeline(
    index: Index, *, file_dtype: str = "float32", channels: int = 1, **config: Any
) -> ReaderPipeline:
    """Make a pipeline of .npy files of shape (height, width[, channels]).

    Parameters
    ----------
    index : Index
        Rows are .npy files.
    file_dtype : str
        NumPy name of the element type of all files.
    channels : int
        Size of the last axis, 1 for two-dimensional arrays.
    **config
        Keyword arguments of `PipelineConfig`; ``batch_size`` is needed.
    """
    reader = NpyReader(file_dtype, channels)
    return reader_pipeline(index, reader, decode_array, PipelineConfig(**config))
