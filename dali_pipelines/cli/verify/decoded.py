"""Images as the pipeline decodes them, file by file; files that kill a reader are found."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.errors import one_line
from dali_pipelines.cli.single_rows import Rejections, num_processes, single_rows
from dali_pipelines.parallel.interpreter import Crash
from dali_pipelines.parallel.task_map import isolated_map

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from dali_pipelines import Index, Loader
    from dali_pipelines.cli.verify.config import VerifyConfig
    from dali_pipelines.cli.verify.placed import PlacedReader
    from dali_pipelines.config import PipelineConfig
    from dali_pipelines.graph.decode import Decoded
    from dali_pipelines.graph.pipeline import ReaderPipeline
    from readers.contract import Row
    from readers.places.storage import Storage

READ_AHEAD = 16
"""Rows that readers may have begun before the first of them is delivered; more do no harm."""


def decoded_rows(
    kind: str, index: Index, rows: Sequence[Row], config: VerifyConfig, device: int | None
) -> Generator[tuple[NDArray[np.float32] | None, str], None, None]:
    """Return what the pipeline makes of each file, or None and why it makes nothing of it."""
    from dali_pipelines.cli.verify.placed import PlacedReader
    from dali_pipelines.runtime.processes.reader_processes import ReaderProcessError
    from readers.fits.reader import FitsReader
    from readers.jpeg.reader import JpegReader

    of_kind = FitsReader(config.hdu) if kind == "fits" else JpegReader(check_entropy=True)
    reader = PlacedReader(of_kind, config.window)
    killers: dict[int, str] = {}
    done, rejections = 0, Rejections()
    loader = _loader(index, reader, device, killers, config.storage)
    while done < len(rows):
        try:
            with loader:
                for (batch,) in loader:
                    refusal = rejections.reason(loader, done)
                    done += 1
                    if refusal is None:
                        image = batch["image"][0].cpu().numpy()
                        yield image[0] if kind == "fits" else image, ""
                    else:
                        yield None, one_line(refusal)
                    del batch  # what is held here cannot be reused for the next one
        except ReaderProcessError:
            found = _killers(reader, rows[done : done + READ_AHEAD])
            if not found:
                raise
            killers |= found
            state = loader.state_dict()
            loader = _loader(index, reader, device, killers, config.storage)
            loader.load_state_dict(state)


def _killers(reader: PlacedReader, rows: Sequence[Row]) -> dict[int, str]:
    """Return the rows that kill the process that reads them."""
    from dali_pipelines.cli.verify.placed import try_read

    reads = isolated_map(try_read, ((reader, row) for row in rows), num_processes(rows))
    return {
        row.number: "it kills the process that reads it"
        for row, outcome in zip(rows, reads, strict=True)
        if isinstance(outcome, Crash)
    }


def _loader(
    index: Index,
    reader: PlacedReader,
    device: int | None,
    killers: dict[int, str],
    storage: Storage,
) -> Loader:
    from dali_pipelines.config import PipelineConfig
    from dali_pipelines.graph.decode import decode_fits, decode_jpeg
    from dali_pipelines.graph.pipeline import reader_pipeline

    def decode_image(arrays: Mapping[str, Any], config: PipelineConfig) -> Decoded:
        # The window is not the pipeline's, but the reader's.
        crop = None if reader.place is None else (reader.place.height, reader.place.width)
        return decode_jpeg(arrays, dataclasses.replace(config, crop=crop))

    decode = decode_fits if reader.channels == 1 else decode_image

    def factory(index: Index, **config: Any) -> ReaderPipeline:
        return reader_pipeline(index, reader, decode, PipelineConfig(**config))

    return single_rows(factory, index, device, killers, storage=storage)
