"""DALI pipelines fed by parallel readers of FITS and JPEG archives.

`Index` says what is read, a factory (`fits_pipeline`, `jpeg_pipeline`, `aia_pipeline`,
`npy_pipeline`) makes a DALI pipeline for one device, and `Loader` gives epochs of batches over
several of them. For a format of your own, write a Reader (see `readers.npy`) and give it to
`reader_pipeline`.

Importing does nothing: no CUDA context, no process, no environment variable.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import readers

if getattr(readers, "DISTRIBUTION", None) != "dali-pipelines":
    raise ImportError(
        f"dali_pipelines needs its own package 'readers', but Python found {readers.__file__}: "
        "rename that file or folder, or put it behind the installed packages on sys.path"
    )

from dali_pipelines.aia.calibration import Calibration
from dali_pipelines.aia.preset import Preset, load_preset, preset_names
from dali_pipelines.config import PipelineConfig
from dali_pipelines.jpeg_index import with_mcu_rows
from dali_pipelines.loading.stats import LoaderStats, Rejected
from dali_pipelines.runtime.job import Ranks
from dali_pipelines.runtime.reader_processes import ReaderProcessError
from dali_pipelines.settings import AiaSettings, PipelineSettings
from dali_pipelines.stretch import Stretch
from readers import (
    AiaReader,
    ChannelsReader,
    CorrectionTable,
    FitsReader,
    HeaderRules,
    Index,
    JpegReader,
    NpyReader,
    PointingTable,
    ReadError,
    ReadReport,
)

if TYPE_CHECKING:
    from dali_pipelines.cli.samples.sets import fits_samples, jpeg_samples
    from dali_pipelines.factories import aia_pipeline, fits_pipeline, jpeg_pipeline, npy_pipeline
    from dali_pipelines.graph.decode import Decoded, decode_array
    from dali_pipelines.graph.pipeline import ReaderPipeline, reader_pipeline
    from dali_pipelines.loader import Loader

__all__ = [
    "AiaReader",
    "AiaSettings",
    "Calibration",
    "ChannelsReader",
    "CorrectionTable",
    "Decoded",
    "FitsReader",
    "HeaderRules",
    "Index",
    "JpegReader",
    "Loader",
    "LoaderStats",
    "NpyReader",
    "PipelineConfig",
    "PipelineSettings",
    "PointingTable",
    "Preset",
    "Ranks",
    "ReadError",
    "ReadReport",
    "ReaderPipeline",
    "ReaderProcessError",
    "Rejected",
    "Stretch",
    "aia_pipeline",
    "decode_array",
    "fits_pipeline",
    "fits_samples",
    "jpeg_pipeline",
    "jpeg_samples",
    "load_preset",
    "npy_pipeline",
    "preset_names",
    "reader_pipeline",
    "with_mcu_rows",
]

_LAZY = {
    "Decoded": "graph.decode",
    "Loader": "loader",
    "ReaderPipeline": "graph.pipeline",
    "aia_pipeline": "factories",
    "decode_array": "graph.decode",
    "fits_pipeline": "factories",
    "fits_samples": "cli.samples.sets",
    "jpeg_pipeline": "factories",
    "jpeg_samples": "cli.samples.sets",
    "npy_pipeline": "factories",
    "reader_pipeline": "graph.pipeline",
}
"""Names that need DALI or PyTorch, and their modules: imported when they are asked for. These take
2 s, which processes that only decode and calibrate need not pay."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"dali_pipelines.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
