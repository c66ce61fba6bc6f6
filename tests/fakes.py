"""Stand-ins that reader processes can import."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, ClassVar

import numpy as np
from deadly import die_of

from dali_pipelines.cli.verify.placed import PlacedReader
from readers.contract import Peek, Row, Sample, SampleSpec
from readers.errors import ReadError
from readers.npy import NpyReader
from readers.window import Window


@dataclass
class Info:
    """The part of DALI's SampleInfo that a Source uses."""

    idx_in_epoch: int


@dataclass
class FakeReader:
    """Opens nothing: the image is filled with the row's number, and is as high as `height`."""

    bad: frozenset[int] = frozenset()
    """Rows that cannot be read."""
    height: int = 2
    read_rows: list[int] = field(default_factory=list)
    """Rows that were read by this object."""

    channels: ClassVar[int] = 1
    specs: ClassVar[tuple[SampleSpec, ...]] = (
        SampleSpec(name="image", dtype="float32", ndim=3, layout="HWC"),
        SampleSpec(name="window", dtype="float64", ndim=1),
    )

    def read(self, row: Row, window: Window | None) -> Sample:
        self.read_rows.append(row.number)
        self._refuse(row)
        height, width = (window.height, window.width) if window else (self.height, 3)
        image = np.full((height, width, 1), row.number, np.float32)
        drawn = None if window is None or window.y is None else (window.y, window.x)
        place = np.array(drawn or (np.nan, np.nan))
        return Sample({"image": image, "window": place}, input_bytes=10)

    def peek(self, row: Row, window: Window | None) -> Peek:
        del window
        self._refuse(row)
        return Peek(height=self.height, width=3, nbytes=self.height * 12)

    def verify(self, row: Row) -> None:
        self._refuse(row)

    def blank(self, height: int, width: int) -> Sample:
        image = np.full((height, width, 1), -1, np.float32)
        return Sample({"image": image, "window": np.full(2, np.nan)})

    def _refuse(self, row: Row) -> None:
        if row.number in self.bad:
            raise ReadError(row.path, f"row {row.number} is bad", row=row.number)


class SilentError(Exception):
    """An error whose text is an error, too."""

    def __str__(self) -> str:
        raise ValueError


@dataclass
class FaultyReader(FakeReader):
    """Has a bug of the kind `fault` in rows 3 and 4, which `read` and `peek` show."""

    fault: str = "KeyError"

    def read(self, row: Row, window: Window | None) -> Sample:
        sample = super().read(row, window)
        if row.number not in (3, 4):
            return sample
        image: Any = sample["image"]
        if self.fault in ("KeyError", "peek"):
            raise KeyError("a bug")
        if self.fault == "silent":
            raise SilentError
        images = {
            "type": image.astype(np.float64),
            "order": image.astype(">f4"),
            "ndim": image[..., 0],
            "list": image.tolist(),
        }
        if self.fault == "missing":
            return Sample({"window": sample["window"]})
        return Sample({"image": images[self.fault], "window": sample["window"]})

    def peek(self, row: Row, window: Window | None) -> Peek:
        if self.fault == "peek" and row.number in (3, 4):
            raise KeyError("a bug")
        return super().peek(row, window)


@dataclass(frozen=True)
class DeadlyReader(PlacedReader):
    """A PlacedReader that a file named ``deadly...`` kills, as hostile bytes do by way of C."""

    def read(self, row: Row, window: Window | None) -> Sample:
        die_of(os.path.basename(row.path))
        return super().read(row, window)


def die_within_a_result() -> None:
    """Let this process send the length of its next result, and be killed."""
    kind: Any = Connection
    send = kind._send

    def send_length(connection: Any, data: bytes, *rest: Any) -> None:
        send(connection, data[:4], *rest)
        os.kill(os.getpid(), signal.SIGKILL)

    kind._send = send_length


@dataclass
class SlowReader(FakeReader):
    """Takes half a minute for row 3."""

    def read(self, row: Row, window: Window | None) -> Sample:
        if row.number == 3:
            time.sleep(30)
        return super().read(row, window)


@dataclass
class BusyReader(FakeReader):
    """Computes for so many seconds, as if it decoded."""

    busy_s: float = 0.0

    def read(self, row: Row, window: Window | None) -> Sample:
        until = time.process_time() + self.busy_s
        while time.process_time() < until:
            pass
        return super().read(row, window)


@dataclass
class MarkingReader(FakeReader):
    """Takes its time, and leaves a file named by its process in `folder` for as long as it reads.

    The file of a process that was killed is there if it died at work.
    """

    folder: str = ""
    pause_s: float = 0.0

    def read(self, row: Row, window: Window | None) -> Sample:
        mark = os.path.join(self.folder, str(os.getpid()))
        with open(mark, "w"):
            time.sleep(self.pause_s)
        os.unlink(mark)
        return super().read(row, window)


@dataclass
class DyingReader(FakeReader):
    """Kills the process that it arrives in, as long as the file `marker` is not there."""

    marker: str = ""

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class LateReader(FakeReader):
    """Takes ten minutes to arrive."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        time.sleep(600)
        vars(self).update(state)


@dataclass(frozen=True)
class ChoosingReader(NpyReader):
    """Replaces each image by three numbers that it draws."""

    uses_draws: ClassVar[bool] = True

    def read(self, row: Row, window: Window | None) -> Sample:
        sample = super().read(row, window)
        numbers = np.full(3, -1.0) if row.draws is None else row.draws.fractions(3)
        image = np.zeros_like(sample["image"]) + numbers.astype(np.float32)
        return Sample({"image": image}, sample.input_bytes, sample.image_size)
