"""A ledger in which the threads of all processes count what they read, decode and transform."""

# Worker processes import this file.
from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

Part = Literal["read", "decode", "graph"]
COUNTED: tuple[Part, ...] = ("read", "decode", "graph")


@dataclass
class _Page:
    """What one thread has counted."""

    seconds: NDArray[np.float64]
    part: Part | None = None
    since: float = 0.0

    def turn_to(self, part: Part | None) -> Part | None:
        """Charge what was done up to now, and say what it was."""
        now = time.thread_time()
        if self.part is not None:
            self.seconds[COUNTED.index(self.part)] += now - self.since
        before, self.part, self.since = self.part, part, now
        return before


class Ledger:
    """CPU seconds by part, counted by the threads of any processes; closed until `counting`.

    Picklable. Each thread has a file of its own, mapped, so that none waits for another.

    Parameters
    ----------
    folder : str, optional
        Where the files are, made by `new_ledger`; None for a ledger that stays closed.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self._switch = None if folder is None else _map_file(Path(folder, "switch"), 1)
        self._local = threading.local()

    def __reduce__(self) -> tuple[type[Ledger], tuple[str | None]]:
        return Ledger, (self._folder,)

    @property
    def is_open(self) -> bool:
        """Whether there is counting; what is timed is not slowed down by more than this."""
        return self._switch is not None and self._switch[0] == 1

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Let all processes count."""
        assert self._switch is not None
        self._switch[0] = 1
        try:
            yield
        finally:
            self._switch[0] = 0

    @contextmanager
    def count(self, part: Part) -> Iterator[None]:
        """Count the CPU time of this thread for a part, and not for one that it is within."""
        if not self.is_open:
            yield
            return
        page = self._page()
        before = page.turn_to(part)
        try:
            yield
        finally:
            page.turn_to(before)

    @contextmanager
    def opened(self, path: str) -> Iterator[Any]:
        """Yield what a library opens: the path, or where it counts a file that counts."""
        if not self.is_open:
            yield path
            return
        with ExitStack() as stack:
            with self.count("read"):
                file = stack.enter_context(Path(path).open("rb"))
            yield CountedFile(file, self)

    def seconds(self) -> dict[str, float]:
        """Return the sums over all threads, up to now."""
        assert self._folder is not None
        total = np.zeros(len(COUNTED))
        for path in Path(self._folder).glob("thread-*"):
            total += np.fromfile(path)
        return dict(zip(COUNTED, total.tolist(), strict=True))

    def _page(self) -> _Page:
        page: _Page | None = getattr(self._local, "page", None)
        if page is None:
            assert self._folder is not None
            path = Path(self._folder, f"thread-{threading.get_native_id()}")
            mapped = _map_file(path, 8 * len(COUNTED))
            page = self._local.page = _Page(np.frombuffer(mapped))
        return page


def _map_file(path: Path, size: int) -> mmap.mmap:
    """Map a file for writing, made of zeros if it is not there."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.truncate(descriptor, size)
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)


@contextmanager
def new_ledger() -> Iterator[Ledger]:
    """Yield a ledger whose files are gone at the end."""
    with TemporaryDirectory(prefix="bench-") as folder:
        yield Ledger(folder)


class CountedFile:
    """A file whose reads are counted, with as much of a file as astropy and Pillow ask for."""

    mode = "rb"

    def __init__(self, file: BinaryIO, ledger: Ledger) -> None:
        self._file, self._ledger = file, ledger

    def read(self, size: int = -1) -> bytes:
        """Read some bytes, or all that are left."""
        with self._ledger.count("read"):
            return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a byte."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the next byte's number."""
        return self._file.tell()

    def close(self) -> None:
        """Leave the file to who opened it."""


class CountedReader:
    """A Reader whose `read` is counted; all else is that of the Reader within."""

    def __init__(self, reader: Any, ledger: Ledger) -> None:
        self.reader, self.ledger = reader, ledger

    def __getattr__(self, name: str) -> Any:
        if name in ("reader", "ledger"):  # not there yet, as this is being unpickled
            raise AttributeError(name)
        return getattr(self.reader, name)

    def read(self, *args: Any) -> Any:
        """Read a row."""
        with self.ledger.count("read"):
            return self.reader.read(*args)


def counted(factory: Callable[..., Any], ledger: Ledger, *args: Any, **config: Any) -> Any:
    """Make a pipeline of this toolkit whose Reader counts."""
    pipeline = factory(*args, **config)
    pipeline.source.reader = CountedReader(pipeline.source.reader, ledger)
    return pipeline
