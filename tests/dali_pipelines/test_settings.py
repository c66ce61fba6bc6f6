"""Misspelt settings and values of a wrong type are found when a Loader is made; no file is read."""

from __future__ import annotations

import dataclasses
import inspect
import re
from functools import partial
from typing import Any, Unpack

import pytest
import torch
from torch.utils.data import DataLoader

from dali_pipelines import (
    AiaSettings,
    Calibration,
    Index,
    Loader,
    NpyReader,
    PipelineConfig,
    PipelineSettings,
    aia_pipeline,
    audio_pipeline,
    chunked_pipeline,
    fits_pipeline,
    jpeg_pipeline,
    npy_pipeline,
    reader_pipeline,
    video_pipeline,
)
from dali_pipelines.aia.calibration import NOT_OF_AIA, CalibrationSettings
from dali_pipelines.graph.decode import decode_array
from dali_pipelines.keywords import names_of
from dali_pipelines.settings import LoaderSettings, SharedSettings

FACTORIES = (
    *(fits_pipeline, jpeg_pipeline, npy_pipeline, aia_pipeline, chunked_pipeline, audio_pipeline),
    video_pipeline,
)
NOWHERE = Index.from_paths(["/nowhere/0.jpg", "/nowhere/1.jpg"])


def typed(index: Index, *, stars: int = 3, **config: Unpack[PipelineSettings]) -> Any:
    raise AssertionError("it is not called before the Loader starts")


def untyped(index: Index, *, crop: str = "", **config: Any) -> Any:
    return reader_pipeline(index, NpyReader(), decode_array, PipelineConfig(**config))


def test_the_types_have_all_settings() -> None:
    fields = {field.name for field in dataclasses.fields(PipelineConfig)}
    assert set(PipelineSettings.__annotations__) == fields
    more = {field.name for field in dataclasses.fields(Calibration)}
    assert set(AiaSettings.__annotations__) == fields | more


def test_a_loader_names_the_settings_of_all_factories() -> None:
    own = {"factory", "index", "config"} | set(inspect.signature(Loader.__init__).parameters)
    expected = {"hdu", *PipelineSettings.__annotations__}
    for factory in FACTORIES:
        expected |= names_of(factory) or set()
    of_the_loader = {"device_id", "epoch", "position", "first_step"}
    assert set(LoaderSettings.__annotations__) == expected - own - of_the_loader


@pytest.mark.parametrize(
    ("factory", "name", "meant"),
    [
        (jpeg_pipeline, "crop_size", "crop"),
        (jpeg_pipeline, "windows", "window"),
        (jpeg_pipeline, "num_worker", "num_read_processes"),
        (jpeg_pipeline, "num_workers", "num_read_processes"),
        (jpeg_pipeline, "sampler", "weights"),
        (jpeg_pipeline, "random_resized_crop", "random_area"),
        (jpeg_pipeline, "hflip", "flip"),
        (jpeg_pipeline, "channels_last", "memory_format"),
        (audio_pipeline, "sample_rate", "rate"),
        (audio_pipeline, "labels", "columns"),
        (npy_pipeline, "steps_per_epoch", "epoch_steps"),
        (jpeg_pipeline, "bad_samples", "bad_sample"),
        (fits_pipeline, "hduz", "hdus"),
        (npy_pipeline, "file_type", "file_dtype"),
        (aia_pipeline, "exposur", "exposure"),
        (partial(aia_pipeline, order=1), "sise", "size"),
        (typed, "star", "stars"),
    ],
)
def test_a_misspelt_setting_is_found_with_what_is_near(factory: Any, name: str, meant: str) -> None:
    title = getattr(factory, "func", factory).__name__
    setting: dict[str, Any] = {name: 3}
    with pytest.raises(TypeError, match=rf"{title}.*'{name}'.*\b{meant}\b.*\?"):
        Loader(factory, NOWHERE, batch_size=1, **setting)


