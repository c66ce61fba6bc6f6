"""The advice, from made-up figures of stages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dali_pipelines.cli.run.advice import advise, readers_needed
from dali_pipelines.cli.run.stages import Stages

SLOW_STORAGE = Stages(
    seconds=10,
    samples=200,
    input_bytes=200_000_000,
    wait_s=9.5,
    wait_readers_s=9,
    wait_graph_s=0.5,
    read_s=9.8,
    read_cpu_s=0.4,
    read_queued_s=0.1,
    graph_cpu_s=1,
    graph_queued_s=0,
    python_cpu_s=0.5,
    cpu_busy=0.1,
    num_read_processes=1,
    num_threads=2,
    num_shards=1,
    batch_size=16,
    ahead=2,
    cores=8,
    gpus=False,
)
"""One reader that waits for files, while 7 of 8 cores are idle."""
SLOW_CODEC = replace(SLOW_STORAGE, read_cpu_s=9.6)
SLOW_GRAPH = replace(
    SLOW_STORAGE, wait_readers_s=0.1, wait_graph_s=9.4, read_s=3, graph_cpu_s=19, cpu_busy=0.3
)
SLOW_STORE = replace(SLOW_STORAGE, read_s=155, read_threads=16, requests=400)
"""The same with a store, whose reader waits for 16 samples at a time."""
NO_ADVICE: dict[str, int] = {}
READERS = {"num_read_processes": 4}


@pytest.mark.parametrize(
    ("stages", "changes", "limit", "advised", "figures"),
    [
        (SLOW_STORE, {}, "storage", {"read_threads": 32}, ["772", "2 requests", "20 MB/s"]),
        # With all in the cache, such a reader computes on one sample at a time.
        (
            SLOW_STORE,
            {"read_s": 9.8, "read_cpu_s": 9.6, "requests": 0},
            "readers",
            READERS,
            ["48 ms"],
        ),
        # What DALI asks for in advance bounds the samples, before the threads do.
        (SLOW_STORE, {"num_read_processes": 4, "read_s": 310}, "storage", {"prefetch": 4}, []),
        (
            SLOW_STORE,
            {"read_threads": 32, "read_s": 310},
            "storage",
            {"read_threads": 64, "prefetch": 4},
            [],
        ),
        (
            SLOW_STORE,
            {"read_threads": 64, "ahead": 4, "read_s": 620},
            "storage",
            NO_ADVICE,
            ["--cache", "--crop"],
        ),
        # Its threads wait for each other: one process computes with one core.
        (SLOW_STORE, {"read_cpu_s": 9.5}, "readers", READERS, ["47.5 ms"]),
        (SLOW_STORAGE, {"wait_s": 0.5}, "consumer", NO_ADVICE, ["5 %", "--prefetch=1"]),
        (SLOW_STORAGE, {"wait_s": 0.5, "ahead": 1}, "consumer", NO_ADVICE, ["5 %"]),
        (SLOW_STORAGE, {}, "storage", READERS, ["49 ms", "46.5 ms", "20 MB/s"]),
        # The machine is busy with something else: not with these reads.
        (SLOW_STORAGE, {"cpu_busy": 1.0}, "storage", READERS, []),
        (SLOW_CODEC, {}, "readers", READERS, ["48 ms"]),
        (SLOW_CODEC, {"cpu_busy": 0.96}, "cpu", NO_ADVICE, ["8 cores", "1.1", "6.6", "GPU"]),
        # A control group grants less than the machine has: psutil sees idle cores.
        (
            SLOW_CODEC,
            {"read_cpu_s": 4, "read_queued_s": 5.5, "gpus": True},
            "cpu",
            NO_ADVICE,
            ["0.3", "--crop"],
        ),
        (SLOW_GRAPH, {}, "graph", {"num_threads": 8}, []),
        (SLOW_GRAPH, {"num_shards": 2, "cpu_busy": 0.75}, "graph", {"num_threads": 2}, []),
        (SLOW_GRAPH, {"batch_size": 2}, "graph", {"batch_size": 4}, []),
        (SLOW_GRAPH, {"cpu_busy": 0.97}, "cpu", NO_ADVICE, []),
        (SLOW_GRAPH, {"graph_cpu_s": 10, "graph_queued_s": 9}, "cpu", NO_ADVICE, []),
        (SLOW_GRAPH, {"gpus": True, "batch_size": 8}, "graph", {"batch_size": 16}, ["--num_gpus"]),
        (
            SLOW_GRAPH,
            {"gpus": True, "batch_size": 16},
            "graph",
            NO_ADVICE,
            ["--num_gpus", "--crop"],
        ),
        # Readers that take 60 ms a batch and a graph that takes 50, a batch ahead of each other.
        (
            SLOW_CODEC,
            {"wait_readers_s": 1.6, "wait_graph_s": 8.0, "graph_cpu_s": 9},
            "readers",
            {"num_read_processes": 3},
            [],
        ),
        (
            SLOW_STORAGE,
            {"num_read_processes": 4, "read_s": 8, "ahead": 1},
            "transport",
            {"prefetch": 2},
            ["80 %"],
        ),
        (
            SLOW_STORAGE,
            {"num_read_processes": 4, "read_s": 8},
            "transport",
            NO_ADVICE,
            ["--crop", "--batch_size"],
        ),
        # One process feeds two graphs, and computes all the time.
        (
            replace(SLOW_STORAGE, num_read_processes=4, read_s=8, samples=60_000),
            {"num_shards": 2, "python_cpu_s": 9.0},
            "transport",
            NO_ADVICE,
            ["150 us", "torchrun", "--num_read_processes=2"],
        ),
        # Many readers on few cores: 16 of them and 4 threads of DALI on 2.
        (
            replace(SLOW_STORAGE, num_read_processes=16, read_s=26, read_cpu_s=3.4, cores=2),
            {"read_queued_s": 22, "graph_cpu_s": 3, "graph_queued_s": 12, "cpu_busy": 1.0},
            "cpu",
            NO_ADVICE,
            ["readers and graph"],
        ),
        (
            SLOW_STORAGE,
            {"num_read_processes": 4, "read_s": 8, "graph_cpu_s": 18},
            "graph",
            {"num_threads": 8},
            [],
        ),
    ],
)
def test_limit_change_and_figures(
    stages: Stages,
    changes: dict[str, Any],
    limit: str,
    advised: dict[str, int],
    figures: list[str],
) -> None:
    advice = advise(replace(stages, **changes))
    assert (advice.limit, dict(advice.change)) == (limit, advised)
    flags = [f"--{flag}={value}" for flag, value in advised.items()]
    assert [word for word in (*figures, *flags) if word not in advice.sentence] == []


def seconds(most: float = 100.0) -> st.SearchStrategy[float]:
    return st.floats(0, most)


@st.composite
def figures(draw: st.DrawFn) -> Stages:
    """What a run can have, also if nothing was delivered, or Linux has counted nothing."""
    elapsed = draw(st.floats(1e-3, 100))
    read_s = draw(seconds(16 * elapsed))
    read_cpu_s = draw(seconds(read_s))
    wait_s = draw(seconds(elapsed))
    wait_readers_s = draw(seconds(wait_s))
    whole: Any = st.integers(1, 16)
    return Stages(
        seconds=elapsed,
        samples=draw(st.integers(0, 10**6)),
        input_bytes=draw(st.integers(0, 10**12)),
        wait_s=wait_s,
        wait_readers_s=wait_readers_s,
        wait_graph_s=wait_s - wait_readers_s,
        read_s=read_s,
        read_cpu_s=read_cpu_s,
        read_queued_s=draw(seconds(read_s - read_cpu_s)),
        graph_cpu_s=draw(seconds(16 * elapsed)),
        graph_queued_s=draw(seconds(16 * elapsed)),
        python_cpu_s=draw(seconds(2 * elapsed)),
        cpu_busy=draw(st.floats(0, 1)),
        num_read_processes=draw(whole),
        num_threads=draw(whole) * (shards := draw(st.integers(1, 4))),
        num_shards=shards,
        batch_size=draw(whole),
        ahead=draw(st.integers(1, 4)),
        cores=draw(st.floats(0.1, 16)),
        gpus=draw(st.booleans()),
    )


@given(figures())
def test_what_is_advised_is_more_and_not_too_much_more(stages: Stages) -> None:
    advice = advise(stages)
    now = {
        "num_read_processes": stages.num_read_processes,
        "num_threads": stages.num_threads // stages.num_shards,
        "batch_size": stages.batch_size,
        "prefetch": stages.ahead,
    }
    for flag, value in advice.change.items():
        assert now[flag] < value
        assert value <= max(4 * now[flag], now[flag] + stages.cores)
        assert f"--{flag}={value}" in advice.sentence


@given(figures())
def test_readers_are_advised_only_where_readers_are_waited_for(stages: Stages) -> None:
    advice = advise(stages)
    if "num_read_processes" in advice.change:
        assert advice.limit in ("storage", "readers")
        assert stages.wait_fraction >= 0.1
        assert stages.wait_readers_s > 0
        assert advise(replace(stages, wait_s=0.0)).limit == "consumer"


@given(figures())
def test_a_faster_consumer_is_the_only_remedy_for_a_slow_one(stages: Stages) -> None:
    advice = advise(replace(stages, wait_s=stages.wait_s / 20))
    if advice.limit == "consumer":
        assert not advice.change


@given(st.floats(1e-5, 10), st.floats(1e-3, 1e4), st.floats(1, 10))
def test_readers_keep_up_and_are_no_fewer_for_slower_reads(
    read_s: float, rate: float, times: float
) -> None:
    count = readers_needed(read_s=read_s, rate=rate)
    assert count / read_s >= rate
    assert count - 1 <= 1.2 * read_s * rate
    assert readers_needed(read_s=times * read_s, rate=rate) >= count
