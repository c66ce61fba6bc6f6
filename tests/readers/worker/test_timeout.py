from __future__ import annotations

import errno
import threading
import time
from concurrent.futures import CancelledError

import pytest

from readers import ReadError
from readers.worker.timeout import TimeLimit, within


@pytest.mark.parametrize("seconds", [None, 5.0])
def test_a_call_that_ends_in_time_is_as_without_a_limit(seconds: float | None) -> None:
    assert within(seconds, divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        within(seconds, divmod, 7, 0)


def failing(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("seconds", [None, 60.0, threading.TIMEOUT_MAX])
@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(errno.ETIMEDOUT, "Connection timed out", "/nfs/a.fits"),
        CancelledError(),
        StopIteration(3),
        KeyboardInterrupt(),
        SystemExit(2),
        ReadError("/a.fits", "damaged"),
    ],
    ids=repr,
)
def test_an_error_of_the_call_is_its_own(seconds: float | None, error: BaseException) -> None:
    """Also one that sounds as if the limit were over."""
    with pytest.raises(type(error)) as caught:
        within(seconds, failing, error)
    assert caught.value is error


def test_a_call_that_does_not_end_is_abandoned() -> None:
    over = threading.Event()
    started = time.monotonic()
    with pytest.raises(TimeLimit, match=r"longer than 0\.2 s"):
        within(0.2, over.wait, 20)
    assert time.monotonic() - started < 10
    over.set()
