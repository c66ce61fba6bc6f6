"""The graph for a GPU, without one: DALI checks operators and arguments when it is serialised.

Pipelines are made for the CPU, and their settings say GPU 0, as DALI refuses to make one for a GPU
that is not there. A graph with functions of CuPy cannot be serialised; it is made, no more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from nvidia.dali import Pipeline, fn, types
from nvidia.dali.types import to_dali_type

from dali_pipelines import (
    AugMix,
    AutoAugment,
    Blur,
    Calibration,
    ColorJitter,
    Erase,
    Noise,
    PhotonNoise,
    PipelineConfig,
    RandAugment,
    RandomGrayscale,
    Stretch,
    TrivialAugment,
)
from dali_pipelines.graph.decode import (
    Decode,
    DecodeAll,
    Decoded,
    DecodedImages,
    aia_decoder,
    decode_array,
    decode_fits,
    decode_jpeg,
)
from dali_pipelines.graph.gpu import cupy_operator
from dali_pipelines.graph.images import decode_images, decode_parts
from dali_pipelines.graph.operators_psf import deconvolve_node
from dali_pipelines.graph.pipeline import _outputs
from dali_pipelines.graph.ragged import with_size
from dali_pipelines.graph.transform import check_decoded, transform
from dali_pipelines.graph.user_operators.chance import Chance
from readers import ChannelsReader, FitsReader, Hdu, JpegReader, NpyReader
from readers.contract import Reader
from readers.fits.multi_hdu import DTYPES, HduKind, HdusReader
from readers.sampling.geometry import Geometry

GEOMETRIES: list[dict[str, Any]] = [
    {},
    {"flip": "hv"},
    {"resize": (4, 4), "mean": 1.0, "dtype": "float16"},
    {"crop": (8, 8), "flip": "hv", "mean": 1.0},
    {"random_area": (0.1, 1.0), "resize": (4, 4), "flip": "hv"},
    {"resize_shorter": 9, "crop": (8, 8), "flip": "h"},
    {"crop": (8, 8), "rotate": 20.0, "resize": (4, 4)},
    {"resize_shorter": 9, "crop": (8, 8), "flip": "h", "interpolation": "bicubic"},
    {"crop": (8, 8), "zoom": (0.5, 2.0), "flip": "v", "dtype": "float16"},
    {"crop": (8, 8), "window": "row", "outside": "fill", "flip": "hv"},
    {"crop": (8, 8), "window": "row", "outside": "fill", "missing": 3, "resize": (4, 4)},
    {"crop": (8, 8), "window": "row", "outside": "fill", "rotate": 20.0, "dtype": "float16"},
    {"crop": (8, 8), "window": "row", "outside": "shift", "flip": "h"},
    {"crop": (8, 8), "window": "row", "flip": "h", "subpixel": True},
    {"crop": (8, 8), "window": "row", "outside": "fill", "subpixel": True, "resize": (4, 4)},
]
"""Settings; ``subpixel`` stands for columns y and x that are floats."""

NEAREST: list[dict[str, Any]] = [
    {"random_area": (0.1, 1.0), "resize": (4, 4), "flip": "hv", "interpolation": "nearest"},
    {"crop": (8, 8), "rotate": 20.0, "flip": "v", "interpolation": "nearest"},
]
"""Settings whose operators DALI cannot serialise."""

AUGMENTATIONS: list[Any] = [
    ColorJitter(0.4, 0.4, 0.4, 0.1),
    RandomGrayscale(),
    Blur(3, p=0.5),
    Erase(),
    TrivialAugment(),
    RandAugment(),
    AutoAugment(),
    AugMix(),
    Noise(2.0),
    PhotonNoise(3.0, 1.0),
]


class Between(Geometry):
    """Windows between pixels, as a Source has them where columns y and x are floats."""

    is_resampled = True


class Graph(NamedTuple):
    nodes: dict[str, Any]
    config: PipelineConfig
    decoded: DecodedImages
    image: Any
    chance: Chance
    pipeline: Pipeline

    def serialized(self) -> bytes:
        self.pipeline.set_outputs(self.image)
        return bytes(self.pipeline.serialize())


def graph(
    reader: Reader, decode: DecodeAll, *, planes: int = 1, subpixel: bool = False, **settings: Any
) -> Graph:
    """Make the graph of a Reader's arrays up to the image; `planes` are those of the image."""
    config = PipelineConfig(batch_size=2, device_id=0, **settings)
    kind = Between if subpixel else Geometry
    geometry = kind(**{one.name: getattr(config, one.name) for one in fields(Geometry)})
    with Pipeline(batch_size=2, num_threads=1, device_id=None) as pipeline:
        nodes = {
            spec.name: source(spec.name, spec.dtype, spec.ndim, spec.layout)
            for spec in (*reader.specs, *geometry.geometry_specs(reader))
        }
        nodes["flip"] = source("flip", "int32", 1)
        chance = Chance(source("draws", "float32", 1))
        decoded = check_decoded(decode(nodes, config), config, uses_flip=True)
        image = transform(decoded, nodes, planes, config, chance)
    assert image.device == "gpu"
    return Graph(nodes, config, decoded, image, chance, pipeline)


