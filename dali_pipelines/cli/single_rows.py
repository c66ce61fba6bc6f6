"""A Loader that delivers the rows of an Index one by one, in order: for `show` and `verify`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.errors import in_flags
from dali_pipelines.runtime.cgroup import whole_cores

if TYPE_CHECKING:
    from dali_pipelines import Index, Loader, ReaderPipeline

MOST_PROCESSES = 4
"""Number of readers, and of processes of the other decoder in `verify`."""
_MOST_OF_STORE = 3
"""The command stops after this many consecutive rows without an answer of the store."""


class Rejections:
    """Reasons for the rejected rows of such a Loader, row by row."""

    def __init__(self) -> None:
        self._of_store = 0

    def reason(self, loader: Loader, number: int) -> str | None:
        """Return why a row was rejected, or None.

        Raises
        ------
        OSError
            If the store failed for this row and the rows before it: each further row would have
            to wait as well.
        """
        rejected = loader.stats.rejected.get(number)
        if rejected is None:
            self._of_store = 0
            return None
        self._of_store = self._of_store + 1 if rejected.is_of_store else 0
        if self._of_store == _MOST_OF_STORE:
            raise OSError(f"{rejected.path}: {rejected.reason}")
        return in_flags(rejected.reason)


def single_rows(
    factory: Callable[..., ReaderPipeline],
    index: Index,
    device: int | None = None,
    rejected: Mapping[int, str] | None = None,
    **settings: Any,
) -> Loader:
    """Make a Loader with one row in each step; bad files and `rejected` rows are skipped.

    Raises
    ------
    MemoryError
        If there is too little memory.
    """
    from dali_pipelines import Loader
    from dali_pipelines.memory import estimate_memory

    loader = Loader(
        factory,
        index,
        batch_size=1,  # images of all sizes
        num_read_processes=num_processes(index),
        devices=[device],
        shard_id=0,
        num_shards=1,
        shuffle=False,
        bad_sample="skip",
        num_epochs=1,
        rejected=rejected or {},
        **settings,
    )
    estimate_memory(loader.make_pipelines()).check()
    return loader


def bad_image(reason: str, images: Iterable[str], parts: Iterable[str]) -> str:
    """Return the name of the image or part that a reason begins with; "" if there is none."""
    names = {image: image for image in images} | {f"part {part}": part for part in parts}
    found = (name for text, name in names.items() if reason.startswith((f"{text}:", f"{text},")))
    return next(found, "")


def num_processes(rows: Sized) -> int:
    """Return the number of processes for some rows."""
    return min(whole_cores(), MOST_PROCESSES, len(rows))
