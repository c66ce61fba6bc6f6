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


def test_a_process_that_was_forked_meanwhile_does_not_hold_up_the_end():
    """As the workers of a DataLoader are, which live on."""
    watchdog = Watchdog([])
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    process.start()
    try:
        closing = threading.Thread(target=watchdog.close, daemon=True)
        closing.start()
        closing.join(30)
        assert not closing.is_alive()
    finally:
        process.kill()
        process.join()


@pytest.mark.parametrize("closed", [False, True])
def test_one_of_two_is_interrupted(killed, closed):
    """As where one Loader trains and another validates."""
    other = Watchdog([])
    if closed:
        other.close()
    with other:
        pass
    with pytest.raises(ReaderProcessError, match="killed from outside"), killed:
        threading.Event().wait(60)
    other.close()


def test_a_wait_in_another_thread_leaves_the_main_thread_alone(killed):
    done = threading.Event()

    def wait():
        with killed:
            done.wait(60)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(2.5)
    done.set()
    thread.join()
