"""What comes of an error that is met while the readers are watched."""

from __future__ import annotations

import multiprocessing
import threading
import time

import pytest

from dali_pipelines.watchdog import ReaderProcessError, Watchdog


@pytest.fixture
def killed():
    """Watch a process that is killed."""
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    process.start()
    watchdog = Watchdog([process])
    process.kill()
    yield watchdog
    watchdog.close()
    process.join()


class FailingLock:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        raise ValueError("semaphore or lock released too many times")


def test_a_wait_without_end_is_interrupted(killed):
    with pytest.raises(ReaderProcessError, match="killed from outside"), killed:
        threading.Event().wait(60)


def test_what_fails_because_of_the_interruption_does_not_hide_it(killed):
    """As where a lock is released that was not taken yet."""
    with pytest.raises(ReaderProcessError, match="killed from outside"), killed, FailingLock():
        threading.Event().wait(60)


def test_an_error_of_the_consumer_is_its_own():
    watchdog = Watchdog([])
    try:
        with pytest.raises(ValueError, match="mine"), watchdog:
            raise ValueError("mine")
    finally:
        watchdog.close()
