"""The number of readers that is chosen from measured times, and the measurement."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from fakes import BusyReader, FakeReader, MarkingReader
from hypothesis import given
from hypothesis import strategies as st

from dali_pipelines import Index, Loader, PipelineConfig, reader_pipeline
from dali_pipelines.cli.run.auto_readers import Service, choose, choose_readers, measure
from dali_pipelines.cli.run.main import main
from dali_pipelines.cli.run_config import RunConfig
from dali_pipelines.graph.decode import decode_array
from dali_pipelines.runtime.ranks import Ranks

AMPLE = {"cores": 100, "memory": 99}


@pytest.mark.parametrize(
    ("read", "computes", "graph", "graph_cpu", "cores", "expected"),
    [
        (10, 10, 20, 40, 2, 1),  # RICE_1: the graph has more to do than the readers
        (50, 5, 10, 10, 8, 6),  # five reads have to be under way at any time, and some headroom
        (50, 50, 10, 10, 64, 6),
        (50, 50, 10, 10, 2, 2),  # the cores let through a sample in 30 ms
        (0.2, 0.2, 0.01, 0.01, 4, 5),
        (400, 2, 4, 4, 1, 80),  # a far store, and one core: waiting takes none
        (1, 1, 0, 0, 1, 2),
    ],
)
def test_readers_for_one_graph(
    read: float, computes: float, graph: float, graph_cpu: float, cores: float, expected: int
) -> None:
    service = Service(
        read_s=read / 1e3,
        read_cpu_s=computes / 1e3,
        graph_s=graph / 1e3,
        graph_cpu_s=graph_cpu / 1e3,
    )
    assert service.readers(cores) == expected
    of_three = choose(service, shards=3, cores=cores, most=AMPLE)
    assert of_three.num_read_processes == 3 * expected
    figures = (f"{each:.3g}" for each in (read, computes, graph))
    assert re.search("{} ms.* {}.* {} ms".format(*figures), of_three.because)


times = st.floats(1e-6, 10)


@given(times, times, times, times, st.floats(0.1, 256), st.integers(1, 8), st.integers(0, 100))
def test_no_more_than_there_is_room_for(
    read: float, share: float, graph: float, cpu: float, cores: float, shards: int, room: int
) -> None:
    computes = read * min(1.0, share)
    service = Service(read_s=read, read_cpu_s=computes, graph_s=graph, graph_cpu_s=cpu)
    choice = choose(service, shards=shards, cores=cores, most={**AMPLE, "memory": room})
    assert choice.num_read_processes % shards == 0
    each = choice.num_read_processes // shards
    assert 1 <= each <= max(1, room)
    # The readers keep up with cores and graph, unless there is no room for more of them.
    rate = min(1 / graph, cores / (computes + cpu))
    assert each / read >= 0.999 * rate or each >= room
    with_more_cores = choose(service, shards=1, cores=2 * cores, most=AMPLE)
    assert with_more_cores.num_read_processes >= min(each, 99)


def test_what_bounds_is_named() -> None:
    slow = Service(read_s=1, read_cpu_s=0, graph_s=0.1, graph_cpu_s=0)
    choice = choose(slow, shards=2, cores=1, most={"the number of cores": 8, "memory": 3})
    assert choice.num_read_processes == 6
    assert re.search("24 .*memory", choice.because)
    assert choose(None, shards=2, cores=1, most=AMPLE).num_read_processes == 2


def pipeline(index: Index, *, reader: FakeReader, **config: Any) -> Any:
    return reader_pipeline(index, reader, decode_array, PipelineConfig(**config))


def test_a_wait_is_told_from_work(tmp_path: Path) -> None:
    """Made-up reads of 50 ms, with the graph, the readers' processes and the Loader as they are."""
    for reader in (MarkingReader(folder=str(tmp_path), pause_s=0.05), BusyReader(busy_s=0.05)):
        loader = Loader(
            partial(pipeline, reader=reader),
            Index.from_paths([f"{number}" for number in range(8)]),
            batch_size=2,
            num_read_processes=1,
            devices=[None],
            prefetch=1,
            num_epochs=2,
        )
        found = measure(loader)
        assert found is not None
        assert found.read_s > 0.04
        assert found.graph_s < 0.05
        if isinstance(reader, BusyReader):
            assert found.read_cpu_s > 0.04
        else:
            assert found.read_cpu_s < 0.025
            assert found.readers(cores=64) > 2


def test_run_takes_the_number_it_has_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for row in range(6):
        fits.PrimaryHDU(np.full((8, 8), row, np.int16)).writeto(tmp_path / f"{row}.fits")
    (tmp_path / "bad.fits").write_text("no FITS")
    report = tmp_path / "report.json"
    flags = ["--num_read_processes=auto", "--batch_size=2", "--num_gpus=2", "--bad_sample=skip"]
    assert main([f"--data={tmp_path}", "--device=cpu", f"--report={report}", *flags]) == 0
    written = json.loads(report.read_text())
    count = written["chosen"]["num_read_processes"]
    assert written["config"]["num_read_processes"] == count
    assert count in (2, 4, 6, 8)
    err = capsys.readouterr().err
    assert f"--num_read_processes={count}" in err
    assert written["chosen"]["because"] in err
    assert (written["samples"], len(written["rejected"])) == (6, 1)


def test_nothing_is_forked_once_the_gpu_was_tried(tmp_path: Path) -> None:
    config = RunConfig(
        num_read_processes="auto", settings={"start_method": "fork"}, data=str(tmp_path)
    )
    with pytest.raises(ValueError, match="--start_method"):
        choose_readers(config, Index.from_paths(["a.fits"]), [0], Ranks(), cores=4)
