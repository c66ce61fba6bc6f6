"""Models of `dali-pipelines export triton` in a real server; `make test-triton` runs this."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
import solar_files
import tritonclient.grpc
import tritonclient.http
from astropy.io import fits
from numpy.typing import NDArray
from PIL import Image
from servers.triton import Triton
from tritonclient.utils import InferenceServerException as Failed

from dali_pipelines import (
    CorrectionTable,
    Hdu,
    Index,
    Loader,
    aia_pipeline,
    fits_pipeline,
    jpeg_pipeline,
)
from dali_pipelines.cli.export.main import main
from dali_pipelines.serving.triton import answers

# The fixture of the first test starts all models.
pytestmark = pytest.mark.timeout(900)

COUNT = 16
PROTOCOLS = ("grpc", "http")
TOGETHER = "dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 60000000 }"
"""Requests wait for each other until there are four contents, a minute at most."""
AIA: dict[str, Any] = {
    "TELESCOP": "SDO/AIA",
    "INSTRUME": "AIA_3",
    "WAVELNTH": 171,
    "IMG_TYPE": "LIGHT",
    "T_OBS": "2011-02-15T00:00:01.00Z",
    "LVL_NUM": 1.0,
    "PERCENTD": 100.0,
    "CRPIX1": 64.5,
    "CRPIX2": 63.0,
    "CDELT1": 19.2,
    "CDELT2": 19.2,
    "CROTA2": 0.03,
}
"""Keywords of a frame of 128x128 pixels."""
MODELS = "jpeg", "fits", "half", "hdus", "parts", "whole"
ENSEMBLE = """\
name: "classify"
platform: "ensemble"
max_batch_size: 16
input [
  { name: "content" data_type: TYPE_UINT8 dims: [ -1 ] },
  { name: "nbytes" data_type: TYPE_INT64 dims: [ 1 ] optional: true }
]
output [ { name: "score" data_type: TYPE_FP32 dims: [ 3 ] } ]
ensemble_scheduling { step [
  {
    model_name: "jpeg"
    model_version: -1
    input_map { key: "content" value: "content" }
    input_map { key: "nbytes" value: "nbytes" }
    output_map { key: "image" value: "preprocessed" }
  },
  {
    model_name: "mean"
    model_version: -1
    input_map { key: "input" value: "preprocessed" }
    output_map { key: "score" value: "score" }
  }
] }
"""
NETWORK = """\
name: "mean"
backend: "python"
max_batch_size: 16
input [ { name: "input" data_type: TYPE_FP32 dims: [ 3, 64, 64 ] } ]
output [ { name: "score" data_type: TYPE_FP32 dims: [ 3 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""
NETWORK_MODEL = """\
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            image = np.from_dlpack(pb_utils.get_input_tensor_by_name(request, "input"))
            score = image.mean((2, 3), dtype=np.float32)
            tensor = pb_utils.Tensor.from_dlpack("score", score)
            responses.append(pb_utils.InferenceResponse([tensor]))
        return responses
"""


@dataclass
class Model:
    """A model, files for it, and what a Loader makes of them."""

    contents: list[Any]
    """Bytes, or those of each file of a sample."""
    expected: dict[str, NDArray[Any]]
    """Arrays of all contents, by name."""


@dataclass
class Served:
    """A server with all models."""

    server: Triton
    models: dict[str, Model]
    folder: Path

    def ask(
        self,
        protocol: str,
        model: str,
        contents: Sequence[Any] | Mapping[str, NDArray[Any]],
        **options: Any,
    ) -> dict[str, NDArray[Any]]:
        """Return the answer for contents, or for inputs by name."""
        inputs = contents if isinstance(contents, Mapping) else arrays_of(contents)
        return ask(self.server, protocol, model, inputs, **options)


def arrays_of(contents: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """Return the inputs of a request, as the module's documentation describes them."""
    if isinstance(contents[0], Mapping):
        names = {name for one in contents for name in one}
        found: dict[str, NDArray[Any]] = {}
        for name in names:
            own = arrays_of([one.get(name, b"") for one in contents])
            found |= {f"{key}_{name}": array for key, array in own.items()}
        return found
    content = np.zeros((len(contents), max(map(len, contents))), np.uint8)
    for row, one in zip(content, contents, strict=True):
        row[: len(one)] = np.frombuffer(one, np.uint8)
    return {"content": content, "nbytes": np.array([[len(one)] for one in contents])}


def ask(
    server: Triton,
    protocol: str,
    model: str,
    arrays: Mapping[str, NDArray[Any]],
    outputs: Sequence[str] | None = None,
) -> dict[str, NDArray[Any]]:
    """Return all outputs of a model, or those of some names."""
    module = getattr(tritonclient, protocol)
    kinds = {"uint8": "UINT8", "int64": "INT64", "float32": "FP32"}
    inputs = []
    for name, array in arrays.items():
        inputs.append(module.InferInput(name, [*array.shape], kinds[array.dtype.name]))
        inputs[-1].set_data_from_numpy(array)
    wanted = None if outputs is None else [module.InferRequestedOutput(one) for one in outputs]
    waits = {"network_timeout": 200.0} if protocol == "http" else {}
    with module.InferenceServerClient(getattr(server, protocol), **waits) as client:
        answer = client.infer(model, inputs, outputs=wanted)
        response = answer.get_response()
        if protocol == "grpc":
            names = [one.name for one in response.outputs]
        else:
            names = [one["name"] for one in response["outputs"]]
        return {name: answer.as_numpy(name).copy() for name in names}


def same(answer: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]]) -> bool:
    """Return whether two answers have the same arrays, bit for bit."""
    return answer.keys() == expected.keys() and all(
        answer[name].dtype == one.dtype and np.array_equal(answer[name], one, equal_nan=True)
        for name, one in expected.items()
    )


def some(model: Model, rows: slice | list[int]) -> dict[str, NDArray[Any]]:
    """Return what is expected of some contents."""
    return {name: array[rows] for name, array in model.expected.items()}


def export_of(
    folder: Path, name: str, factory: Any, index: Index, *flags: str, **settings: Any
) -> Model:
    """Write a model with the preprocessing of a Loader; return files and what it makes of them."""
    size = 1 if name == "whole" else len(index)
    common: dict[str, Any] = {"num_read_processes": 1, "devices": [None], "framework": "numpy"}
    with Loader(factory, index, mode="eval", batch_size=size, **common, **settings) as loader:
        batches = [batch for (batch,) in loader]
        with loader.preprocessor() as preprocessor:
            file = folder / f"{name}.toml"
            preprocessor.save(file)
    assert main(["triton", str(file), "-o", str(folder / "models"), "--name", name, *flags]) == 0
    names = batches[0].keys() - {"row", "valid"}
    columns = {one: index.table[one].to_pylist() for one in index.table.column_names}
    files = {
        one.removeprefix("path").removeprefix("_"): paths
        for one, paths in columns.items()
        if one.startswith("path_" if index.parts else "path")
    }
    contents: list[Any] = []
    for row in range(len(index)):
        sample = {
            part: Path(paths[row]).read_bytes()
            for part, paths in files.items()
            if paths[row] is not None
        }
        contents.append(sample if index.parts else sample[""])
    if name == "whole":
        return Model(contents, {f"{k}": batch["image"] for k, batch in enumerate(batches)})
    return Model(contents, {one: np.asarray(batches[0][one]) for one in names})


def photos(folder: Path) -> Index:
    """Write JPEGs of different sizes; the last two are as large as each other."""
    rng = np.random.default_rng(1)
    paths = []
    for number in range(COUNT):
        shape = (70 + 5 * min(number, COUNT - 2), 100 - 2 * min(number, COUNT - 2), 3)
        smooth = np.add.outer(np.arange(shape[0]), np.arange(shape[1]))[..., None] + rng.integers(
            0, 20 + number, shape
        )
        paths.append(folder / f"{number}.jpg")
        Image.fromarray((smooth % 256).astype(np.uint8)).save(paths[-1], quality=60 + number)
    return Index(pa.table({"path": [str(path) for path in paths]}))


def frames(folder: Path) -> Index:
    """Write FITS files with a compressed image, and others of integers."""
    rng = np.random.default_rng(2)
    paths = []
    for number in range(COUNT):
        shape = (80 + number, 96)
        image = rng.normal(100, 9, shape).astype(np.float32)
        image[number, :3] = np.nan
        hdus = [
            fits.PrimaryHDU(),
            fits.CompImageHDU(rng.integers(-900, 900, shape).astype(np.int16), name="SCI"),
            fits.ImageHDU(image, name="ERR"),
            fits.ImageHDU(rng.integers(0, 2**15, shape).astype(np.int32), name="DQ"),
            fits.ImageHDU(rng.integers(0, 2**16, shape).astype(np.uint16), name="RAW"),
        ]
        paths.append(folder / f"{number}.fits")
        fits.HDUList(hdus).writeto(paths[-1])
    return Index(pa.table({"path": [str(path) for path in paths]}))


def suns(folder: Path) -> Index:
    """Write frames of AIA, two to a sample; some of the second ones are missing."""
    rng = np.random.default_rng(3)
    paths: dict[str, list[str | None]] = {"path_a": [], "path_b": []}
    for number in range(COUNT):
        for part, column in paths.items():
            if part == "path_b" and number % 5 == 2:
                column.append(None)
                continue
            pixels = rng.integers(0, 900, (128, 128)).astype(np.int16)
            header = fits.PrimaryHDU(pixels).header
            header.update(solar_files.HMI | AIA | {"EXPTIME": 1 + number / 10})
            compression = {"compression_type": "RICE_1"} if number % 2 else {}
            path = folder / f"{number}{part}.fits"
            column.append(str(solar_files.save(path, pixels, header, **compression)))
    return Index(pa.table({"path": paths["path_a"], **paths}))


@pytest.fixture(scope="session", autouse=True)
def _warm_spawn() -> None:
    """Spawn plainly: the environment lacks what the fixture of this name imports beforehand."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    jpegs, fits_files = photos(folder), frames(folder)
    color: dict[str, Any] = {"mean": (123.7, 116.3, 103.5), "std": (58.4, 57.1, 57.4)}
    hdus = {
        "image": "SCI",
        "dq": Hdu("DQ", outside=1),
        "raw": Hdu("RAW", outside=0),
        "err": "ERR",
    }
    (folder / "factors.csv").write_text("date,factor\n2010-05-01,1.0\n2020-01-01,0.5\n")
    table = {"correction_table": CorrectionTable.read(folder / "factors.csv", channel=171)}
    models = {
        "jpeg": export_of(
            folder, "jpeg", jpeg_pipeline, jpegs, resize_shorter=72, crop=64, **color
        ),
        "fits": export_of(
            folder, "fits", fits_pipeline, fits_files, "--instances=2", hdu="ERR", crop=64
        ),
        "half": export_of(
            folder, "half", fits_pipeline, fits_files, crop=64, mean=50, std=9, dtype="float16"
        ),
        "hdus": export_of(folder, "hdus", fits_pipeline, fits_files, hdus=hdus, crop=64),
        "parts": export_of(
            folder, "parts", aia_pipeline, suns(folder), size=64, exposure=True, **table
        ),
        "whole": export_of(folder, "whole", jpeg_pipeline, jpegs, "--max_batch=4", dtype="uint8"),
    }
    config = folder / "models" / "whole" / "config.pbtxt"
    config.write_text(config.read_text().replace("dynamic_batching { }", TOGETHER))
    for name, text in (("classify", ENSEMBLE), ("mean", NETWORK)):
        (folder / "models" / name / "1").mkdir(parents=True)
        (folder / "models" / name / "config.pbtxt").write_text(text)
    (folder / "models" / "mean" / "1" / "model.py").write_text(NETWORK_MODEL)
    with Triton(folder / "models", folder) as server:
        yield Served(server, models, folder)
        assert server.close() == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("size", [1, 3, COUNT])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "whole"])
def test_answers_equal_the_loader(served: Served, protocol: str, size: int, name: str) -> None:
    model = served.models[name]
    for rows in (slice(size), slice(COUNT - size, COUNT)):
        answer = served.ask(protocol, name, model.contents[rows])
        assert same(answer, some(model, rows))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", ["jpeg", "parts"])
def test_contents_of_one_length_need_no_lengths(served: Served, protocol: str, name: str) -> None:
    model = served.models[name]
    for row, content in enumerate(model.contents[:3]):
        arrays = arrays_of([content])
        content_only = {key: one for key, one in arrays.items() if key.startswith("content")}
        answer = ask(served.server, protocol, name, content_only)
        assert same(answer, some(model, [row]))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_missing_files_are_left_out(served: Served, protocol: str) -> None:
    """Of a whole request, so that its inputs lack them, and of some samples."""
    model = served.models["parts"]
    present = model.expected["present"]
    assert present.dtype == bool
    assert present.shape == (COUNT, 2)
    rows = np.flatnonzero(~present[:, 1]).tolist()
    assert all("b" not in model.contents[row] for row in rows)
    answer = served.ask(protocol, "parts", [model.contents[row] for row in rows])
    assert same(answer, some(model, rows))
    assert not answer["present"][:, 1].any()
    with pytest.raises(Failed, match="expected one or more of the inputs content_a, content_b"):
        served.ask(protocol, "parts", {"nbytes_a": np.array([[3]])})


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("name", "bad", "reason"),
    [
        ("jpeg", b"none", "not an image: it begins with b'none'"),
        ("jpeg", b"", "the file is empty"),
        ("jpeg", None, "Truncated File Read"),
        ("fits", b"none", "not a FITS file"),
        ("fits", None, "the file is truncated"),
        ("parts", {"a": b"none"}, "part a, content.a: not a FITS file"),
        ("parts", {}, "none of the parts a, b is present"),
    ],
)
def test_a_bad_content_fails_its_request_by_name(
    served: Served, protocol: str, name: str, bad: Any, reason: str
) -> None:
    model = served.models[name]
    good = model.contents[0]
    bad = good[: len(good) // 3] if bad is None else bad
    with pytest.raises(Failed) as failed:
        served.ask(protocol, name, [good, model.contents[1], bad, model.contents[3]])
    assert str(failed.value.message()).startswith(f"content 2: {reason}")
    assert same(served.ask(protocol, name, [good]), some(model, [0]))


def at_once(served: Served, model: str, *requests: tuple[str, list[Any]]) -> list[Any]:
    """Ask several clients at once; return answers, or errors."""
    with ThreadPoolExecutor(len(requests)) as threads:
        answers: list[Future[Any]] = [
            threads.submit(served.ask, protocol, model, contents) for protocol, contents in requests
        ]
        return [one.exception() or one.result() for one in answers]


def executions(served: Served, model: str) -> int:
    """Return how many batches a model has executed."""
    with tritonclient.grpc.InferenceServerClient(served.server.grpc) as client:
        (found,) = client.get_inference_statistics(model).model_stats
        return int(found.execution_count)


@pytest.mark.parametrize("rows", [(14, 15), (0, 5)], ids=["one size", "two sizes"])
def test_requests_are_merged(served: Served, rows: tuple[int, int]) -> None:
    """Also where the images of one differ in size from those of the other."""
    model = served.models["whole"]
    one, other = (model.contents[row] for row in rows)
    assert len(one) != len(other)
    before = executions(served, "whole")
    answers = at_once(served, "whole", ("grpc", [one] * 2), ("http", [other] * 2))
    assert executions(served, "whole") == before + 1
    for answer, row in zip(answers, rows, strict=True):
        assert same(answer, {"image": np.repeat(model.expected[f"{row}"], 2, axis=0)})


def test_what_cannot_be_read_fails_no_other_request(served: Served) -> None:
    model = served.models["whole"]
    good, other = model.contents[14:]
    before = executions(served, "whole")
    answers = at_once(
        served, "whole", ("grpc", [good]), ("http", [b"none"]), ("grpc", [other, other[:200]])
    )
    assert executions(served, "whole") == before + 1
    assert same(answers[0], {"image": model.expected["14"]})
    for answer, number in zip(answers[1:], (0, 1), strict=True):
        assert isinstance(answer, Failed)
        assert f"content {number}: " in str(answer)
        assert f"content {1 - number}: " not in str(answer)


def test_sizes_that_differ_fail_no_other_request(served: Served) -> None:
    model = served.models["whole"]
    requests = ("grpc", [model.contents[0], model.contents[5]]), ("http", [model.contents[14]] * 2)
    failed, answer = at_once(served, "whole", *requests)
    assert isinstance(failed, Failed)
    assert "differ in" in str(failed)
    assert same(answer, {"image": np.repeat(model.expected["14"], 2, axis=0)})


def test_clients_at_once_get_their_own_answers(served: Served) -> None:
    model = served.models["jpeg"]
    rng = np.random.default_rng(4)
    chosen = [rng.integers(0, COUNT, rng.integers(1, 6)).tolist() for _ in range(24)]
    requests = [
        (PROTOCOLS[number % 2], [model.contents[row] for row in rows])
        for number, rows in enumerate(chosen)
    ]
    answers = at_once(served, "jpeg", *requests)
    for answer, rows in zip(answers, chosen, strict=True):
        assert same(answer, some(model, rows))


def test_settings_that_were_changed_are_refused(served: Served, tmp_path: Path) -> None:
    shutil.copytree(served.folder / "models" / "jpeg", tmp_path / "models" / "jpeg")
    file = tmp_path / "models" / "jpeg" / "1" / "preprocess.toml"
    file.write_text(file.read_text().replace("64,", "60,"))
    with pytest.raises(ConnectionError, match=r"preprocess\.toml was changed after it was saved"):
        Triton(tmp_path / "models", tmp_path)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_outputs_can_be_chosen(served: Served, protocol: str) -> None:
    model = served.models["hdus"]
    answer = served.ask(protocol, "hdus", model.contents[:2], outputs=["dq"])
    assert same(answer, {"dq": model.expected["dq"][:2]})


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("nbytes", [-1, 10**9])
def test_lengths_that_make_no_sense(served: Served, protocol: str, nbytes: int) -> None:
    arrays = arrays_of(served.models["jpeg"].contents[:1])
    with pytest.raises(Failed, match=f"nbytes must be the length of each .* got .{nbytes}"):
        served.ask(protocol, "jpeg", {**arrays, "nbytes": np.array([[nbytes]])})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_requests_that_are_too_large_or_empty(served: Served, protocol: str) -> None:
    model = served.models["jpeg"]
    with pytest.raises(Failed, match="batch-size must be <= 16"):
        served.ask(protocol, "jpeg", [*model.contents, model.contents[0]])
    with pytest.raises(Failed, match="size mismatch for input 'content'"):
        served.ask(protocol, "jpeg", {"content": np.zeros((0, 9), np.uint8)})
    with pytest.raises(Failed, match="content 0: the file is empty; content 1: the file is empty"):
        served.ask(protocol, "jpeg", {"content": np.zeros((2, 0), np.uint8)})
    assert same(served.ask(protocol, "jpeg", model.contents[:1]), some(model, [0]))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_ensemble_with_a_network(served: Served, protocol: str) -> None:
    model = served.models["jpeg"]
    answer = served.ask(protocol, "classify", model.contents[:3])
    score = model.expected["image"][:3].mean((2, 3), dtype=np.float32)
    assert same(answer, {"score": score})
    content = arrays_of(model.contents[:1])["content"]
    assert same(served.ask(protocol, "classify", {"content": content}), {"score": score[:1]})
    with pytest.raises(Failed, match="content 1: not an image"):
        served.ask(protocol, "classify", [model.contents[0], b"none"])


def test_memory_stays(served: Served) -> None:
    """If answers stayed, these would take 80 MB."""
    model = served.models["jpeg"]
    (process,) = [one for one in served.server.models if "/jpeg/1/" in " ".join(one.cmdline())]
    for number in range(120):
        if number == 20:
            before = process.memory_info().rss
        served.ask("grpc", "jpeg", model.contents)
    assert process.memory_info().rss - before < 30e6


def test_the_log_has_no_errors_of_models(served: Served) -> None:
    """As NumPy 2 writes them of a capsule that Triton has renamed; "mean" has such ones."""
    served.ask("grpc", "jpeg", served.models["jpeg"].contents)
    assert "dali_pipelines/serving" not in served.server.log


def test_the_server_ends_and_leaves_nothing(served: Served, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mean").symlink_to(served.folder / "models" / "mean")
    with Triton(tmp_path / "models", tmp_path) as server:
        ours = server.models
        image = np.ones((1, 3, 64, 64), np.float32)
        assert same(ask(server, "grpc", "mean", {"input": image}), {"score": np.ones((1, 3), "f4")})
        assert server.close() == []
    assert len(ours) == 1
    assert not ours[0].is_running()


class Broken:
    """A Preprocessor that fails on some contents, as a graph may."""

    files = ()

    def __call__(self, contents: list[NDArray[Any]], bad_sample: str) -> dict[str, Any]:
        if any(one[0] == 9 for one in contents):
            raise RuntimeError("a broken graph")
        return {"row": np.arange(len(contents)), "image": np.stack(contents), "rejected": {}}


def test_a_graph_that_fails_fails_no_other_request(caplog: pytest.LogCaptureFixture) -> None:
    one, other = (np.full((2, 3), value, np.uint8) for value in (7, 9))
    found = answers(cast(Any, Broken()), [{"content": one}, {"content": other}])
    assert found[1] == "RuntimeError: a broken graph"
    assert isinstance(found[0], dict)
    np.testing.assert_array_equal(found[0]["image"], one)
    assert "a broken graph" in caplog.text
