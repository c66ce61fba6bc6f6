"""Read FITS, JPEG and .npy files of an archive into named NumPy arrays.

An `Index` is the table of samples. `Order` permutes the rows in each epoch, `Shard` distributes
them, `Schedule` converts DALI's endless count of samples to epochs, and `Draws` has the random
numbers of a sample. All of these are pure functions. A `Reader` (`FitsReader`, `AiaReader`,
`JpegReader`, `NpyReader`) reads one row into one `Sample`, or raises `ReadError`; `ChannelsReader`
reads several files per row. `Source` combines a Reader, an Order and a Schedule into the callable
that DALI calls in its reader processes. Nothing here imports DALI, PyTorch or CuPy.

Names (`__init__.pyi`) are imported on first use, so a reader process only loads the modules that it
needs.
"""

import lazy_loader

DISTRIBUTION = "dali-pipelines"
"""Distinguishes this package from others named `readers`; dali_pipelines checks it."""

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
