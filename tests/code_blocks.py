"""Blocks of code in the README and the pages of docs/."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

BLOCK = re.compile(
    r"^```(?:\{code-block\} )?(\w+)\n(?::caption: (\S+)\n\n)?(.*?)^```$", re.MULTILINE | re.DOTALL
)
ELSEWHERE = ("paddle", "tensorflow")
"""Libraries that `make test-frameworks` installs, and `make test` does not."""
OPTIONAL = ("ffcv", "litdata", "torchcodec", "torchvision", "xbatcher")
"""Libraries that no target installs: their code runs if you have installed them."""


class Block(NamedTuple):
    """Code of a page: its language, the file that it is, if it has a caption, and its text."""

    language: str
    file: str | None
    text: str
    line: int

    @property
    def needs(self) -> str | None:
        """The first library that it imports and that is not installed, or is in `ELSEWHERE`."""
        libraries = "|".join((*ELSEWHERE, *OPTIONAL))
        for name in re.findall(rf"^(?:import|from) ({libraries})\b", self.text, re.MULTILINE):
            if name in ELSEWHERE or find_spec(name) is None:
                return name
        return None


def blocks(page: Path, language: str) -> list[Block]:
    """Return the blocks of a page in a language, in their order."""
    text = page.read_text()
    found = (Block(m[1], m[2], m[3], text.count("\n", 0, m.start(3))) for m in BLOCK.finditer(text))
    return [block for block in found if block.language == language]
