"""Where the time goes: what threads count, and how it adds up to the time that passed."""

from __future__ import annotations

import itertools
import os
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from PIL import Image

from benchmarks.measure.ledger import CountedReader, Ledger, new_ledger
from benchmarks.measure.parts import Parts, parts_of
from benchmarks.measure.race import Result, Round, Table
from benchmarks.report.plots import save_plots
from benchmarks.report.tables import parts_sheet
from readers import FitsReader, Row


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with new_ledger() as made:
        yield made


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each look at the clock of a thread be a second after the one before."""
    monkeypatch.setattr("benchmarks.measure.ledger.time.thread_time", itertools.count().__next__)


def test_each_second_counts_for_the_innermost_part(ledger: Ledger, second: None) -> None:
    with ledger.counting():
        with ledger.count("decode"):
            with ledger.count("read"):
                pass
            with ledger.count("read"):
                pass
        time.thread_time()  # a second between two parts
        with ledger.count("graph"):
            pass
    assert ledger.seconds() == {"read": 2, "decode": 3, "graph": 1}


def test_a_closed_ledger_counts_nothing_and_opens_nothing(ledger: Ledger, second: None) -> None:
    for closed in (ledger, Ledger(), pickle.loads(pickle.dumps(Ledger()))):
        with closed.count("decode"), closed.opened("/not/there") as source:
            assert source == "/not/there"
    assert ledger.seconds() == {"read": 0, "decode": 0, "graph": 0}


def test_an_error_ends_the_part(ledger: Ledger, second: None) -> None:
    with ledger.counting():
        with pytest.raises(FileNotFoundError), ledger.opened("/not/there"):
            pass
        with ledger.count("decode"):
            pass
    assert ledger.seconds() == {"read": 1, "decode": 1, "graph": 0}


def test_threads_and_copies_count_into_one_ledger(ledger: Ledger) -> None:
    """Elsewhere a ledger is a copy that was pickled."""
    copy = pickle.loads(pickle.dumps(ledger))

    def count() -> None:
        with copy.count("graph"):
            spin(0.02)

    with ledger.counting():
        for _ in range(3):
            thread = threading.Thread(target=count)
            thread.start()
            thread.join()
    assert ledger.seconds()["graph"] >= 0.06
    assert ledger.seconds()["read"] == 0


def spin(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


@pytest.mark.parametrize("compressed", [True, False])
def test_astropy_reads_the_same_of_a_counted_file(
    tmp_path: Path, ledger: Ledger, compressed: bool
) -> None:
    image = np.arange(48 * 64, dtype=np.int16).reshape(48, 64)
    hdu = fits.CompImageHDU(image) if compressed else fits.ImageHDU(image)
    hdu.writeto(tmp_path / "a.fits")
    with (
        ledger.counting(),
        ledger.count("decode"),
        ledger.opened(str(tmp_path / "a.fits")) as source,
    ):
        assert source != str(tmp_path / "a.fits")
        with fits.open(source, memmap=False) as hdus:
            np.testing.assert_array_equal(hdus[1].data, image)
    assert ledger.seconds()["read"] > 0
    assert ledger.seconds()["decode"] > 0


def test_pillow_reads_the_same_of_a_counted_file(tmp_path: Path, ledger: Ledger) -> None:
    path = str(tmp_path / "a.jpg")
    noise = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    Image.fromarray(noise).save(path)
    with ledger.counting(), ledger.opened(path) as source, Image.open(source) as image:
        pixels = np.array(image)
    assert ledger.seconds()["read"] > 0
    with Image.open(path) as image:
        np.testing.assert_array_equal(pixels, np.array(image))


def test_a_counted_reader_is_that_reader(tmp_path: Path, ledger: Ledger) -> None:
    fits.ImageHDU(np.ones((4, 5), np.int16)).writeto(tmp_path / "a.fits")
    reader = FitsReader()
    counting = pickle.loads(pickle.dumps(CountedReader(reader, ledger)))
    assert counting.specs == reader.specs
    row = Row(0, str(tmp_path / "a.fits"))
    with ledger.counting():
        sample = counting.read(row, None)
    np.testing.assert_array_equal(sample["payload"], reader.read(row, None)["payload"])
    assert ledger.seconds()["read"] > 0
    with pytest.raises(AttributeError, match="no_such"):
        counting.no_such  # noqa: B018


def test_the_parts_are_all_of_the_time_of_all_cores(ledger: Ledger) -> None:
    """A thread named like DALI's works while this one decodes, reads, and does something else."""
    work, done = threading.Semaphore(0), threading.Semaphore(0)

    def graph() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("[DALI][TP0]Exec")
        while work.acquire() and ledger.is_open:
            spin(0.02)
            done.release()

    times = []

    def batches() -> Iterator[int]:
        for batch in range(3):
            times.append(time.perf_counter())
            work.release()
            with ledger.count("decode"):
                spin(0.03)
                with ledger.count("read"):
                    spin(0.01)
            spin(0.02)
            done.acquire()
            time.sleep(0.03)
            yield 2 if batch else 100
        times.append(time.perf_counter())

    thread = threading.Thread(target=graph)
    thread.start()
    began = time.perf_counter()
    parts = parts_of(batches(), 1, ledger)
    outside = time.perf_counter() - began
    work.release()
    thread.join()
    cores = len(os.sched_getaffinity(0))
    whole = sum(vars(parts).values())
    # Two batches of two images, behind one of many that may have been ready.
    assert cores * (times[-1] - times[1]) / 4 <= whole * 1.001
    assert whole <= cores * outside / 4
    assert parts.read >= 0.005
    assert parts.decode >= 0.015
    assert parts.graph >= 0.0095
    assert 0.007 <= parts.transport <= 0.03
    if cores > 1:
        assert parts.wait >= 0.015


def test_the_parts_are_a_sheet_and_bars(tmp_path: Path) -> None:
    parts = Parts(read=0.001, decode=0.02, graph=0.003, transport=0.004, wait=0.005)
    rounds = (Round(images_per_s=60.0, cpu_s_here=0.01, cpu_s_elsewhere=0.018),)
    results = (
        Result(name="counted", rounds=rounds, parts=parts, ours=True),
        Result(name="not counted", rounds=rounds),
        Result(name="absent", note="not installed"),
    )
    table = Table(title="T", baseline="counted", results=results, data="files")
    sheet = parts_sheet(table)
    assert sheet is not None
    assert sheet.header[1:] == ("read", "decode", "graph", "transport", "wait", "all")
    assert sheet.lines == (("counted", "1.00", "20.0", "3.00", "4.00", "5.00", "33.0"),)
    assert parts_sheet(sheet) is None
    save_plots(tmp_path, "suite", [table, sheet])
    svg = (tmp_path / "suite.svg").read_text()
    for words in ("core-ms per image", *sheet.header[1:-1]):
        assert f"<!-- {words} -->" in svg
