"""Deconvolution in a graph, on small frames in place of whole ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import cupy_standin
import numpy as np
import pytest
from nvidia.dali import Pipeline, fn, types
from on_gpu.devices import DEVICES, check, epoch

from dali_pipelines import (
    Index,
    NpyReader,
    PipelineConfig,
    ReaderPipeline,
    npy_pipeline,
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
    operators_psf._deconvolver.cache_clear()
    yield
    operators_psf._deconvolver.cache_clear()


def frame(seed: int, shape: tuple[int, int] = SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).poisson(200, (*shape, 1)).astype(np.float32)


def deconvolved(image: np.ndarray, channel: int) -> Any:
    return Deconvolver.of(psf(channel, shape=SHAPE))(image[..., 0])


def run(frames: list[tuple[np.ndarray, int]], channels: Any, **options: Any) -> list[np.ndarray]:
    """Send frames with their channels through a graph as one batch."""
    with Pipeline(batch_size=len(frames), num_threads=1, device_id=None) as pipeline:
        image, wavelnth = fn.external_source(
            lambda: ([image for image, _ in frames], [np.array([c], np.int32) for _, c in frames]),
            num_outputs=2,
            layout=["HWC", ""],
        )
        node = deconvolve_node(image, wavelnth, channels, **options)
        pipeline.set_outputs(fn.reshape(node, src_dims=[2, 0, 1], layout="CHW"))
    (found,) = pipeline.run()
    assert found.layout() == "CHW"
    return [np.array(found[i])[0] for i in range(len(frames))]


def test_each_frame_by_the_psf_of_its_channel() -> None:
    cases = [(frame(0), 171), (frame(1), 304), (frame(2), 171)]
    cases[0][0][5, 7] = np.nan
    found = run(cases, (171, 304), num_threads=2)
    for result, (image, channel) in zip(found, cases, strict=True):
        np.testing.assert_array_equal(result, deconvolved(image, channel))


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
    check(found, expected, **({} if device is None else {"rtol": 1e-4, "atol": 1e-3}))


def test_what_is_no_whole_frame_becomes_nan() -> None:
    found = run([(frame(0), 171), (frame(1, (20, 30)), 171), (frame(2), 193)], (171,))
    assert [np.isnan(image).all() for image in found] == [False, True, True]
    assert [image.shape for image in found] == [SHAPE, (20, 30), SHAPE]


def test_a_channel_without_psf_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="got 1600 angstrom"):
        run([(frame(0), 171)], (171, 1600))


def test_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.fft", None)
    with pytest.raises(ImportError, match=r"pip install 'dali-pipelines\[aia\]'"):
        run([(frame(0), 171)], (171,))


def test_psfs_are_made_once_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    run([(frame(0), 171)], (171,))
    monkeypatch.setattr(operators_psf, "cached_psf", None)
    run([(frame(0), 171)], (171,))


def test_a_batch_of_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch waits for the GPU. With NumPy in CuPy's place: no GPU has run this."""
    cupy_standin.install(monkeypatch)
    deconvolver = FrameDeconvolver((171, 304), 1)
    frames = (frame(0), frame(1, (20, 30)), frame(2), frame(3), frame(4))
    images = [image.view(cupy_standin.Array) for image in frames]
    channels = [
        np.array(channel).view(cupy_standin.Array) for channel in ([171], 171, [304], 0, [193])
    ]
    found = deconvolver(images, channels)
    assert cupy_standin.waits == ["synchronize"] * 2  # once for a channel and a GPU
    deconvolver(images, channels)
    assert cupy_standin.waits == ["synchronize"] * 2
    for number, channel in ((0, 171), (2, 304)):
        expected = deconvolved(frames[number], channel)
        np.testing.assert_allclose(np.array(found[number])[..., 0], expected, rtol=1e-4)
    assert [np.isnan(np.array(image)).all() for image in found] == [False, True, False, True, True]
    assert all(isinstance(image, cupy_standin.Array) for image in found)
    assert [image.shape for image in found] == [image.shape for image in frames]


def test_plans_are_made_once_for_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever thread calls it, and no two have the same: each runs on a stream of its own."""
    cupy_standin.install(monkeypatch)
    images = [frame(number).view(cupy_standin.Array) for number in range(2)]
    channels = [np.array([channel]).view(cupy_standin.Array) for channel in (171, 304)]
    for operators in (1, 2):
        deconvolver = FrameDeconvolver((171, 304), 1)
        for _ in range(2):
            thread = Thread(target=deconvolver, args=(images, channels))
            thread.start()
            thread.join()
        kinds = {(plan.dtype.char, plan.kind) for plan in cupy_standin.plans}
        assert kinds == {("f", "R2C"), ("F", "C2R"), ("d", "R2C"), ("D", "C2R")}
        assert len(cupy_standin.plans) == 4 * operators


def test_plans_do_not_outlive_their_pipeline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """DALI keeps the function until garbage is collected; CuPy frees no memory that is in use."""
    cupy_standin.install(monkeypatch)
    functions: list[FrameDeconvolver] = []
    monkeypatch.setattr(operators_psf, "python_operator", lambda one, *_: functions.append(one))
    (tmp_path / "frames").mkdir()
    np.save(tmp_path / "frames" / "0.npy", frame(0)[..., 0])
    index = Index.scan(tmp_path / "frames")
    pipelines = [npy_pipeline(index, batch_size=1, num_read_processes=0) for _ in range(2)]
    for pipeline in pipelines:
        with pipeline:
            image = fn.external_source(name="image", layout="HWC", dtype=types.FLOAT, ndim=3)
            wavelnth = fn.external_source(name="wavelnth", dtype=types.INT32, ndim=1)
            deconvolve_node(image.gpu(), wavelnth, (171,))
    for function in functions:
        channels = [np.array([171]).view(cupy_standin.Array)]
        function([frame(0).view(cupy_standin.Array)], channels)
    cupy: Any = sys.modules["cupy"]
    held: list[list[bool]] = []
    pool = SimpleNamespace(free_all_blocks=lambda: held.append([bool(f.plans) for f in functions]))
    cupy.get_default_memory_pool = lambda: pool
    cupy.cuda.runtime = SimpleNamespace(CUDARuntimeError=RuntimeError)
    monkeypatch.setattr(Pipeline, "device_id", 0)
    pipelines[0].close()
    pipelines[1].close()
    assert held == [[False, True], [False, False]]


def test_a_batch_of_none() -> None:
    assert FrameDeconvolver((171,), 1)([], []) == []


def test_each_gpu_has_its_own_transfer_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in raises where arrays of two GPUs meet."""
    cupy_standin.install(monkeypatch)
    expected = deconvolved(frame(0), 171)
    for number in (1, 0, 1):
        with cupy_standin.Device(number):
            images = [frame(0).view(cupy_standin.Array)]
            channels = [np.array([171]).view(cupy_standin.Array)]
            (found,) = FrameDeconvolver((171,), 1)(images, channels)
            np.testing.assert_allclose(found.get()[..., 0], expected, rtol=1e-4)
        assert found.device.id == number
    assert cupy_standin.waits.count("synchronize") == 2


def test_the_graph_for_a_gpu_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """DALI cannot serialise a Python function, so this is as far as it goes without a driver."""
    cupy_standin.install(monkeypatch)
    with Pipeline(batch_size=1, num_threads=1, device_id=None):
        image = fn.external_source(name="image", layout="HWC", dtype=types.FLOAT, ndim=3)
        wavelnth = fn.external_source(name="wavelnth", dtype=types.INT32, ndim=1)
        assert deconvolve_node(image.gpu(), wavelnth, (171,)).device == "gpu"
