"""Calls in interpreters of their own."""

from __future__ import annotations

import pytest
from deadly import die_of

from dali_pipelines.parallel.apart import apart
from dali_pipelines.parallel.process_pool import Crash


@pytest.mark.slow
def test_only_what_kills_its_interpreter_is_a_crash() -> None:
    names = ["a", "b", "deadly", "c", "deadly too", "deadly, again", "d"]
    results = apart(die_of, [(name,) for name in names])
    assert ["crash" if isinstance(result, Crash) else result for result in results] == [
        *("a", "b", "crash", "c", "crash", "crash", "d"),
    ]


@pytest.mark.slow
def test_what_is_raised_is_raised_here() -> None:
    with pytest.raises(ValueError, match="three"):
        apart(int, [("1",), ("three",)])