def test_all_names_are_listed() -> None:
    with pytest.raises(TypeError, match=r"'qqq'.* augment, bad_sample, batch_size, "):
        Loader(jpeg_pipeline, NOWHERE, batch_size=1, qqq=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("factory", [fits_pipeline, jpeg_pipeline, npy_pipeline, untyped])
def test_factories_find_them_too(factory: Any) -> None:
    with pytest.raises(TypeError, match=r"'windows'.*window"):
        factory(NOWHERE, batch_size=1, windows="random")


def test_the_aia_factory_knows_its_own() -> None:
    with pytest.raises(TypeError, match=r"aia_pipeline.*'expo'.*exposure"):
        aia_pipeline(NOWHERE, batch_size=1, expo=True)  # type: ignore[call-arg]


def test_a_factory_that_says_nothing_is_asked_when_it_is_called() -> None:
    settings: dict[str, Any] = {"crop_size": 3, "crop": "mine"}
    loader = Loader(untyped, NOWHERE, batch_size=1, devices=[None], **settings)
    with pytest.raises(TypeError, match=r"'crop_size'.*crop"):
        loader.start()


def test_a_pipeline_is_no_factory() -> None:
    pipeline = npy_pipeline(NOWHERE, batch_size=1, num_read_processes=0)
    take: Any = Loader
    for given in ((pipeline,), (pipeline, NOWHERE)):
        with pytest.raises(TypeError, match=r"Loader\(jpeg_pipeline, index, batch_size"):
            take(*given)
    with pytest.raises(TypeError, match=r"Loader\(jpeg_pipeline, index, batch_size"):
        take(factory=pipeline, index=NOWHERE)
    with pytest.raises(TypeError, match="'index'"):
        take(npy_pipeline)


@pytest.mark.parametrize("factory", FACTORIES)
def test_a_path_is_no_index(factory: Any) -> None:
    with pytest.raises(TypeError, match=r"Index.scan\(./nowhere"):
        factory("/nowhere", batch_size=1)


@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_data_loader_is_not_for(npy_index: Index, workers: int) -> None:
    loader = Loader(npy_pipeline, npy_index, batch_size=4, devices="cpu")
    remedies = (loader, "iterate over it"), (npy_index, r"Loader\(fits_pipeline")
    for data, remedy in remedies:
        batches: Any = DataLoader(data, num_workers=workers)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=remedy):
            next(iter(batches))


@pytest.mark.parametrize("named", ["label", "class_name"])
def test_a_column_of_classes_that_is_not_there(named: str) -> None:
    with pytest.raises(KeyError, match=r"from_class_folders.*with_column"):
        Loader(jpeg_pipeline, NOWHERE, batch_size=1, columns=(named,))
    with pytest.raises(KeyError, match=r"'other'.*it has path\W?$"):
        Loader(jpeg_pipeline, NOWHERE, batch_size=1, columns=("other",))


@pytest.mark.parametrize(
    "transform", [torch.nn.ReLU(), torch.nn.Sequential(torch.nn.ReLU()), lambda image: image]
)
def test_transforms_of_tensors_are_for_batches(transform: Any) -> None:
    with pytest.raises(ValueError, match=r"\(image, chance, config\)") as caught:
        Loader(jpeg_pipeline, NOWHERE, batch_size=1, transform=transform)
    assert "delivered batch" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["num_read_processes", "shard_id", "num_shards", "index"],
)
@pytest.mark.parametrize("factory", [npy_pipeline, untyped])
def test_what_only_a_loader_can_be_given(factory: Any, name: str) -> None:
    bound = partial(_Partial(factory, **{name: None}), crop=3)
    with pytest.raises(TypeError, match=f"{name} of {factory.__name__}.*{name} to the Loader"):
        Loader(bound, NOWHERE, batch_size=1)


class _Partial(partial):
    """functools.partial does not merge others of another class."""