def source(name: str, dtype: Any, ndim: int | None, layout: str | None = None) -> Any:
    return fn.external_source(name=name, dtype=to_dali_type(dtype), ndim=ndim, layout=layout)


def operators(node: Any) -> Iterator[Any]:
    """Yield the operators on which a node depends."""
    yield node.source
    for one in node.source.inputs:
        yield from operators(one)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed CuPy: graphs import it when they are made, and call it when they run."""
    module = ModuleType("cupy")
    module.__spec__ = ModuleSpec("cupy", None)
    monkeypatch.setitem(sys.modules, "cupy", module)


@pytest.mark.parametrize("options", GEOMETRIES, ids=str)
@pytest.mark.parametrize("kind", ["colour", "gray", "npy"])
def test_each_geometry(kind: str, options: dict[str, Any]) -> None:
    channels = 3 if kind == "colour" else 1
    if kind == "npy":
        made = graph(NpyReader(), decode_array, **options)
    else:
        decode = partial(decode_jpeg, channels=channels)
        made = graph(JpegReader(channels), decode, planes=channels, **options)
    graph_bytes = made.serialized()
    assert (b"mixed" in graph_bytes) == (kind != "npy")
    is_turned = "rotate" in options or "zoom" in options
    assert (b"WarpAffine" in graph_bytes) == (is_turned or "subpixel" in options)
    fills = options.get("outside") == "fill" and not is_turned
    assert (b"out_of_bounds_policy" in graph_bytes) == fills
    assert (b"roi_start" in graph_bytes) == ("resize_shorter" in options)
    assert b"CompiledFunction" not in graph_bytes, "an operator of the CPU"


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize("options", NEAREST, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_nearest_pixels(options: dict[str, Any], dtype: str) -> None:
    reader = JpegReader(3, "uint8" if dtype == "uint8" else None)
    made = graph(reader, decode_jpeg, planes=3, dtype=dtype, **options)
    names = [one._op.schema.OperatorName() for one in operators(made.image)]
    assert "PythonFunction" in " ".join(names)
    assert "WarpAffine" not in names


def test_images_of_other_depths_meet_at_the_end() -> None:
    """Images of 8 and of 16 bits have a part of the graph each; so do colours, for gray."""
    merges = {
        channels: graph(
            JpegReader(channels), partial(decode_jpeg, channels=channels), planes=channels
        )
        .serialized()
        .count(b"_conditional__Merge")
        for channels in (1, 3)
    }
    assert merges == {1: 2, 3: 1}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "int32"])
def test_stored_integers_are_not_cast(channels: int, dtype: str) -> None:
    decode = partial(decode_array, stored=dtype)
    for options in ({"flip": "hv"}, {"crop": (8, 8), "outside": "fill", "missing": 3}):
        reader = NpyReader(dtype, channels)
        made = graph(reader, decode, planes=channels, dtype=dtype, **options)
        assert b"Cast" not in made.serialized()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_integers_of_photographs(dtype: str, channels: int) -> None:
    reader, decode = JpegReader(channels, dtype), partial(decode_jpeg, channels=channels)
    made = graph(reader, decode, planes=channels, crop=(8, 8), flip="hv", dtype=dtype)
    assert (b"_conditional__" in made.serialized()) == ((dtype, channels) == ("uint8", 1))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("crop", [None, (8, 8)])
def test_decoded_images_go_to_an_operator_that_takes_any_layout(crop: Any, channels: int) -> None:
    """DALI fails on others where a batch has none: images of 16 bits, or of 8."""
    decode = partial(decode_jpeg, channels=channels)
    made = graph(JpegReader(), decode, planes=channels, crop=crop)
    behind = [
        one._op.schema.OperatorName()  # DALI has no other way to an operator's name
        for one in operators(made.image)
        for given in one.inputs
        if given.source._op.device == "mixed"
    ]
    assert set(behind) == {"Reinterpret"}


def test_padding() -> None:
    made = graph(JpegReader(), decode_jpeg, planes=3, ragged="pad")
    with made.pipeline:
        mask = source("mask", "uint8", 2).gpu()
        outputs = dict(with_size([("image", made.image), ("mask", mask)], {"mask": 255}))
        made.pipeline.set_outputs(*outputs.values())
    assert list(outputs) == ["image", "size", "mask"]
    assert {node.device for node in outputs.values()} == {"gpu"}
    assert b"fill_value" in made.pipeline.serialize()


def jittered(image: Any, chance: Chance, config: PipelineConfig) -> Any:
    del config
    image = image * chance.uniform(0.5, 1.5) + chance.choice(3) * chance.bernoulli()
    return fn.gaussian_blur(image, sigma=chance.uniform(0.1, 2.0), window_size=5)


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_own_operators(dtype: str) -> None:
    reader = JpegReader(3, "uint8" if dtype == "uint8" else None)
    made = graph(reader, decode_jpeg, planes=3, dtype=dtype, transform=jittered)
    assert b"GaussianBlur" in made.serialized()


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("one", AUGMENTATIONS, ids=lambda one: type(one).__name__)
def test_augmentations(one: Any, dtype: str, channels: int) -> None:
    reader, decode = JpegReader(channels, "uint8"), partial(decode_jpeg, channels=channels)
    made = graph(reader, decode, planes=channels, crop=(8, 8), dtype=dtype, augment=(one,))
    assert made.chance.num_draws > 0


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize("options", [{"dtype": "int16"}, *GEOMETRIES, *NEAREST], ids=str)
@pytest.mark.parametrize("planes", [1, 3])
def test_fits(options: dict[str, Any], planes: int) -> None:
    made = graph(FitsReader(), partial(decode_fits, planes=planes), planes=planes, **options)
    assert made.decoded.statuses[0].device == "gpu"


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("planes", [1, 3])
def test_a_stretch(dtype: str, planes: int) -> None:
    decode, stretch = partial(decode_fits, planes=planes), (Stretch(kind="asinh"),) * planes
    graph(FitsReader(), decode, planes=planes, crop=(8, 8), dtype=dtype, stretch=stretch)


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize("options", GEOMETRIES, ids=str)
def test_several_hdus(options: dict[str, Any]) -> None:
    kinds = {dtype: HduKind(dtype, planes) for planes, dtype in enumerate(DTYPES, 1)}
    images = {"image": Hdu(), **{name: Hdu() for name in kinds}}
    decode = partial(decode_images, kinds=kinds, planes=1)
    made = graph(HdusReader(images, kinds, FitsReader()), decode, **options)
    assert set(made.decoded.others) == set(DTYPES)
    assert {node.device for node in made.decoded.others.values()} == {"gpu"}


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize("parts", [(), ("171", "193")], ids=len)
def test_aia(parts: tuple[str, ...]) -> None:
    calibration = Calibration()
    reader: Reader = calibration.reader()
    one = aia_decoder(calibration, len(parts))
    decode: DecodeAll = one
    if parts:
        reader = several = ChannelsReader(reader, parts)
        decode = decode_parts(one, several, missing=False)
    made = graph(reader, decode, planes=max(len(parts), 1))
    assert made.decoded.statuses[0].device == "gpu"
    assert list(made.decoded.others) == (["present"] if parts else [])


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize("times", [None, 2])
@pytest.mark.parametrize("options", [*GEOMETRIES[1:3], GEOMETRIES[6]], ids=str)
@pytest.mark.parametrize("kind", ["jpeg", "fits"])
def test_several_files(kind: str, options: dict[str, Any], times: int | None) -> None:
    parts = ("a", "b") if times is None else ("a-1h", "b-1h", "a0", "b0")
    one: Decode = partial(decode_jpeg, channels=1) if kind == "jpeg" else decode_fits
    reader = ChannelsReader(JpegReader(1) if kind == "jpeg" else FitsReader(), parts)
    decode = decode_parts(one, reader, times, missing=True)
    made = graph(reader, decode, planes=len(parts), **options)
    assert list(made.decoded.others) == ["present"]
    assert made.decoded.others["present"].device == "cpu"
    cupy_nbytes = made.decoded.cupy_nbytes
    assert cupy_nbytes(2, 400, 4) == (0 if kind == "jpeg" else 800 // len(parts))


@pytest.mark.usefixtures("cupy")
def test_deconvolution() -> None:
    with Pipeline(batch_size=1, num_threads=1, device_id=None):
        image = fn.external_source(name="image", layout="HWC", dtype=types.FLOAT, ndim=3)
        wavelnth = source("wavelnth", "int32", 1)
        assert deconvolve_node(image.gpu(), wavelnth, (171,)).device == "gpu"


def test_nothing_on_the_cpu_waits_for_the_gpu() -> None:
    """The decoder's status stays on the GPU, and is copied back as an output."""

    def decode(arrays: Any, config: PipelineConfig) -> Decoded:
        decoded = decode_array(arrays, config)
        return decoded._replace(status=source("status", "int32", 1).gpu())

    made = graph(NpyReader(), decode)
    with made.pipeline:
        kinds = {"valid": ("bool", 0), "report": ("uint8", 1), "row": ("int64", 0)}
        nodes = {name: source(name, *kind) for name, kind in kinds.items()}
        # Private, as a whole pipeline for a GPU cannot be made here.
        outputs = dict(_outputs(made.image, nodes, made.decoded, made.config))
        made.pipeline.set_outputs(*outputs.values())
    assert made.pipeline.serialize()
    devices = {"image": "gpu", "row": "cpu", "valid": "cpu", "report": "cpu"}
    assert {name: node.device for name, node in outputs.items()} == devices
    for name in ("valid", "report"):
        _copied, *behind = between(outputs[name], made.decoded.statuses[0])
        assert {node.device for node in behind} == {"gpu"}, name


def between(node: Any, first: Any) -> list[Any]:
    """Return the nodes on the way back to `first`, without it."""
    behind = [other for given in node.source.inputs for other in between(given, first)]
    reaches = bool(behind) or any(given.source.name == first.name for given in node.source.inputs)
    return [node, *behind] if reaches else []


@pytest.mark.parametrize(("missing", "package"), [("cupy", "CuPy"), ("numba_cuda", "numba-cuda")])
def test_packages_are_asked_for_where_they_are_needed(
    monkeypatch: pytest.MonkeyPatch, missing: str, package: str
) -> None:
    """JPEG and .npy need neither on a GPU."""

    def find_spec(name: str) -> Callable[..., Any] | None:
        return None if name == missing else len

    monkeypatch.setattr(cupy_operator, "find_spec", find_spec)
    graph(NpyReader(), decode_array)
    with pytest.raises(ModuleNotFoundError, match=rf"{package}.*'\.\[gpu\]"):
        graph(FitsReader(), decode_fits)
