"""The condition of ``--where``; errors name the flag, and if possible come before the scan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.errors import CommandError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


def check(where: str, table: pa.Table) -> None:
    """Raise CommandError, before a scan, if the condition is invalid whatever the headers hold.

    The table has one row with the columns of the scan; they are empty if their type is not known
    yet.
    """
    try:
        matching(where, table)
    except CommandError as refusal:
        # The function can only be chosen when the types of the columns are known.
        if "Could not choose a best candidate" not in str(refusal):
            raise


def matching(where: str, table: pa.Table) -> np.ndarray[Any, Any]:
    """Return the rows for which the condition is true, in order, as int64 of shape (k,)."""
    from readers.index.rows import where as conditions

    try:
        return conditions.matching(table, where)
    except ValueError as error:  # it begins with the name of the flag
        raise CommandError(f"--{error}") from error