@pytest.mark.parametrize("name", ["device_id", "epoch", "position"])
def test_what_the_loader_sets_itself_cannot_be_bound(name: str) -> None:
    with pytest.raises(TypeError, match=f"a Loader sets {name}"):
        Loader(_Partial(jpeg_pipeline, **{name: 0}), NOWHERE, batch_size=1)


def test_help_lists_every_setting_with_its_default() -> None:
    parameters = inspect.signature(Loader).parameters
    assert {*LoaderSettings.__annotations__} - {*parameters} == {
        *("hdu", "planes", "num_planes", "hdus", "channels", "check_entropy", "file_dtype"),
        *("calibration", "preset", "variables"),
        *("duration", "short", "rate", "speeds", "features", "frames", "stride", "decode"),
        *(CalibrationSettings.__annotations__.keys() - PipelineSettings.__annotations__.keys()),
    }
    fields = {field.name: field for field in dataclasses.fields(PipelineConfig)}
    for name, field in fields.items():
        if name in SharedSettings.__annotations__ and field.default is not dataclasses.MISSING:
            assert parameters[name].default == field.default
    for described in (Loader, PipelineConfig, fits_pipeline, aia_pipeline, jpeg_pipeline):
        sections = re.split(r"^-+$", described.__doc__ or "", flags=re.MULTILINE)
        listed = dict(re.findall(r"^(\w+) : .*\n((?: +.*\n)*)", sections[1], re.MULTILINE))
        refused = NOT_OF_AIA if described is aia_pipeline else frozenset()
        assert listed.keys() >= SharedSettings.__annotations__.keys() - refused
        assert listed.keys().isdisjoint(refused)
        assert all(len(text.split()) > 2 for text in listed.values())


def test_messages_name_only_what_aia_pipeline_takes() -> None:
    with pytest.raises(TypeError, match="did you mean size"):
        Loader(aia_pipeline, NOWHERE, batch_size=1, registered_size=64)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"available settings: .*zoom") as caught:
        Loader(aia_pipeline, NOWHERE, batch_size=1, bogus=1)  # type: ignore[call-arg]
    assert not {"mean", "resize", "interpolation"} & {*re.findall(r"\w+", str(caught.value))}
    with pytest.raises(ValueError, match=r"random_area is not for aia_pipeline.*crop"):
        Loader(aia_pipeline, NOWHERE, batch_size=1, random_area=(0.1, 1))


def test_the_order_may_be_bound(npy_index: Index) -> None:
    bound = partial(npy_pipeline, batch_size=3, seed=5, shuffle=False, tail="drop")
    with Loader(bound, npy_index, devices=[None]) as loader:  # type: ignore[call-arg]
        state = loader.state_dict()
        assert (state["seed"], state["shuffle"]) == (5, False)
        assert next(iter(loader))[0]["row"].tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="batch_size"):
        Loader(npy_pipeline, npy_index)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["weights", "block_rows", "epoch_steps", "crop", "rejected"])
def test_none_replaces_what_is_bound(npy_index: Index, name: str) -> None:
    index = npy_index.with_column("w", [0.0] * (len(npy_index) - 1) + [1.0])
    values = {"weights": "w", "block_rows": 2, "epoch_steps": 2, "crop": 2, "rejected": {0: "x"}}
    more: dict[str, Any] = {"shuffle": "blocks"} if name == "block_rows" else {}
    bound = _Partial(npy_pipeline, **{name: values[name]}, **more)
    settings: dict[str, Any] = {"batch_size": 5, "devices": "cpu", "bad_sample": "skip", **more}
    nothing: dict[str, Any] = {name: {} if name == "rejected" else None}
    with (
        Loader(bound, index, **settings, **nothing) as loader,
        Loader(npy_pipeline, index, **settings) as plain,
    ):
        assert loader.state_dict() == plain.state_dict()
        rows, expected = (
            [(step["row"].tolist(), step["image"].shape) for step in each]
            for each in (loader, plain)
        )
        assert rows == expected


