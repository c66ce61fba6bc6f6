"""A race compares pixels before it times, takes turns, and divides by the time that passed."""

from __future__ import annotations

import contextlib
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.measure.race import Batch, Result, Round, Table, Way, race
from benchmarks.report.tables import as_text, cells, number

IMAGES = np.arange(4 * 2 * 3, dtype=np.float32).reshape(4, 2, 3)


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.measure.race._REST_S", 0.001)


def expected(row: int, _: tuple[int, ...]) -> NDArray[Any]:
    return IMAGES[row]


def changed(place: tuple[int, ...], value: float) -> NDArray[Any]:
    images = IMAGES.copy()
    images[place] = value
    return images


def way(
    name: str,
    images: NDArray[Any] = IMAGES,
    *,
    ahead: int = 0,
    seconds: float = 0.0,
    log: list[str] | None = None,
    **how: Any,
) -> Way:
    """Yield two images a batch, after some seconds in which no CPU works."""

    def run(wanted: bool) -> Iterator[Batch]:
        if log is not None:
            log.append(name)
        for batch in range(-ahead, len(images) // 2):
            time.sleep(seconds if batch >= 0 else 0)
            first = 2 * max(batch, 0)
            rows = range(first, first + 2)
            yield rows, images[first : first + 2] if wanted else [None, None]

    return Way(name=name, start=lambda: contextlib.nullcontext(run), ahead=ahead, **how)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (changed((3, 1, 2), 23.01), r"row 3: 16\.67 % .* 0\.01"),
        (changed((0, 0, 0), np.nan), "row 0"),
        (changed((0, 0, 0), np.inf), "row 0"),
        (IMAGES[:, :, :2], r"row 0: \(2, 2\), expected \(2, 3\)"),
    ],
)
def test_other_pixels_are_not_timed(images: NDArray[Any], message: str) -> None:
    with pytest.raises(SystemExit, match=f"theirs, {message}"):
        race([way("ours"), way("theirs", images)], expected, 1)


@pytest.mark.parametrize(
    ("images", "how", "difference"),
    [
        (IMAGES + 5, {"atol": None}, 5),  # another kernel: it is only stated
        (changed((2, 0, 0), -50), {"outliers": 0.2}, 62),
        (changed((1, 0, 1), 99), {}, 0),  # not a pixel that is compared, see below
    ],
)
def test_differences_that_are_allowed(
    images: NDArray[Any], how: dict[str, Any], difference: float
) -> None:
    def without_7(row: int, _: tuple[int, ...]) -> NDArray[Any]:
        return np.where(IMAGES[row] == 7, np.nan, IMAGES[row])

    (result,) = race([way("ours", images, **how)], without_7, 1)
    assert result.difference == difference


def test_ways_take_turns_and_each_goes_first() -> None:
    log: list[str] = []
    race([way("a", log=log), way("b", log=log)], expected, 3)
    assert "".join(log) == "ab" + "ab" + "ba" + "ab"


def test_rates_are_of_the_time_that_passed() -> None:
    (result,) = race([way("slow", seconds=0.02)], expected, 3)
    assert len(result.rounds) == 3
    assert all(0 < rate <= 100 for rate in result.rates())


def test_batches_that_were_ready_do_not_count() -> None:
    # Two batches of the three take no time: counted, they would make 300 images/s of 100.
    (result,) = race([way("ahead", IMAGES[:2], ahead=2, seconds=0.02)], expected, 1)
    assert result.rates()[0] <= 100


BUSY = """
import sys, time
for line in sys.stdin:
    until = time.process_time() + float(line)
    while time.process_time() < until:
        pass
    print(flush=True)
"""


def test_cpu_time_is_of_all_processes() -> None:
    """A child that works while this process waits."""
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        stdin, stdout = child.stdin, child.stdout
        assert stdin is not None
        assert stdout is not None

        def run(_: bool) -> Iterator[Batch]:
            stdin.write("0.4\n")
            stdin.flush()
            stdout.readline()
            yield range(4), IMAGES

        busy = Way(name="busy", start=lambda: contextlib.nullcontext(run))
        (result,) = race([busy], expected, 1)
        stdin.close()
    assert result.rounds[0].cpu_s_elsewhere == pytest.approx(0.1, abs=0.03)
    assert 0 <= result.rounds[0].cpu_s_here < 0.05


def test_a_way_without_its_library_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made_for_another_torch.py").write_text("raise RuntimeError('no such operator')")
    (tmp_path / "loads_on_demand.py").write_text(
        "def __getattr__(_): raise RuntimeError('no libavutil ' * 20)"
    )
    monkeypatch.syspath_prepend(tmp_path)
    ways = [
        way("ours"),
        way("absent", needs=("not_on_this_machine",)),
        way("broken", needs=("made_for_another_torch",), remedy="get another"),
        way("lazy", needs=("loads_on_demand:Buffer",)),
    ]
    table = Table(title="T", baseline="ours", results=race(ways, expected, 1), data="files")
    _, absent, broken, lazy = table.results
    assert cells(table, absent)[1] == "not_on_this_machine is not installed"
    assert broken.note == "made_for_another_torch cannot be imported: no such operator; get another"
    assert lazy.note == f"loads_on_demand cannot be imported: {('no libavutil ' * 20)[:100]}..."
    assert "not installed" in as_text(table)


def test_a_way_that_fails_is_named() -> None:
    def run(wanted: bool) -> Iterator[Batch]:
        yield range(2), IMAGES[:2]
        if not wanted:
            raise OSError("the disk is gone")

    failing = Way(name="theirs", start=lambda: contextlib.nullcontext(run))
    with pytest.raises(OSError, match="the disk is gone") as caught:
        race([way("ours"), failing], expected, 1)
    assert caught.value.__notes__ == ["in the way 'theirs'"]


def rounds(*rates: float) -> tuple[Round, ...]:
    return tuple(
        Round(images_per_s=float(rate), cpu_s_here=0.0, cpu_s_elsewhere=0.0) for rate in rates
    )


def test_speedups_are_medians_of_ratios_round_by_round() -> None:
    ours = Result(name="ours", rounds=rounds(10, 2, 6))
    theirs = Result(name="theirs", rounds=rounds(5, 1, 1))
    absent = Result(name="absent", note="it is not installed")
    table = Table(title="T", baseline="theirs", results=(ours, theirs), data="files")
    assert table.speedup(ours) == 2
    table = Table(title="T", baseline="absent", results=(ours, absent), data="files")
    assert math.isnan(table.speedup(ours))
    assert "unknown" in cells(table, ours)


def test_speedups_of_curves_are_place_by_place() -> None:
    rates = {("Loader", "1"): 8.0, ("peer", "1"): 2.0, ("Loader", "2"): 9.0, ("peer", "2"): 3.0}
    results = tuple(
        Result(name=" ".join(point), rounds=rounds(rate, 2 * rate, 3 * rate), point=point)
        for point, rate in rates.items()
    )
    table = Table(title="T", baseline="peer", results=results, data="files", axis="x")
    assert [table.speedup(result) for result in results] == [4, 1, 3, 1]


def test_numbers_have_three_digits() -> None:
    texts = {0.0123: "0.0123", 1.0: "1.00", 52.04: "52.0", 99.96: "100", 1234.5: "1234"}
    assert [number(value) for value in texts] == [*texts.values()]
