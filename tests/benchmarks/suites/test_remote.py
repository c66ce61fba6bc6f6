"""The suite of remote frames on a small archive: the same pixels, and what is asked for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers.apart import ServerApart, Traffic

from benchmarks.main import BenchConfig
from benchmarks.measure.race import race
from benchmarks.sheets import requests
from benchmarks.suites.remote import peer_ways
from benchmarks.ways.archive import make_archives, our_loaders, positions
from benchmarks.ways.cutouts import Cutouts

SIZE = 64


def test_remote_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(
        requests,
        "our_loaders",
        lambda *given: [one for one in our_loaders(*given) if one.name == "Loader, tiles noted"],
    )
    settings = BenchConfig(quick=True, num_read_processes=1)
    with ServerApart(tmp_path / "server", 0.0) as server:
        windows, whole = make_archives(tmp_path, server, frames=2, each=8, edge=256, size=SIZE)
        assert server.traffic().requests > 0
        assert server.traffic() == Traffic(0, 0)
        assert (len(windows.rows.local), len(whole.square.noted)) == (16, 2)
        local = positions(windows.rows.local)
        expected = Cutouts(local, (1,), SIZE, "astropy Cutout2D").expected
        peers = peer_ways(windows, server, settings)[:1]
        (result,) = race(peers, lambda row, _: expected(row), 1, server.pids)
        assert result.difference == 0
        cache = tmp_path / "cache"
        sheet = requests.requests_sheet("frames", windows, server, settings, cache, peers)
    (_, noted, nbytes, of_plan, _, trips), other = sheet.lines
    assert float(noted) > 0
    assert float(nbytes) > 0
    assert float(of_plan) <= 1.2
    assert trips == "1, 1"
    assert float(other[1]) >= 1
