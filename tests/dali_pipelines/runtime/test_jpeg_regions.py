"""Regions of JPEG images on a GPU are tried in a process, which may crash."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import simplejpeg
from nvidia.dali import fn, types

from dali_pipelines.runtime import jpeg_regions
from dali_pipelines.runtime.jpeg_regions import decode_regions, regions_decode


@pytest.fixture(autouse=True)
def answers_forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jpeg_regions, "visible_gpus", lambda: 4)
    regions_decode.cache_clear()
    yield
    regions_decode.cache_clear()


def test_what_is_tried_works_on_the_cpu() -> None:
    decode_regions(None)


def test_the_kinds_that_are_tried() -> None:
    """nvImageCodec leaves regions of some to the CPU: what works there says nothing of others."""
    headers = [simplejpeg.decode_jpeg_header(jpeg_regions._encoded(k)) for k in ("420", "444")]
    assert [header[3] for header in headers] == ["420", "444"]
    assert simplejpeg.decode_jpeg_header(jpeg_regions._encoded("Gray"))[2:] == ("Gray", "Gray")


@pytest.mark.parametrize("kind", ["420", "444", "Gray"])
def test_a_region_beside_its_place_is_found(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    size, decode = len(jpeg_regions._encoded(kind)), fn.decoders.image_slice

    def decode_beside(encoded: Any, start: Any, shape: Any, **options: Any) -> Any:
        beside = fn.cast(encoded.shape() == size, dtype=types.INT32)
        return decode(encoded, start - beside * (start > 0), shape, **options)

    monkeypatch.setattr(fn.decoders, "image_slice", decode_beside)
    with pytest.raises(ValueError, match=rf"the region \(17, 33, 224, 224\) of {kind} is not"):
        decode_regions(None)


@pytest.mark.gpu
def test_the_gpu_answers() -> None:
    assert regions_decode(0) in (True, False)


@pytest.mark.parametrize(
    ("program", "works", "reason", "tries"),
    [
        ("exit 0", True, "", 1),
        ("kill -SEGV $$", False, "the decoder was killed by signal 11", 1),
        # These may have another cause, so it is tried again.
        ("kill -TERM $$", False, "the decoder was killed by signal 15", 2),
        ("echo traceback >&2; echo INTERNAL_ERROR >&2; exit 1", False, "INTERNAL_ERROR", 2),
        ("exit 1", False, "no reason given", 2),
        ("sleep 60", False, "no answer in 1 s", 2),
    ],
)
def test_what_comes_of_it(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    program: str,
    works: bool,
    reason: str,
    tries: int,
) -> None:
    """Whatever happens is one warning; a crash is not tried again by later processes."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/bash\necho "$*" >> {tmp_path}/tries\n{program}\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(jpeg_regions, "_LIMIT_S", 1 if "sleep" in program else 60)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert regions_decode(3) is works
            assert regions_decode(3) is works
            regions_decode.cache_clear()  # as in another process
    expected = f"GPU 3 does not decode regions of JPEG images ({reason}): "
    assert [record.getMessage().startswith(expected) for record in caplog.records] == (
        [] if works else [True, True]
    )
    module = "dali_pipelines.runtime.jpeg_regions"
    assert (tmp_path / "tries").read_text() == f"-P -m {module} 3\n" * tries


def test_another_driver_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver = tmp_path / "driver"
    driver.mkdir()
    monkeypatch.setattr(jpeg_regions, "_DRIVER", driver)
    for version, answer in (("580.1", "crash"), ("590.2", ""), ("600.3", "crash")):
        (driver / "version").write_text(version)
        monkeypatch.setattr(jpeg_regions, "_tried", lambda _, answer=answer: (answer, True))
        regions_decode.cache_clear()
        assert regions_decode(0) is (answer == "")
    monkeypatch.delattr(jpeg_regions, "_tried")
    regions_decode.cache_clear()
    assert not regions_decode(0)


@pytest.mark.parametrize(
    "package", ["nvidia-dali-cuda130", "nvidia-nvimgcodec-cu12", "nvidia-nvjpeg"]
)
def test_another_decoder_is_tried_again(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    machines = []
    for version in ("13.1", "13.2", "13.1"):
        packages = [SimpleNamespace(name=package, version=version)]
        monkeypatch.setattr("importlib.metadata.distributions", lambda found=packages: found)
        machines.append(jpeg_regions._machine())
    assert machines[0] == machines[2] != machines[1]


def test_without_a_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jpeg_regions, "cache_folder", lambda: tmp_path / "file" / "below")
    (tmp_path / "file").touch()
    monkeypatch.setattr(jpeg_regions, "_tried", lambda _: ("", True))
    assert regions_decode(0)


def test_without_a_gpu_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jpeg_regions, "visible_gpus", lambda: 0)
    monkeypatch.delattr(jpeg_regions, "_tried")
    assert regions_decode(0)
