"""Random numbers for operators in the graph, determined only by seed, epoch and row.

DALI's own random operators depend on the position of a sample in its batch, so their results change
with the batch size and after a resume.
"""

from __future__ import annotations

from typing import Any

from nvidia.dali import fn, math, types
from nvidia.dali.data_node import DataNode

from readers.values import check_integer, check_number, is_integer, is_number


class Chance:
    """Random numbers for a graph, different for each sample.

    Each call of a method takes new numbers. It returns a DataNode on the CPU with one value per
    sample, for arithmetic or as an argument of operators. A sample gets the same values in any
    batch, on any number of devices, and after a resume.

    Parameters
    ----------
    draws : DataNode, optional
        float32 in [0, 1), one axis, long enough for all calls; None in mode ``eval``.
    """

    def __init__(self, draws: Any) -> None:
        self._draws = draws
        self.num_draws = 0
        """Numbers taken so far for each sample."""

    def uniform(self, least: Any = 0.0, most: Any = 1.0) -> Any:
        """Return float32 from a uniform distribution in [least, most), shape ().

        The limits are numbers, or DataNodes with one value per sample.

        Raises
        ------
        TypeError
            If a limit is neither a number nor a DataNode.
        """
        for limit in (least, most):
            if not is_number(limit) and not isinstance(limit, DataNode):
                raise TypeError(f"uniform takes two numbers or DataNodes, got {limit!r}")
        return least + (most - least) * self._take()

    def bernoulli(self, p: float = 0.5) -> Any:
        """Return bool, shape (): True with probability `p`.

        Raises
        ------
        ValueError
            If `p` is not a number from 0 to 1. For a probability that differs between samples,
            compare `uniform` with a DataNode.
        """
        check_number("p", p, 0, 1)
        return self._take() < p

    def choice(self, count: int) -> Any:
        """Return int32 from 0 to count - 1, all equally likely, shape ().

        Raises
        ------
        ValueError
            If `count` is not from 1 to 2**16.
        """
        if not is_integer(count, 1) or count > 1 << 16:
            raise ValueError(f"count must be an integer from 1 to {1 << 16}, got {count!r}")
        return fn.cast(math.floor(self._take() * float(count)), dtype=types.INT32)

    def fractions(self, count: int) -> Any:
        """Return float32 in [0, 1), shape (count,), multiples of 2**-24."""
        check_integer("count", count, 1)
        return self._take(count)

    def _take(self, count: int | None = None) -> Any:
        if self._draws is None:
            raise ValueError(
                "mode 'eval' has no random numbers: let the transform return the image unchanged "
                "if config.mode is 'eval'"
            )
        start = self.num_draws
        self.num_draws += 1 if count is None else count
        return self._draws[start] if count is None else self._draws[start : start + count]
