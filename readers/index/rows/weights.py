"""Weights of rows: their running sums are in a file that reader processes share."""

from __future__ import annotations

import hashlib
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from readers.index import schema
from readers.index.arrow import pa
from readers.messages import printable


class RunningWeights:
    """Running sums of weights, to draw rows in proportion to their weights.

    Parameters
    ----------
    weights : ndarray of float64, shape (n,)
        At least 0 and finite, not all 0.
    """

    def __init__(self, weights: NDArray[np.float64]) -> None:
        from readers.index.index_file import store_columns  # not in reader processes

        _, exponent = np.frexp(weights.max())
        # Division by a power of two keeps all ratios and prevents overflow.
        sums = np.cumsum(np.ldexp(weights, -exponent))
        self._sums = store_columns({"sums": sums})["sums"]

    def __len__(self) -> int:
        return self._sums.num_rows

    def row(self, share: float) -> int:
        """Return the row at a share of all weights.

        Parameters
        ----------
        share : float
            In [0, 1), with at most 53 bits, so that its product with the total is below the total.
        """
        sums = self._sums.array
        # The first sum above the share. A row of weight 0 is never returned: its sum is the sum of
        # the row before.
        return int(np.searchsorted(sums, share * sums[-1], side="right"))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the sums. It identifies the sequence of draws."""
        return hashlib.sha256(self._sums.array.data).hexdigest()


def running_weights(table: pa.Table, name: str) -> RunningWeights:
    """Return the weights in a column of an Index; raises as `Index.running_weights`."""
    schema.check_column(table, name)
    column = table[name]
    if not schema.is_numeric(column.type):
        raise TypeError(f"column {name!r} is {column.type}, and weights are numbers")
    weights = np.asarray(column.cast(pa.float64(), safe=False).to_numpy())  # null becomes NaN
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(
            f"weights must be finite numbers from 0 on, but column {name!r} has "
            f"{column[row].as_py()} in row {row} ({printable(table['path'][row])}); "
            f"rows with invalid weights: {int(bad.sum())}"
        )
    if not weights.any():
        raise ValueError(f"weights: column {name!r} is 0 in all {len(weights)} rows")
    return RunningWeights(weights)
