"""Contents, settings and names that broke a Preprocessor once."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import solar_files
from image_files import C8, pillow
from nvidia.dali import fn
from serving_parts import doubled

from dali_pipelines import (
    Blur,
    ColorJitter,
    Index,
    Loader,
    Preprocessor,
    ReaderPipeline,
    Stretch,
    aia_pipeline,
    fits_pipeline,
    jpeg_pipeline,
)
from dali_pipelines.serving.triton import export
from readers.worker.timeout import TimeLimit

PHOTO, SMALL = pillow(C8), pillow(C8[:20, :20])


def middle(image: Any, chance: Any, config: Any) -> Any:
    return fn.slice(image, [4, 4], [30, 30], axes=[0, 1])


def of_numpy(factory: Any, **settings: Any) -> Preprocessor:
    return Preprocessor(factory, framework="numpy", **settings)


def loader(tmp_path: Path, **settings: Any) -> Loader:
    (tmp_path / "a.jpg").write_bytes(PHOTO)
    index = Index.from_paths([str(tmp_path / "a.jpg")])
    return Loader(jpeg_pipeline, index, batch_size=1, devices=[None], **settings)


def test_loaders_for_training_and_validation_save_one_file(tmp_path: Path) -> None:
    chance = {"flip": "hv", "window": "random", "rotate": 20, "zoom": (0.9, 1.1)}
    training = loader(tmp_path, crop=20, augment=(Blur(3),), **chance)
    validation = loader(tmp_path, crop=20, mode="eval")
    for name, one in (("a.toml", training), ("b.toml", validation)):
        one.preprocessor().save(tmp_path / name)
    assert (tmp_path / "a.toml").read_bytes() == (tmp_path / "b.toml").read_bytes()
    assert training.state_dict()["preprocess"] == validation.preprocessor().digest


def test_settings_without_chance_remain() -> None:
    assert Preprocessor(jpeg_pipeline, crop=20, zoom=(2, 2)).settings["zoom"] == (2, 2)
    # It also says that images of more than 8 bits are rejected.
    of_color = (ColorJitter(0.4),)
    assert Preprocessor(jpeg_pipeline, augment=(Blur(3), *of_color)).settings == {
        "augment": of_color
    }


def test_parameters_that_a_factory_declares_are_not_chance() -> None:
    def factory(index: Index, *, rotate: int = 0, **config: Any) -> ReaderPipeline:
        raise NotImplementedError

    assert Preprocessor(factory, rotate=3, flip="h").settings == {"rotate": 3}


@pytest.mark.parametrize("ragged", [None, "list"])
def test_transforms_that_cut_out_have_room_in_empty_slots(ragged: Any) -> None:
    with of_numpy(jpeg_pipeline, max_batch=4, ragged=ragged, transform=middle) as preprocess:
        preprocess.build()
        assert len(preprocess([])["image"]) == 0
        assert preprocess([b""], bad_sample="skip")["rejected"] == {0: "the file is empty"}
        for contents in ([PHOTO] * 3, [b"", PHOTO], [PHOTO, b"", PHOTO]):
            batch = preprocess(contents, bad_sample="skip")
            assert batch["row"].tolist() == [k for k, one in enumerate(contents) if one]
            assert {image.shape for image in batch["image"]} == {(3, 30, 30)}


@pytest.mark.parametrize(
    ("contents", "ragged"),
    [
        ([SMALL], None),
        ([SMALL, PHOTO, PHOTO], "list"),
        ([PHOTO, SMALL, PHOTO, b""], None),
        ([PHOTO, SMALL, PHOTO, b""], "list"),
    ],
    ids=["alone", "first", "between", "between, listed"],
)
def test_a_content_on_which_a_transform_fails_fails_alone(
    contents: list[bytes], ragged: Any
) -> None:
    with of_numpy(jpeg_pipeline, max_batch=4, ragged=ragged, transform=middle) as preprocess:
        batch = preprocess(contents, bad_sample="skip")
        place = contents.index(SMALL)
        assert "transform" in batch["rejected"][place]
        good = [k for k, one in enumerate(contents) if one == PHOTO]
        assert batch["row"].tolist() == good
        for image in batch["image"]:
            np.testing.assert_array_equal(image, preprocess([PHOTO])["image"][0])


def test_tables_of_one_name_are_not_saved_over_each_other(
    tmp_path: Path, shared_data: Path
) -> None:
    for name in ("pointing", "correction", "saved"):
        (tmp_path / name).mkdir()
    pointing = tmp_path / "pointing" / "table.txt"
    solar_files.save_pointing(solar_files.pointing_table(), pointing)
    correction = tmp_path / "correction" / "table.txt"
    official = shared_data / "tables" / "aia_V10_20201119_190000_response_table.txt"
    correction.write_bytes(official.read_bytes())
    preprocess = Preprocessor(
        aia_pipeline, size=64, pointing_table=str(pointing), correction_table=str(correction)
    )
    with pytest.raises(ValueError, match=r"two.*table\.txt"):
        preprocess.save(tmp_path / "saved" / "preprocess.toml")
    assert not [*(tmp_path / "saved").iterdir()]


@dataclass(frozen=True)
class OfChannel:
    factors: dict[Any, float]

    def __call__(self, image: Any, chance: Any, config: Any) -> Any:
        return image * self.factors.get(171, 1.0)


def test_keys_that_would_come_back_as_text_are_refused(tmp_path: Path) -> None:
    preprocess = Preprocessor(jpeg_pipeline, transform=OfChannel({171: 2.0}))
    with pytest.raises(ValueError, match=r"key 171.*saved"):
        preprocess.save(tmp_path / "preprocess.toml")


def test_channels_of_a_stretch_are_numbers_or_text(tmp_path: Path) -> None:
    several = [
        Preprocessor(aia_pipeline, size=64, stretch={channel: Stretch(kind="asinh")})
        for channel in (171, "171")
    ]
    several[0].save(tmp_path / "preprocess.toml")
    several.append(Preprocessor.load(tmp_path / "preprocess.toml"))
    assert len({one.digest for one in several}) == 1


def test_threads_save_to_one_path(tmp_path: Path) -> None:
    several = [Preprocessor(jpeg_pipeline, crop=10 + k) for k in range(3)]
    errors: list[OSError] = []

    def save(one: Preprocessor) -> None:
        try:
            for _ in range(30):
                one.save(tmp_path / "preprocess.toml")
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=save, args=(one,)) for one in several]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    found = Preprocessor.load(tmp_path / "preprocess.toml").digest
    assert found in {one.digest for one in several}
    assert [path.name for path in tmp_path.iterdir()] == ["preprocess.toml"]


def test_a_date_in_the_file_is_a_change(tmp_path: Path) -> None:
    path = tmp_path / "preprocess.toml"
    Preprocessor(jpeg_pipeline).save(path)
    path.write_text(path.read_text() + "\nday = 2020-01-01\n")
    with pytest.raises(ValueError, match="changed after"):
        Preprocessor.load(path)


def test_a_state_does_not_fail_with_the_preprocessor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(*args: Any, **settings: Any) -> None:
        raise TimeLimit("no answer")

    monkeypatch.setattr("dali_pipelines.loader.preprocessor_of", raises)
    assert "preprocess" not in loader(tmp_path).state_dict()


def test_random_area_is_refused_with_a_call_that_works(tmp_path: Path) -> None:
    training = loader(tmp_path, random_area=(0.1, 1), resize=16)
    with pytest.raises(ValueError, match=r"loader\.preprocessor\(random_area=None, resize=None"):
        training.preprocessor()
    training.preprocessor(random_area=None, resize=None, resize_shorter=256, crop=224)


@pytest.mark.parametrize("name", ['a"b', 'x"\nbackend: "evil', "a\\b", "ä b"])
def test_names_of_models_are_quoted(tmp_path: Path, name: str) -> None:
    config = (export(of_numpy(jpeg_pipeline, crop=8), tmp_path, name) / "config.pbtxt").read_text()
    lines = config.splitlines()
    assert lines[0] == f"name: {json.dumps(name, ensure_ascii=False)}"
    assert lines[1] == 'backend: "python"'


def test_names_of_parts_are_quoted(tmp_path: Path) -> None:
    folder = export(of_numpy(fits_pipeline, crop=8, parts=('a"b', "c")), tmp_path, "model")
    assert r'name: "content_a\"b"' in (folder / "config.pbtxt").read_text()


def test_all_outputs_have_a_type_in_triton(tmp_path: Path) -> None:
    preprocess = of_numpy(jpeg_pipeline, crop=8, outputs=("window", "flip", "matrix"))
    folder = export(preprocess, tmp_path, "model", example=PHOTO)
    assert 'name: "matrix" data_type: TYPE_FP64' in (folder / "config.pbtxt").read_text()


@pytest.mark.parametrize("count", ["max_batch", "instances", "num_gpus"])
def test_counts_of_a_model_are_checked(tmp_path: Path, count: str) -> None:
    with pytest.raises(ValueError, match=count):
        export(of_numpy(jpeg_pipeline, crop=8), tmp_path, "model", **{count: -1})
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("dtype", ["float16", "bool", "complex64"])
def test_arrays_that_fits_does_not_store(dtype: str) -> None:
    with pytest.raises(TypeError, match=f"content 0.*FITS.*{dtype}"):
        of_numpy(fits_pipeline)([np.zeros((9, 9), dtype)])


def test_arrays_without_axes_and_views_with_gaps() -> None:
    preprocess = of_numpy(jpeg_pipeline)
    with pytest.raises(TypeError, match=r"content 0.*image.*shape \(\)"):
        preprocess([np.array(3)])
    gaps = memoryview(np.repeat(np.frombuffer(PHOTO, np.uint8), 2).tobytes())[::2]
    np.testing.assert_array_equal(preprocess([gaps])["image"], preprocess([PHOTO])["image"])


def test_a_content_of_a_wrong_type_leaves_the_graph() -> None:
    built: list[Index] = []

    def factory(index: Index, **config: Any) -> ReaderPipeline:
        built.append(index)
        return jpeg_pipeline(index, **config)

    preprocess = of_numpy(factory)
    preprocess([PHOTO])
    before = len(built)
    assert before > 0
    with pytest.raises(TypeError, match="content 0 must be"):
        preprocess([None])
    assert preprocess([PHOTO])["row"].tolist() == [0]
    assert len(built) == before


def test_an_open_file_is_not_read_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(PHOTO)
    with (tmp_path / "a.jpg").open("rb") as file, pytest.raises(TypeError, match="BufferedReader"):
        of_numpy(jpeg_pipeline)(file)


def test_a_name_is_not_a_factory() -> None:
    with pytest.raises(TypeError, match=r"jpeg_pipeline.*'jpeg'"):
        Preprocessor("jpeg")  # type: ignore[arg-type]


@pytest.mark.parametrize("names", ["ab", ("a", "a"), (1,)])
@pytest.mark.parametrize("setting", ["parts", "offsets"])
def test_parts_and_offsets_are_names(setting: str, names: Any) -> None:
    with pytest.raises(ValueError, match=setting):
        Preprocessor(jpeg_pipeline, **{setting: names})


def test_a_call_that_waits_while_another_thread_closes() -> None:
    preprocess = of_numpy(jpeg_pipeline, transform=doubled)
    lock = preprocess._lock

    # Nothing public tells that a call waits for its turn: this lock closes once one does.
    class Closing:
        def __enter__(self) -> None:
            preprocess._lock = lock
            preprocess.close()
            lock.acquire()

        def __exit__(self, *error: object) -> None:
            lock.release()

    preprocess._lock = Closing()  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="closed"):
        preprocess([PHOTO])
