"""Values of the Index, as lines of a caption."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.errors import one_line

if TYPE_CHECKING:
    import pyarrow as pa


def captions_of(table: pa.Table, names: Sequence[str], row: int) -> list[str]:
    """Return a line for each column: its name, and the value of a row."""
    return [f"{name} {one_line(_in_words(table[name][row]))}" for name in names]


def _in_words(value: pa.Scalar) -> str:
    """Return a value: numbers with 6 digits, times to the second, and a dash for null."""
    import numpy as np
    import pyarrow as pa

    if not value.is_valid:
        return "-"
    if pa.types.is_timestamp(value.type):
        time = np.datetime64(value.value, value.type.unit)
        return str(np.datetime_as_string(time, unit="s"))
    return _rounded(value.as_py())


def _rounded(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_rounded, value))}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
