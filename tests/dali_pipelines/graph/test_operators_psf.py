"""Deconvolution in a graph, on small frames in place of whole ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nvidia.dali import Pipeline, fn, types
from on_gpu.devices import DEVICES, check, epoch

from dali_pipelines import (
    Index,
    NpyReader,
    PipelineConfig,
    ReaderPipeline,
    reader_pipeline,
)
from dali_pipelines.aia.deconvolve import Deconvolver
from dali_pipelines.aia.psf import psf
from dali_pipelines.graph import operators_psf
from dali_pipelines.graph.decode import Decoded, decode_array
from dali_pipelines.graph.operators_psf import FrameDeconvolver, deconvolve_node

SHAPE = (48, 64)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(operators_psf, "FRAME_SHAPE", SHAPE)
    # Transfer functions are kept for the process: none of this size may be used by other tests.
    operators_psf._deconvolver.cache_clear()
    yield
    operators_psf._deconvolver.cache_clear()


def frame(seed: int, shape: tuple[int, int] = SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).poisson(200, (*shape, 1)).astype(np.float32)


def deconvolved(image: np.ndarray, channel: int) -> Any:
    return Deconvolver.of(psf(channel, shape=SHAPE))(image[..., 0])


def run(
    frames: list[tuple[np.ndarray, int]],
    channels: Any,
    device: int | None = None,
    **options: Any,
) -> list[np.ndarray]:
    """Send frames with their channels through a graph as one batch."""
    with Pipeline(batch_size=len(frames), num_threads=1, device_id=device) as pipeline:
        image, wavelnth = fn.external_source(
            lambda: ([image for image, _ in frames], [np.array([c], np.int32) for _, c in frames]),
            num_outputs=2,
            layout=["HWC", ""],
        )
        image = image if device is None else image.gpu()
        node = deconvolve_node(image, wavelnth, channels, **options)
        pipeline.set_outputs(fn.reshape(node, src_dims=[2, 0, 1], layout="CHW"))
    (found,) = pipeline.run()
    assert found.layout() == "CHW"
    found = found.as_cpu()
    return [np.array(found[i])[0] for i in range(len(frames))]


@pytest.mark.parametrize("device", DEVICES)
def test_each_frame_by_the_psf_of_its_channel(device: int | None) -> None:
    cases = [(frame(0), 171), (frame(1), 304), (frame(2), 171)]
    cases[0][0][5, 7] = np.nan
    found = run(cases, (171, 304), device, num_threads=2)
    for result, (image, channel) in zip(found, cases, strict=True):
        np.testing.assert_allclose(result, deconvolved(image, channel), **tolerance(device))


def tolerance(device: int | None) -> dict[str, Any]:
    """Return that of cuFFT on a GPU; on the CPU nothing may differ."""
    return {"rtol": 0, "atol": 0} if device is None else {"rtol": 1e-4, "atol": 1e-3}


def test_a_channel_for_all() -> None:
    with Pipeline(batch_size=1, num_threads=1, device_id=None) as pipeline:
        image = fn.external_source(lambda: [frame(0)], layout="HWC")
        channel = types.Constant(np.array([94], np.int32), device="cpu")
        pipeline.set_outputs(deconvolve_node(image, channel, (94,)))
    (found,) = pipeline.run()
    np.testing.assert_array_equal(np.array(found[0])[..., 0], deconvolved(frame(0), 94))


@pytest.mark.parametrize("device", DEVICES)
def test_behind_a_reader(tmp_path: Path, device: int | None) -> None:
    """DALI's threads need the GIL for it, while the consumer waits for them."""
    folder = tmp_path / "frames"
    folder.mkdir()
    for row in range(5):
        np.save(folder / f"{row}.npy", frame(row)[..., 0])

    def decode(arrays: Any, config: PipelineConfig) -> Decoded:
        decoded = decode_array(arrays, config)
        channel = types.Constant(np.array([171], np.int32), device="cpu")
        return decoded._replace(image=deconvolve_node(decoded.image, channel, (171,)))

    def factory(index: Index, **config: Any) -> ReaderPipeline:
        return reader_pipeline(index, NpyReader(), decode, PipelineConfig(**config))

    found = epoch(factory, Index.scan(folder), [device], batch_size=2)
    expected = {row: deconvolved(frame(row), 171)[None] for row in range(5)}
    check(found, expected, **tolerance(device))


@pytest.mark.parametrize("device", DEVICES)
def test_frames_of_another_size_or_channel_become_nan(device: int | None) -> None:
    found = run([(frame(0), 171), (frame(1, (20, 30)), 171), (frame(2), 193)], (171,), device)
    assert [np.isnan(image).all() for image in found] == [False, True, True]
    assert [image.shape for image in found] == [SHAPE, (20, 30), SHAPE]


def test_a_channel_without_psf_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="1600 angstrom"):
        run([(frame(0), 171)], (171, 1600))


def test_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.fft", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[aia\]'"):
        run([(frame(0), 171)], (171,))


def test_psfs_are_made_once_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    run([(frame(0), 171)], (171,))
    monkeypatch.setattr(operators_psf, "cached_psf", None)
    run([(frame(0), 171)], (171,))


def test_a_batch_of_none() -> None:
    assert FrameDeconvolver((171,), 1)([], []) == []
