"""The graph for a GPU, without one: DALI checks operators and arguments when it is serialised."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from typing import Any

import cupy_standin
import pytest
from nvidia.dali import Pipeline, fn
from nvidia.dali.types import to_dali_type

from dali_pipelines import (
    Blur,
    Calibration,
    ColorJitter,
    Erase,
    Index,
    Noise,
    PhotonNoise,
    PipelineConfig,
    RandAugment,
    RandomGrayscale,
    TrivialAugment,
    npy_pipeline,
)
from dali_pipelines.graph.decode import (
    Decode,
    Decoded,
    aia_decoder,
    decode_array,
    decode_fits,
    decode_jpeg,
)
from dali_pipelines.graph.gpu import cupy_operator
from dali_pipelines.graph.gpu.cupy_operator import _placed, python_operator
from dali_pipelines.graph.images import decode_images
from dali_pipelines.graph.own.chance import Chance
from dali_pipelines.graph.parts import decode_parts
from dali_pipelines.graph.pipeline import _outputs
from dali_pipelines.graph.ragged import padded
from dali_pipelines.graph.transform import transform
from readers import ChannelsReader, FitsReader, Hdu, JpegReader, NpyReader
from readers.contract import Reader
from readers.fits.several.hdu import DTYPES, ImageKind
from readers.fits.several.reader import HdusReader
from readers.sampling.geometry import Geometry

AUGMENTATIONS: list[Any] = [
    ColorJitter(0.4, 0.4, 0.4, 0.1),
    RandomGrayscale(),
    Blur(3, p=0.5),
    Erase(),
    TrivialAugment(),
    RandAugment(),
    Noise(2.0),
    PhotonNoise(3.0, 1.0),
]


class Between(Geometry):
    """Windows between pixels, as a Source has them where columns y and x are floats."""

    is_resampled = True


def arrays_of(
    reader: Reader, config: PipelineConfig | None = None, kind: type[Geometry] = Geometry
) -> dict[str, Any]:
    specs = list(reader.specs)
    if config is not None:
        own = kind(**{one.name: getattr(config, one.name) for one in fields(Geometry)})
        specs += own.geometry_specs(reader)
    return {
        spec.name: fn.external_source(
            name=spec.name, dtype=to_dali_type(spec.dtype), ndim=spec.ndim, layout=spec.layout
        )
        for spec in specs
    }


@pytest.mark.parametrize("crop", [None, (8, 8)])
@pytest.mark.parametrize(
    "options", [{}, {"flip": "hv"}, {"resize": (4, 4), "mean": 1.0, "dtype": "float16"}]
)
@pytest.mark.parametrize(
    ("reader", "decode"),
    [
        (JpegReader, decode_jpeg),
        (partial(JpegReader, 1), partial(decode_jpeg, channels=1)),
        (NpyReader, decode_array),
    ],
)
def test_the_graph_is_accepted(
    reader: Callable[[], Any], decode: Decode, options: dict[str, Any], crop: Any
) -> None:
    graph = serialized(reader(), decode, crop=crop, **options)
    is_encoded = reader is not NpyReader
    assert (b"mixed" in graph) == is_encoded
    assert b"gpu" in graph
    # Images of 8 and of 16 bits part ways behind the reader, and meet at the end. So do PNGs of
    # colours and others, for gray.
    is_gray = isinstance(reader, partial)
    assert graph.count(b"_conditional__Merge") == is_encoded + is_gray


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "int32"])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_graph_of_stored_integers_is_accepted(channels: int, dtype: str) -> None:
    decode = partial(decode_array, stored=dtype)
    for options in ({"flip": "hv"}, {"crop": (8, 8), "outside": "fill", "missing": 3}):
        graph = serialized(NpyReader(dtype, channels), decode, dtype=dtype, **options)
        assert b"Cast" not in graph


def operators(node: Any) -> Iterator[Any]:
    """Yield the operators on which a node depends."""
    yield node.source
    for one in node.source.inputs:
        yield from operators(one)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("crop", [None, (8, 8)])
def test_what_takes_decoded_images_takes_any_layout(crop: Any, channels: int) -> None:
    """DALI fails on others where a batch has none: images of 16 bits, or of 8."""
    config = PipelineConfig(batch_size=2, device_id=0, crop=crop)
    with Pipeline(batch_size=2, num_threads=1, device_id=None):
        nodes = arrays_of(JpegReader(), config)
        flip = fn.external_source(name="flip", dtype=to_dali_type("int32"), ndim=1)
        decoded = decode_jpeg(nodes, config, channels=channels)
        image = transform(decoded, nodes | {"flip": flip}, channels, config, None)  # type: ignore[arg-type]
    behind = [
        one._op.schema.OperatorName()
        for one in operators(image)
        for given in one.inputs
        if given.source._op.device == "mixed"
    ]
    assert set(behind) == {"Reinterpret"}


def test_the_graph_of_padding_is_accepted() -> None:
    config = PipelineConfig(batch_size=2, device_id=0, ragged="pad")
    with Pipeline(batch_size=2, num_threads=1, device_id=None) as pipeline:
        nodes = arrays_of(JpegReader())
        mask = fn.external_source(name="mask", dtype=to_dali_type("uint8"), ndim=2).gpu()
        image = transform(decode_jpeg(nodes, config), nodes, 3, config, Chance(None))
        outputs = dict(padded([("image", image), ("mask", mask)], {"mask": 255}))
        pipeline.set_outputs(*outputs.values())
    assert list(outputs) == ["image", "size", "mask"]
    assert {node.device for node in outputs.values()} == {"gpu"}
    assert b"fill_value" in pipeline.serialize()


GEOMETRIES: list[dict[str, Any]] = [
    {"random_area": (0.1, 1.0), "resize": (4, 4), "flip": "hv"},
    {"resize_shorter": 9, "crop": (8, 8), "flip": "h"},
    {"crop": (8, 8), "rotate": 20.0, "resize": (4, 4)},
    {"crop": (8, 8), "zoom": (0.5, 2.0), "flip": "v", "dtype": "float16"},
    {"crop": (8, 8), "window": "row", "outside": "fill", "flip": "hv"},
    {"crop": (8, 8), "window": "row", "outside": "fill", "missing": 3, "resize": (4, 4)},
    {"crop": (8, 8), "window": "row", "outside": "fill", "rotate": 20.0, "dtype": "float16"},
    {"crop": (8, 8), "window": "row", "outside": "shift", "flip": "h"},
    {"crop": (8, 8), "window": "row", "flip": "h", "subpixel": True},
    {"crop": (8, 8), "window": "row", "outside": "fill", "subpixel": True, "resize": (4, 4)},
]


@pytest.mark.parametrize("options", GEOMETRIES)
@pytest.mark.parametrize(
    ("reader", "decode"), [(JpegReader, decode_jpeg), (NpyReader, decode_array)]
)
def test_the_graph_of_each_geometry_is_accepted(
    reader: Callable[[], Any], decode: Decode, options: dict[str, Any]
) -> None:
    graph = serialized(reader(), decode, **options)
    is_turned = "rotate" in options or "zoom" in options
    is_warped = is_turned or "subpixel" in options
    assert (b"WarpAffine" in graph) == is_warped
    fills = options.get("outside") == "fill" and not is_turned
    assert (b"out_of_bounds_policy" in graph) == fills
    assert (b"roi_start" in graph) == ("resize_shorter" in options)
    assert b"CompiledFunction" not in graph


@pytest.mark.parametrize("options", GEOMETRIES)
@pytest.mark.parametrize("planes", [1, 3])
def test_the_graph_of_fits_is_accepted_in_each_geometry(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], planes: int
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    monkeypatch.setattr(cupy_operator, "find_spec", lambda name: name)
    own, kind = geometry_of(options)
    config = PipelineConfig(batch_size=2, device_id=0, **own)
    with Pipeline(batch_size=2, num_threads=1, device_id=None):
        nodes = arrays_of(FitsReader(), config, kind)
        flip = fn.external_source(name="flip", dtype=to_dali_type("int32"), ndim=1)
        nodes = {**nodes, "flip": flip}
        decoded = decode_fits(nodes, config, planes=planes)
        image = transform(decoded, nodes, planes, config, Chance(None))
    is_cut = options.get("outside") == "shift"
    assert decoded.finished == (is_cut or ("random_area" in options and planes == 1))
    assert image.device == "gpu"


@pytest.mark.parametrize("options", [{"flip": "hv"}, *GEOMETRIES])
def test_the_graph_of_several_images_is_accepted(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    monkeypatch.setattr(cupy_operator, "find_spec", lambda name: name)
    own, kind = geometry_of(options)
    config = PipelineConfig(batch_size=2, device_id=0, **own)
    kinds = {dtype: ImageKind(dtype, planes) for planes, dtype in enumerate(DTYPES, 1)}
    images = {"image": Hdu(), **{name: Hdu() for name in kinds}}
    with Pipeline(batch_size=2, num_threads=1, device_id=None):
        nodes = arrays_of(HdusReader(images, kinds, FitsReader()), config, kind)
        nodes["flip"] = fn.external_source(name="flip", dtype=to_dali_type("int32"), ndim=1)
        decoded = decode_images(nodes, config, kinds=kinds, planes=1)
    assert set(decoded.others) == set(DTYPES)
    assert {node.device for node in (*decoded.others.values(), decoded.status)} == {"gpu"}


def jittered(image: Any, chance: Chance, config: PipelineConfig) -> Any:
    del config
    image = image * chance.uniform(0.5, 1.5) + chance.choice(3) * chance.bernoulli()
    return fn.gaussian_blur(image, sigma=chance.uniform(0.1, 2.0), window_size=5)


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_the_graph_of_own_operators_is_accepted(dtype: str) -> None:
    stored = "uint8" if dtype == "uint8" else None
    graph = serialized(JpegReader(3, stored), decode_jpeg, dtype=dtype, transform=jittered)
    assert b"GaussianBlur" in graph


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("one", AUGMENTATIONS, ids=lambda one: type(one).__name__)
def test_the_graph_of_augmentations_is_accepted(
    monkeypatch: pytest.MonkeyPatch, one: Any, dtype: str, channels: int
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    monkeypatch.setattr(cupy_operator, "find_spec", lambda name: name)
    options: dict[str, Any] = {"crop": (8, 8), "dtype": dtype, "augment": (one,)}
    config = PipelineConfig(batch_size=2, device_id=0, **options)
    reader = JpegReader(channels, "uint8")
    with Pipeline(batch_size=2, num_threads=1, device_id=None):
        nodes = arrays_of(reader, config)
        chance = Chance(fn.external_source(name="draws", dtype=to_dali_type("float32"), ndim=1))
        decoded = decode_jpeg(nodes, config, channels=channels)
        image = transform(decoded, nodes, channels, config, chance)
    assert image.device == "gpu"
    assert chance.num_draws > 0


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_the_graph_of_integers_is_accepted(dtype: str, channels: int) -> None:
    decode = partial(decode_jpeg, channels=channels)
    graph = serialized(JpegReader(channels, dtype), decode, crop=(8, 8), flip="hv", dtype=dtype)
    assert b"mixed" in graph
    assert (b"_conditional__" in graph) == ((dtype, channels) == ("uint8", 1))


def geometry_of(options: dict[str, Any]) -> tuple[dict[str, Any], type[Geometry]]:
    """Return the settings among these options, and the geometry for the others."""
    own = {name: value for name, value in options.items() if name != "subpixel"}
    return own, Between if len(own) < len(options) else Geometry


def serialized(reader: Reader, decode: Decode, **options: Any) -> bytes:
    own, kind = geometry_of(options)
    config = PipelineConfig(batch_size=2, device_id=0, **own)
    pipeline = Pipeline(batch_size=2, num_threads=1, device_id=None)
    with pipeline:
        nodes = arrays_of(reader, config, kind)
        flip = fn.external_source(name="flip", dtype=to_dali_type("int32"), ndim=1)
        draws = fn.external_source(name="draws", dtype=to_dali_type("float32"), ndim=1)
        nodes = {**nodes, "flip": flip}
        image = transform(decode(nodes, config), nodes, reader.channels, config, Chance(draws))
        assert image.device == "gpu"
        pipeline.set_outputs(image)
    return bytes(pipeline.serialize())


@pytest.mark.parametrize("options", [{}, {"mean": 1.0, "std": 2.0}, {"dtype": "int16"}])
def test_the_graph_of_fits_is_accepted(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """DALI cannot serialise a Python function, so this is as far as it goes without a driver."""
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    monkeypatch.setattr(cupy_operator, "find_spec", lambda name: name)
    config = PipelineConfig(batch_size=2, device_id=0, **options)
    with Pipeline(batch_size=2, num_threads=1, device_id=None):
        decoded = decode_fits(arrays_of(FitsReader()), config)
    assert decoded.finished
    assert (decoded.image.device, decoded.status.device) == ("gpu", "gpu")


@pytest.mark.parametrize("parts", [(), ("171", "193")])
def test_the_graph_of_aia_is_accepted(
    monkeypatch: pytest.MonkeyPatch, parts: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    monkeypatch.setattr(cupy_operator, "find_spec", lambda name: name)
    config = PipelineConfig(batch_size=2, device_id=0)
    calibration = Calibration()
    reader: Reader = calibration.reader()
    decode = aia_decoder(calibration, len(parts))
    if parts:
        reader = several = ChannelsReader(reader, parts)
        decode = decode_parts(decode, several, missing=False)
    with Pipeline(batch_size=2, num_threads=1, device_id=None):
        decoded = decode(arrays_of(reader), config)
    assert decoded.finished
    assert (decoded.image.device, decoded.status.device) == ("gpu", "gpu")
    assert list(decoded.others) == (["present"] if parts else [])


def test_nothing_on_the_cpu_waits_for_the_gpu() -> None:
    """What comes of the decoder's status stays on the GPU, and is copied back as an output."""
    config = PipelineConfig(batch_size=2, device_id=0)
    pipeline = Pipeline(batch_size=2, num_threads=1, device_id=None)
    with pipeline:
        nodes = {
            name: fn.external_source(name=name, dtype=to_dali_type(dtype), ndim=ndim)
            for name, dtype, ndim in (
                ("valid", "bool", 0),
                ("report", "uint8", 1),
                ("row", "int64", 0),
                ("image", "float32", 3),
                ("status", "int32", 1),
            )
        }
        decoded = Decoded(nodes["image"].gpu(), "float32", nodes["status"].gpu())
        outputs = dict(_outputs(decoded.image, nodes, decoded, config))
        pipeline.set_outputs(*outputs.values())
    assert pipeline.serialize()
    assert {name: node.device for name, node in outputs.items()} == {
        "image": "gpu",
        "row": "cpu",
        "valid": "cpu",
        "report": "cpu",
    }
    for name in ("valid", "report"):
        _copied, *behind = between(outputs[name], nodes["status"])
        assert {node.device for node in behind} == {"gpu"}, name


