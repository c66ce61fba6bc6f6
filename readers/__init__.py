"""Read FITS, JPEG and .npy files of an archive into named NumPy arrays.

An `Index` is the table of samples. `Order` permutes its rows in each epoch, `Shard` distributes
them, `Schedule` converts DALI's endless count to epochs, and `Draws` are the random numbers of a
sample: all of them pure functions. A `Reader` (`FitsReader`, `AiaReader`, `JpegReader`,
`NpyReader`) reads one row into one `Sample`, or raises `ReadError`; `ChannelsReader` reads several
files per row. `Source` combines them into the callable that DALI calls in its reader processes.
Nothing here imports DALI, PyTorch or CuPy.

Names are imported on first use, so that a reader process loads no more than it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from readers.aia.degradation import CorrectionTable
    from readers.aia.pointing import PointingTable
    from readers.aia.reader import AiaReader
    from readers.aia.rules import HeaderRules
    from readers.channels import ChannelsReader
    from readers.contract import Peek, Reader, Row, Sample, SampleSpec
    from readers.errors import ReadError
    from readers.fits.reader import FitsReader
    from readers.index.columns import Columns
    from readers.index.table import Index
    from readers.jpeg.reader import JpegReader
    from readers.npy import NpyReader
    from readers.sampling.draws import Draws
    from readers.sampling.order import Order
    from readers.sampling.schedule import Schedule, Slot, Tail
    from readers.sampling.shard import Shard
    from readers.source import Source
    from readers.window import Window
    from readers.worker.read_report import ReadReport

DISTRIBUTION = "dali-pipelines"
"""Tells this package from any other that is called `readers`; checked by dali_pipelines."""

_MODULES = {
    "AiaReader": "aia.reader",
    "ChannelsReader": "channels",
    "Columns": "index.columns",
    "CorrectionTable": "aia.degradation",
    "Draws": "sampling.draws",
    "FitsReader": "fits.reader",
    "HeaderRules": "aia.rules",
    "Index": "index.table",
    "JpegReader": "jpeg.reader",
    "NpyReader": "npy",
    "Order": "sampling.order",
    "Peek": "contract",
    "PointingTable": "aia.pointing",
    "ReadError": "errors",
    "ReadReport": "worker.read_report",
    "Reader": "contract",
    "Row": "contract",
    "Sample": "contract",
    "SampleSpec": "contract",
    "Schedule": "sampling.schedule",
    "Shard": "sampling.shard",
    "Slot": "sampling.schedule",
    "Source": "source",
    "Tail": "sampling.schedule",
    "Window": "window",
}

__all__ = [
    "AiaReader",
    "ChannelsReader",
    "Columns",
    "CorrectionTable",
    "Draws",
    "FitsReader",
    "HeaderRules",
    "Index",
    "JpegReader",
    "NpyReader",
    "Order",
    "Peek",
    "PointingTable",
    "ReadError",
    "ReadReport",
    "Reader",
    "Row",
    "Sample",
    "SampleSpec",
    "Schedule",
    "Shard",
    "Slot",
    "Source",
    "Tail",
    "Window",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"readers.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
