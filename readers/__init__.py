"""Read FITS, JPEG and .npy files of an archive into named NumPy arrays.

An `Index` is the table of samples. `Order` permutes its rows in each epoch, `Shard` distributes
them, `Schedule` converts DALI's endless count to epochs, and `Draws` has the random numbers of a
sample; all of these are pure functions. A `Reader` (`FitsReader`, `AiaReader`, `JpegReader`,
`NpyReader`) reads one row into one `Sample`, or raises `ReadError`; `ChannelsReader` reads several
files per row. `Source` combines them into the callable that DALI calls in its reader processes.
Nothing here imports DALI, PyTorch or CuPy.

Names (`__init__.pyi`) are imported on first use, so that a reader process loads only what it needs.
"""

import lazy_loader

DISTRIBUTION = "dali-pipelines"
"""Distinguishes this package from others named `readers`; dali_pipelines checks it."""

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
