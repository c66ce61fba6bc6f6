"""Settings of ``dali-pipelines verify``."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import NamedTuple

from dali_pipelines.cli.options import option
from dali_pipelines.cli.shared_flags import (
    ClusterFlags,
    DeviceFlags,
    FileFlags,
    HduFlags,
    StorageFlags,
)


class Area(NamedTuple):
    """A window in pixels, in NumPy order."""

    y: int
    x: int
    height: int
    width: int

    def slices(self) -> tuple[slice, slice]:
        """Return the slices of rows and of columns."""
        return slice(self.y, self.y + self.height), slice(self.x, self.x + self.width)

    def check(self, height: int, width: int) -> None:
        """Raise ValueError if an image does not contain the whole window."""
        if self.y + self.height > height or self.x + self.width > width:
            raise ValueError(
                f"the window of rows {self.y} to {self.y + self.height - 1} and columns {self.x} "
                f"to {self.x + self.width - 1} reaches outside the image {height}x{width}"
            )


def _place(text: str) -> Area:
    numbers = [int(part) if part.isdecimal() else -1 for part in text.split(",")]
    if len(numbers) != 4 or min(numbers) < 0 or min(numbers[2:]) < 1:
        raise argparse.ArgumentTypeError(
            f"expected Y,X,H,W in pixels, from 0,0,1,1 on, as 0,0,512,512; got {text!r}"
        )
    return Area(*numbers)


@dataclass(frozen=True, kw_only=True)
class VerifyConfig(FileFlags, HduFlags, DeviceFlags, StorageFlags, ClusterFlags):
    """Flags of ``verify``."""

    window: Area | None = option(
        None, "rows Y to Y+H-1, columns X to X+W-1", type=_place, metavar="Y,X,H,W"
    )
    json: str | None = option(None, "write the same results, and the versions", metavar="OUT.json")

    def __post_init__(self) -> None:
        StorageFlags.__post_init__(self)
        ClusterFlags.__post_init__(self)