def between(node: Any, first: Any) -> list[Any]:
    """Return the nodes on the way back to one, that one left out."""
    behind = [other for source in node.source.inputs for other in between(source, first)]
    reaches = bool(behind) or any(source.name == first.name for source in node.source.inputs)
    return [node, *behind] if reaches else []


def test_an_error_leaves_the_stream_of_dali_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy destroys the stream whose address it still has, and DALI 2.4 takes it out too late."""
    cupy_standin.install(monkeypatch)
    with (stream := cupy_standin.Stream(1234)):
        assert _placed(len, 0)([1, 2]) == 2
        assert stream.ptr == 1234

        def fail(_: Any) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            _placed(fail, 1)([])
        assert stream.ptr == 0
        assert cupy_standin.current_stream() is stream


def test_each_operator_runs_on_the_gpu_of_its_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """On DALI's stream, whatever the current device of DALI's thread is."""
    cupy_standin.install(monkeypatch)

    def place(number: int) -> tuple[int, int, int]:
        return number, cupy_standin.Device().id, cupy_standin.current_stream().ptr

    for current in (0, 1):
        with cupy_standin.Device(current), cupy_standin.Stream(1234):
            assert _placed(place, 1)(7) == (7, 1, 1234)
            assert _placed(place, 0)(8) == (8, 0, 1234)
            assert _placed(place, None)(9) == (9, current, 1234)
            assert place(3) == (3, current, 1234)
    for device in (0, 1):
        with cupy_standin.Device(device):
            assert cupy_standin.current_stream().ptr == 0


def test_an_operator_knows_the_gpu_of_its_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy_standin.install(monkeypatch)
    devices = []

    def placed(function: Callable[..., Any], device: int | None) -> Callable[..., Any]:
        devices.append(device)
        return function

    monkeypatch.setattr(cupy_operator, "_placed", placed)
    # DALI would ask the driver for a GPU.
    pipeline = Pipeline(batch_size=1, num_threads=1, device_id=None)
    for number in (2, 3):
        monkeypatch.setattr(Pipeline, "device_id", number)
        with pipeline:
            image = fn.external_source(name=f"image{number}", layout="HWC", ndim=3)
            python_operator(list, [image], ["HWC"])
    assert devices == [2, 3]


def test_memory_of_a_closed_pipeline_is_freed(
    monkeypatch: pytest.MonkeyPatch, npy_index: Index
) -> None:
    """By its GPU, even if CUDA is out of order; and not on the CPU."""
    cupy_standin.install(monkeypatch)
    cupy: Any = sys.modules["cupy"]
    freed: list[int] = []
    pool = types.SimpleNamespace(free_all_blocks=lambda: freed.append(cupy_standin.Device().id))
    cupy.get_default_memory_pool = lambda: pool
    cupy.cuda.runtime = types.SimpleNamespace(CUDARuntimeError=RuntimeError)
    npy_pipeline(npy_index, batch_size=1, num_read_processes=0).close()
    assert freed == []
    pipeline = npy_pipeline(npy_index, batch_size=1, num_read_processes=0)
    monkeypatch.setattr(Pipeline, "device_id", 2)
    pipeline.close()
    assert freed == [2]

    def fail() -> None:
        raise RuntimeError("an illegal memory access was encountered")

    pool.free_all_blocks = fail
    pipeline.close()
    monkeypatch.delitem(sys.modules, "cupy")
    pipeline.close()
    assert "cupy" not in sys.modules


@pytest.mark.parametrize(("missing", "package"), [("cupy", "CuPy"), ("numba_cuda", "numba-cuda")])
def test_packages_are_asked_for_where_they_are_needed(
    monkeypatch: pytest.MonkeyPatch, missing: str, package: str
) -> None:
    """JPEG and .npy need neither on a GPU."""
    monkeypatch.setattr(cupy_operator, "find_spec", lambda name: None if name == missing else name)
    config = PipelineConfig(batch_size=2, device_id=0)
    with Pipeline(batch_size=2, num_threads=1, device_id=None):
        decode_array(arrays_of(NpyReader()), config)
        with pytest.raises(ModuleNotFoundError, match=rf"^{package}, .*dali-pipelines\[gpu\]"):
            decode_fits(arrays_of(FitsReader()), config)


@pytest.mark.parametrize("times", [None, 2])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"flip": "hv", "mean": (1.0, 2.0), "dtype": "float16"},
        {"crop": (8, 8), "rotate": 20.0, "resize": (4, 4)},
        {"crop": (8, 8), "augment": (Noise(1.0), Erase(), Blur(3)), "mean": 1.0},
    ],
)
@pytest.mark.parametrize(
    ("reader", "decode"),
    [(JpegReader(1), partial(decode_jpeg, channels=1)), (FitsReader(), decode_fits)],
)
def test_the_graph_of_several_files_is_accepted(
    monkeypatch: pytest.MonkeyPatch,
    reader: Reader,
    decode: Decode,
    options: dict[str, Any],
    times: int | None,
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    monkeypatch.setattr(cupy_operator, "find_spec", lambda name: name)
    parts = ("a", "b") if times is None else ("a-1h", "b-1h", "a0", "b0")
    several = ChannelsReader(reader, parts)
    config = PipelineConfig(batch_size=2, device_id=0, **options)
    with Pipeline(batch_size=2, num_threads=1, device_id=None):
        nodes = arrays_of(several, config)
        nodes["flip"] = fn.external_source(name="flip", dtype=to_dali_type("int32"), ndim=1)
        draws = fn.external_source(name="draws", dtype=to_dali_type("float32"), ndim=1)
        decoded = decode_parts(decode, several, times, missing=True)(nodes, config)
        image = transform(decoded, nodes, len(parts), config, Chance(draws))
    assert image.device == "gpu"
    assert list(decoded.others) == ["present"]
    assert decoded.others["present"].device == "cpu"
    assert decoded.cupy_nbytes is None or decoded.cupy_nbytes(2, 400, 4) == 800 // len(parts)