def test_bound_settings_count_as_if_given(npy_index: Index) -> None:
    bound = _Partial(partial(npy_pipeline, mode="eval", num_epochs=1, columns=("c",)), num_epochs=2)
    index = npy_index.with_column("c", range(len(npy_index)))
    with Loader(bound, index, batch_size=10, num_read_processes=1, devices=[None]) as loader:
        assert not loader.state_dict()["shuffle"]
        for _ in range(2):
            (batch,) = next(iter(loader))
            assert batch["row"].tolist() == batch["c"].tolist() == list(range(10))
        assert [len(list(loader)) for _ in range(2)] == [3, 3]
        with pytest.raises(RuntimeError, match="num_epochs=2"):
            list(loader)
    with pytest.raises(ValueError, match="mode 'eval'"):
        Loader(partial(npy_pipeline, mode="eval"), index, batch_size=1, weights="c")


def test_what_is_given_wins_over_what_is_bound(npy_index: Index) -> None:
    bound = partial(npy_pipeline, mode="eval")
    with Loader(bound, npy_index, batch_size=4, devices=[None], mode="train") as loader:
        assert loader.state_dict()["shuffle"]
        assert loader.make_pipelines()[0].source.chance


@pytest.mark.parametrize("name", ["device_id", "epoch", "position"])
def test_what_the_loader_sets_itself(name: str) -> None:
    setting: dict[str, Any] = {name: 0}
    with pytest.raises(TypeError, match=f"a Loader sets {name}"):
        Loader(jpeg_pipeline, NOWHERE, batch_size=1, **setting)


# As in test_config.py, for those that a Loader checks itself, or passes on.
WRONG: list[tuple[str, Any, str]] = [
    ("crop", 7.5, "height, width.*7.5"),
    ("window", "left", "'center', 'random', 'row'.*'left'"),
    ("columns", "label", r"\('label',\).*'label'"),
    ("seed", 1.5, "integer, at least 0.*1.5"),
    ("seed", 2**64, r"below 2\*\*64.*18446744073709551616"),
    ("shuffle", "no", "'blocks' or 'buckets'.*'no'"),
    ("batch_size", True, "integer, at least 1.*True"),
    ("num_read_processes", 2.0, "integer, at least 1.*2"),
    ("restart_readers", 1.5, "integer, at least 0.*1.5"),
    ("num_epochs", "3", "integer, at least 0.*'3'"),
    ("read_timeout", "1 s", "seconds, or None.*'1 s'"),
    ("rotate", None, "from 0 to 180.*None"),
    ("rejected", [3], r"rows to reasons.*\[3\]"),
    ("rejected", {2: "bad"}, "rows of the Index, 0 to 1.* 2"),
    ("max_bad", float("nan"), "number of rows.*nan"),
    ("max_bad", "3", "number of rows.*'3'"),
    ("devices", "gpu", "'cpu'.*'cuda:1'.*'gpu'"),
    ("block_rows", 9, "=9.*shuffle='blocks'"),
]


@pytest.mark.parametrize("factory", [jpeg_pipeline, npy_pipeline])
@pytest.mark.parametrize(("name", "value", "words"), WRONG, ids=str)
def test_wrong_values(factory: Any, name: str, value: Any, words: str) -> None:
    settings = {"batch_size": 1, name: value}
    with pytest.raises(ValueError, match=f"{name}.*{words}"):
        Loader(factory, NOWHERE, **settings)


def test_a_factory_that_returns_no_pipeline() -> None:
    def factory(index: Index, **config: Any) -> Any:
        untyped(index, **config)

    loader = Loader(factory, NOWHERE, batch_size=1, devices=[None])
    with pytest.raises(TypeError, match=r"ReaderPipeline.*NoneType"):
        loader.start()
