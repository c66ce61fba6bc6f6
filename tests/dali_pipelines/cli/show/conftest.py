"""The command show, and the sheet that it draws."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dali_pipelines.cli.show import sheet

SIZE = 64

Captions = list[tuple[tuple[str, ...], str]]


@pytest.fixture
def show(tmp_path: Path, command: Callable[..., tuple[str, str]]) -> Callable[..., tuple[Any, str]]:
    """Run the command with cells of 64 pixels; give the sheet, RGB, and what was said."""

    def show(*arguments: object, status: int = 0) -> tuple[Any, str]:
        out = tmp_path / "sheet.png"
        _, err = command("show", *arguments, "-o", out, f"--size={SIZE}", status=status)
        return np.array(Image.open(out).convert("RGB")) if out.exists() else None, err

    return show


@pytest.fixture
def captions(monkeypatch: pytest.MonkeyPatch) -> Captions:
    """The captions and remarks of the cells: texts on a sheet cannot be read again."""
    seen: Captions = []
    save = sheet.save_sheet

    def noted(path: str, rows: Any, **settings: Any) -> None:
        seen.extend((picture.caption, picture.remark) for row in rows for picture in row)
        save(path, rows, **settings)

    monkeypatch.setattr(sheet, "save_sheet", noted)
    return seen


@pytest.fixture
def cell() -> Callable[..., Any]:
    """Cut a cell out of a sheet, without its caption."""

    def cell(image: Any, place: int, columns: int, lines: int) -> Any:
        pitch = SIZE + lines * sheet.LINE + sheet.GAP
        # From the end, as the heading has as many lines as it needs.
        rows = (image.shape[0] - 2 * sheet.GAP) // pitch
        top = image.shape[0] - rows * pitch + place // columns * pitch
        left = sheet.GAP + place % columns * (SIZE + sheet.GAP)
        return image[top : top + SIZE, left : left + SIZE]

    return cell
