from __future__ import annotations

import threading
import time

import pytest

from readers.worker.timeout import TimeLimit, within


@pytest.mark.parametrize("seconds", [None, 5.0])
def test_a_call_that_ends_in_time_is_as_without_a_limit(seconds: float | None) -> None:
    assert within(seconds, divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        within(seconds, divmod, 7, 0)


def test_a_call_that_does_not_end_is_abandoned() -> None:
    over = threading.Event()
    started = time.monotonic()
    with pytest.raises(TimeLimit, match=r"longer than 0\.2 s"):
        within(0.2, over.wait, 20)
    assert time.monotonic() - started < 10
    over.set()
