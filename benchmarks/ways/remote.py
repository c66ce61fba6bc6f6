"""Frames in a store of objects by others: astropy over s3fs."""

# Worker processes import this file: what is heavy is imported in the functions.
from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from benchmarks.ways.cutouts import Position
from benchmarks.ways.peers import MEAN, STD


@dataclass
class S3Frames:
    """The DataLoader's dataset: windows by `section`, or whole frames, normalised."""

    positions: Sequence[Position]
    """Of windows in objects, ``s3://`` URLs."""
    size: int | None
    """Rows and columns of a window; None for whole frames."""
    endpoint: str
    block_size: int | None
    """Bytes that s3fs asks for at least; None for its default."""
    stay_open: bool
    """Whether objects stay open once they were read."""
    files: dict[str, Any] = field(default_factory=dict)
    """Those that are open, in this process."""

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        import numpy as np
        import torch

        at = self.positions[row]
        with ExitStack() as stack:
            if at.path in self.files:
                hdus = self.files[at.path]
            elif self.stay_open:
                hdus = self.files[at.path] = self._opened(at.path, ExitStack())
            else:
                hdus = self._opened(at.path, stack)
            if self.size is None:
                found = hdus[1].data
            else:
                found = hdus[1].section[at.y : at.y + self.size, at.x : at.x + self.size]
            image = (found.astype(np.float32) - MEAN) / STD
        return torch.from_numpy(image)[None], row

    def _opened(self, url: str, stack: ExitStack) -> Any:
        import s3fs
        from astropy.io import fits

        system = s3fs.S3FileSystem(anon=True, endpoint_url=self.endpoint)
        file = stack.enter_context(system.open(url, block_size=self.block_size))
        return stack.enter_context(fits.open(file))
