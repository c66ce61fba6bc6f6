"""The condition of ``--where``: its errors name the flag, and precede the scan if they can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.errors import CommandError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


def check(where: str, table: pa.Table) -> None:
    """Reject, before a scan, a condition that is wrong whatever the headers hold.

    The table has one row of the columns that the scan will give, empty where their type is not
    known yet.
    """
    try:
        matching(where, table)
    except CommandError as refusal:
        # Which function of that name is meant shows when the types of the columns are known.
        if "Could not choose a best candidate" not in str(refusal):
            raise


def matching(where: str, table: pa.Table) -> np.ndarray[Any, Any]:
    """Return the rows for which the condition is true, in order, as int64 of shape (k,)."""
    from readers.index.rows import where as conditions

    try:
        return conditions.matching(table, where)
    except ValueError as error:  # which begins with the name of the flag
        raise CommandError(f"--{error}") from error
