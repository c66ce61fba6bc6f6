"""Files, or one window of each at fixed pixels, as the pipeline decodes them, for `verify`.

Reader processes import this module. Files that kill a reader are identified.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.errors import one_line
from dali_pipelines.cli.single_rows import Rejections, num_processes, single_rows
from dali_pipelines.parallel.interpreter import Crash
from dali_pipelines.parallel.task_map import isolated_map
from readers.audio.reader import AudioReader, sound_facts
from readers.chunks.array import NOTE, unpacked
from readers.chunks.reader import ChunkedReader
from readers.contract import Peek, Row, Sample, SampleSpec
from readers.errors import ReadError
from readers.fits.reader import FitsReader
from readers.jpeg.reader import JpegReader
from readers.window import Window

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from dali_pipelines import Index, Loader
    from dali_pipelines.cli.verify.config import Area, VerifyConfig
    from dali_pipelines.config import PipelineConfig
    from dali_pipelines.graph.decode import DecodeAll, Decoded
    from dali_pipelines.graph.pipeline import ReaderPipeline
    from readers.places.storage import Storage

READ_AHEAD = 16
"""Number of rows that readers may begin before the first one is delivered; more do no harm."""


@dataclass(frozen=True)
class PlacedReader:
    """Reads with another Reader, as if each file had only the window."""

    reader: FitsReader | JpegReader | ChunkedReader | SoundReader
    place: Area | None
    """The whole image if None. ReadError if an image does not contain the window."""

    @property
    def channels(self) -> int:
        """Channels of the Reader."""
        return self.reader.channels

    @property
    def specs(self) -> tuple[SampleSpec, ...]:
        """Specs of the Reader."""
        return self.reader.specs

    @property
    def notes(self) -> tuple[str, ...]:
        """Columns of the Index that the Reader needs."""
        return getattr(self.reader, "notes", ())

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read the window `place`, or the whole image."""
        del window  # the pipeline is made without a crop
        return self.reader.read(row, self._window(row))

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Read as much of the file as needed for the size of the window."""
        window = self._window(row)
        peek = self.reader.peek(row, window)
        return peek if window is None else replace(peek, height=window.height, width=window.width)

    def verify(self, row: Row) -> None:
        """Decode the whole image."""
        self.reader.verify(row)

    def blank(self, height: int, width: int) -> Sample:
        """Return the smallest sample: the size is arbitrary, because a batch has one sample.

        The header of a damaged file may claim more pixels than fit into memory.
        """
        del height, width
        return self.reader.blank(1, 1)

    def _window(self, row: Row) -> Window | None:
        if self.place is None:
            return None
        image = self.reader.peek(row, None)
        try:
            self.place.check(image.height, image.width)
        except ValueError as error:
            raise ReadError(row.name, str(error), hdu=row.hdu, row=row.number) from error
        return Window.at(*self.place, image=(image.height, image.width))


@dataclass(frozen=True)
class SoundReader:
    """Reads each recording as it is stored: at its own rate, with all of its channels."""

    channels = 2
    """Number of channels for the graph, so that it transposes; a recording may have another."""

    @property
    def specs(self) -> tuple[SampleSpec, ...]:
        """Specs of an AudioReader."""
        return AudioReader(1).specs

    def read(self, row: Row, window: Window | None) -> Sample:
        """Read a segment, or all of a recording."""
        return _sound_reader(row).read(row, window)

    def peek(self, row: Row, window: Window | None) -> Peek:
        """Read the header."""
        return _sound_reader(row).peek(row, window)

    def verify(self, row: Row) -> None:
        """Read the whole recording."""
        _sound_reader(row).verify(row)

    def blank(self, height: int, width: int) -> Sample:
        """Return silence of `width` samples."""
        return AudioReader(1, self.channels).blank(height, width)


def _sound_reader(row: Row) -> AudioReader:
    facts = sound_facts(row)
    return AudioReader(facts.rate, facts.channels, resample=False)


def try_read(reader: PlacedReader, row: Row) -> None:
    """Read a row, to see whether this kills the process."""
    with contextlib.suppress(ReadError):
        reader.read(row, None)


def decoded_rows(
    kind: str, index: Index, rows: Sequence[Row], config: VerifyConfig, device: int | None
) -> Generator[tuple[NDArray[np.float32] | None, str], None, None]:
    """Yield the pixels that the pipeline delivers of each file, or None and the reason."""
    from dali_pipelines.runtime.processes.reader_processes import ReaderProcessError

    reader = PlacedReader(_reader_of(kind, rows[0], config), config.window)
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
                        image = next(iter(batch.values()))[0].cpu().numpy()
                        yield image[0] if kind == "fits" else image, ""
                    else:
                        yield None, one_line(refusal)
                    del batch  # DALI can reuse its memory for the next one
        except ReaderProcessError:
            found = _killers(reader, rows[done : done + READ_AHEAD])
            if not found:
                raise
            killers |= found
            state = loader.state_dict()
            loader = _loader(index, reader, device, killers, config.storage)
            loader.load_state_dict(state)


def _reader_of(
    kind: str, row: Row, config: VerifyConfig
) -> FitsReader | JpegReader | ChunkedReader | SoundReader:
    """Return the Reader of rows like this one."""
    if kind == "arrays":
        return ChunkedReader(tuple(unpacked(row.notes[NOTE])))
    if kind == "audio":
        return SoundReader()
    return FitsReader(config.hdu) if kind == "fits" else JpegReader(check_entropy=True)


def _killers(reader: PlacedReader, rows: Sequence[Row]) -> dict[int, str]:
    """Return the rows that kill a process that reads them."""
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
    from dali_pipelines.graph.audio import AudioGraph
    from dali_pipelines.graph.decode import decode_array, decode_fits, decode_jpeg
    from dali_pipelines.graph.pipeline import reader_pipeline

    def decode_image(arrays: Mapping[str, Any], config: PipelineConfig) -> Decoded:
        # The reader cuts the window, not the pipeline.
        crop = None if reader.place is None else (reader.place.height, reader.place.width)
        return decode_jpeg(arrays, replace(config, crop=crop))

    decode: DecodeAll = decode_fits
    if isinstance(reader.reader, JpegReader):
        decode = decode_image
    elif isinstance(reader.reader, ChunkedReader):
        decode = decode_array
    elif isinstance(reader.reader, SoundReader):
        decode = AudioGraph(1, reader.channels, None).decode

    def factory(index: Index, **config: Any) -> ReaderPipeline:
        return reader_pipeline(index, reader, decode, PipelineConfig(**config))

    return single_rows(factory, index, device, killers, storage=storage)
