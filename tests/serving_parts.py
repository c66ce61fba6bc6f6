"""A Reader, transforms and a Dataset that child processes import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import numpy as np
from torch.utils.data import Dataset

from dali_pipelines import (
    Index,
    PipelineConfig,
    PipelineSettings,
    ReaderPipeline,
    decode_array,
    reader_pipeline,
)
from readers import Peek, ReadError, Sample, SampleSpec
from readers.contract import Row
from readers.window import Window


def doubled(image: Any, chance: Any, config: Any) -> Any:
    return image * 2


@dataclass(frozen=True)
class Scaled:
    factor: float

    def __call__(self, image: Any, chance: Any, config: Any) -> Any:
        return image * self.factor


@dataclass(frozen=True)
class RawReader:
    """Bare big-endian integers of one shape."""

    shape: tuple[int, int]
    channels: ClassVar[int] = 1
    specs: ClassVar[tuple[SampleSpec, ...]] = (
        SampleSpec(name="image", dtype="uint16", ndim=3, layout="HWC"),
    )

    def read(self, row: Row, window: Window | None) -> Sample:
        with row.place as place:
            content = place.read(0, place.nbytes)
        if len(content) != 2 * self.shape[0] * self.shape[1]:
            raise ReadError(row.name, f"{len(content)} bytes", row=row.number)
        image = np.frombuffer(content, ">u2").reshape(*self.shape, 1).astype(np.uint16)
        if window is not None:
            y, x = window.place(*self.shape)
            image = image[y : y + window.height, x : x + window.width].copy()
        return Sample({"image": image}, len(content))

    def peek(self, row: Row, window: Window | None) -> Peek:
        return Peek(height=self.shape[0], width=self.shape[1], nbytes=10000)

    def verify(self, row: Row) -> None:
        self.read(row, None)

    def blank(self, height: int, width: int) -> Sample:
        return Sample({"image": np.zeros((height, width, 1), np.uint16)})


def raw_pipeline(
    index: Index, *, shape: tuple[int, int], **config: Unpack[PipelineSettings]
) -> ReaderPipeline:
    return reader_pipeline(index, RawReader(shape), decode_array, PipelineConfig(**config))


@dataclass
class Contents(Dataset[Any]):
    contents: Sequence[bytes]
    transform: Callable[[bytes], Any]

    def __len__(self) -> int:
        return len(self.contents)

    def __getitem__(self, number: int) -> Any:
        return self.transform(self.contents[number])
