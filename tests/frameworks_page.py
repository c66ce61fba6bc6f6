"""Snippets of docs/guide/frameworks.md for libraries that `make test-frameworks` installs.

Each is a script, as two of these libraries in one process crash.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from code_blocks import ELSEWHERE, blocks
from PIL import Image

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "frameworks.md"


@pytest.mark.parametrize("library", ELSEWHERE)
def test_snippet(library: str, tmp_path: Path) -> None:
    for number in range(10):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (100, 80), (number * 20, 0, 0)).save(path)
    (block,) = [block for block in blocks(PAGE, "python") if block.needs == library]
    text = "if __name__ == '__main__':\n" + textwrap.indent(block.text, "    ")
    (tmp_path / "script.py").write_text(text)
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, check=True, timeout=200)
