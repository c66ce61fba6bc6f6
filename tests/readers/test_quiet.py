"""Warnings are ignored while a thread is inside, and as before when all have left."""

from __future__ import annotations

import threading
import warnings

import pytest

from readers.quiet import without_warnings


def test_threads_that_leave_out_of_order() -> None:
    before = list(warnings.filters)
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with without_warnings:
            entered.set()
            leave.wait(60)

    thread = threading.Thread(target=stay)
    with without_warnings:
        thread.start()
        entered.wait(60)
    warnings.warn("an odd header", stacklevel=1)  # the other thread is inside
    leave.set()
    thread.join()
    assert list(warnings.filters) == before
    with pytest.raises(UserWarning, match="an odd header"):
        warnings.warn("an odd header", stacklevel=1)
