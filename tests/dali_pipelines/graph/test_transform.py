"""The graph after a decoder of any layout, against NumPy and torch; no reader processes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from nvidia.dali import Pipeline, fn
from read_here import read_here

from dali_pipelines import Index, NpyReader, PipelineConfig, reader_pipeline
from dali_pipelines.graph.decode import Decoded, decode_array
from dali_pipelines.graph.transform import check_decoded, transform
from dali_pipelines.graph.user_operators.chance import Chance
from readers import Row, Sample, SampleSpec, Window

HEIGHT, WIDTH = 6, 9


def run(image: np.ndarray, flips: tuple[int, int], declared: dict[str, Any], **config: Any) -> Any:
    """Return what the graph makes of one image, flipped as chance may have decided."""
    settings = PipelineConfig(batch_size=1, **config)
    pipeline = Pipeline(batch_size=1, num_threads=1, device_id=None)
    with pipeline:
        axes = declared.get("layout", "HWC")
        node = fn.external_source(lambda: [image], layout=axes)
        flip = fn.external_source(lambda: [np.array(flips, np.int32)])
        decoded = Decoded(node, image.dtype.name, **declared)
        images = check_decoded(decoded, settings, uses_flip=True)
        channels = image.shape[axes.index("C")]
        pipeline.set_outputs(transform(images, {"flip": flip}, channels, settings, Chance(None)))
    (out,) = pipeline.run()
    assert out.layout() == "CHW"
    return np.asarray(out.at(0))


@pytest.mark.parametrize("resize", [None, (4, 5)])
@pytest.mark.parametrize("flip", ["", "hv"])
@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_every_layout_ends_as_chw(
    layout: str, channels: int, finished: bool, flip: str, resize: tuple[int, int] | None
) -> None:
    image = np.random.default_rng(1).random((channels, HEIGHT, WIDTH), np.float32)
    given = np.ascontiguousarray(image.transpose(1, 2, 0)) if layout == "HWC" else image
    declared = {"layout": layout, "finished": finished}
    found = run(given, (1, 0), declared, flip=flip, resize=resize)
    # What is finished was flipped by the decoder.
    expected = image if finished or not flip else image[:, :, ::-1]
    if resize is not None:
        batch = torch.from_numpy(expected.copy())[None]
        options = {"mode": "bilinear", "antialias": True, "align_corners": False}
        expected = torch.nn.functional.interpolate(batch, resize, **options)[0].numpy()  # type: ignore[arg-type]
        # At the borders DALI repeats pixels, and torch leaves them out of the mean.
        assert found.shape == expected.shape
        found, expected = found[:, 1:-1, 1:-1], expected[:, 1:-1, 1:-1]
    np.testing.assert_allclose(found, expected, atol=0 if resize is None else 1e-5)


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_mean_and_std_of_each_channel(layout: str) -> None:
    image = np.random.default_rng(1).integers(0, 255, (3, HEIGHT, WIDTH), np.uint8)
    given = np.ascontiguousarray(image.transpose(1, 2, 0)) if layout == "HWC" else image
    found = run(given, (0, 0), {"layout": layout}, mean=(1, 2, 3), std=(4, 5, 6))
    expected = (image - np.array([[[1]], [[2]], [[3]]])) / np.array([[[4]], [[5]], [[6]]])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


REFUSED = [
    ({"layout": "CWH"}, {}, r"layout of Decoded must be 'HWC' or 'CHW', got 'CWH'"),
    ({"finished": True}, {"dtype": "uint8"}, r"finished=True with float32 instead of dtype='uin"),
    ({"finished": True}, {"flip": "h"}, r"have flip='h', but .* without using arrays\['flip'\]"),
    ({"finished": True}, {"crop": 4, "rotate": 5.0}, "rotate, zoom.*finished=False"),
    ({"finished": True}, {"crop": 4, "resize_shorter": 5}, "resize_shorter.*finished=False"),
]


@pytest.mark.parametrize(("declared", "config", "message"), REFUSED)
def test_what_a_decoder_says_must_fit(
    npy_index: Index, declared: dict[str, Any], config: dict[str, Any], message: str
) -> None:
    def decode(arrays: Any, config: PipelineConfig) -> Decoded:
        return Decoded(decode_array(arrays, config).image, "float32", **declared)

    with pytest.raises(ValueError, match=message):
        reader_pipeline(npy_index, NpyReader(), decode, PipelineConfig(batch_size=2, **config))


class PlanarReader(NpyReader):
    """Of shape (channels, height, width)."""

    specs: ClassVar = (SampleSpec(name="image", dtype="float32", ndim=3, layout="CHW"),)

    def blank(self, height: int, width: int) -> Sample:
        return Sample({"image": np.zeros((self.channels, height, width), np.float32)})

    def read(self, row: Row, window: Window | None) -> Sample:
        sample = super().read(row, window)
        planes = np.ascontiguousarray(sample["image"].transpose(2, 0, 1))
        return replace(sample, arrays={"image": planes})


@pytest.mark.parametrize(
    "settings",
    [
        {"crop": 4, "resize": (3, 2), "flip": "h"},
        {"crop": 4, "mean": (1, 2), "std": (3, 4)},
        {"crop": 4, "dtype": "float16"},
        {"resize": (7, 9)},
        {"crop": (3, 4), "rotate": 30.0, "zoom": (0.8, 1.2)},
        {"random_area": (0.3, 1.0), "resize": 5},
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_reader_of_planes_gives_what_one_of_pixels_gives(
    tmp_path: Path, settings: dict[str, Any], wrapped: bool
) -> None:
    for row in range(3):
        np.save(tmp_path / f"{row}.npy", np.random.default_rng(row).random((6, 8, 2), np.float32))

    def decode(arrays: Any, config: PipelineConfig) -> Decoded:
        decoded = decode_array(arrays, config)
        return Decoded(decoded.image, "float32") if wrapped else decoded

    by_pixels, by_planes = (
        read_here(
            lambda index, made=made, **config: reader_pipeline(
                index, made(channels=2), decode, PipelineConfig(**config)
            ),
            Index.scan(tmp_path),
            **settings,
        )
        for made in (NpyReader, PlanarReader)
    )
    for row, sample in by_pixels.items():
        assert sample["image"].shape[0] == 2
        np.testing.assert_array_equal(by_planes[row]["image"], sample["image"])


@pytest.mark.parametrize("options", [{"rotate": 30.0}, {"resize_shorter": 5}])
def test_either_layout_is_turned_and_resized_alike(
    npy_index: Index, options: dict[str, Any]
) -> None:
    def decode(arrays: Any, config: PipelineConfig, layout: Any) -> Decoded:
        image = decode_array(arrays, config).image
        image = fn.random.uniform(image, range=(0.0, 9.0), seed=3)
        if layout == "CHW":
            image = fn.transpose(image, perm=[2, 0, 1], output_layout="CHW")
        return Decoded(image, "float32", layout=layout)

    found = []
    for layout in ("HWC", "CHW"):
        config = PipelineConfig(
            batch_size=2, num_read_processes=0, crop=4, window="random", **options
        )
        made = partial(decode, layout=layout)
        pipeline = reader_pipeline(npy_index, NpyReader(), made, config)
        pipeline.build()
        found.append(np.array(pipeline.run()[0].as_tensor()))
        pipeline.close()
    assert found[0].shape == (2, 1, 4, 4)
    np.testing.assert_array_equal(found[0], found[1])
    assert len(np.unique(found[0])) > 8


def test_a_decoder_that_returns_no_decoded(npy_index: Index) -> None:
    def decode(arrays: Any, config: PipelineConfig) -> Any:
        return decode_array(arrays, config).image

    with pytest.raises(TypeError, match="a decoder must return a Decoded, got DataNode"):
        reader_pipeline(npy_index, NpyReader(), decode, PipelineConfig(batch_size=2))


def test_a_decoder_that_makes_other_channels_than_its_reader(npy_index: Index) -> None:
    """Readers of 1 channel, an image of 3 with a mean for each."""

    def decode(arrays: Any, config: PipelineConfig) -> Decoded:
        image = decode_array(arrays, config).image
        return Decoded(fn.cat(image, image, image, axis=2), "float32", channels=3)

    settings = PipelineConfig(batch_size=2, mean=(1, 2, 3), dtype="float16")
    pipeline = reader_pipeline(npy_index, NpyReader(), decode, settings)
    assert pipeline.footprint.image_nbytes == 3 * 6 * 8 * 2
