"""Preprocessing as a model of Triton's Python backend: the export, and the answers to requests.

Triton's DALI backend cannot run these graphs: it serialises graphs, and compiled functions, such as
those that decode FITS and resize, cannot be serialised.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_pipelines.serving.preprocessor import Preprocessor
from readers.values import check_integer

SETTINGS = "preprocess.toml"
CONTENT, NBYTES = "content", "nbytes"
"""Names of the inputs: bytes of the files of a batch, padded to the longest, and their lengths. If
samples have several files, there are two inputs for each file, whose names end in ``_`` and the
name of the file."""

_TYPES = {
    "bool": "BOOL",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    **{
        f"{sign}int{bits}": f"{sign}int{bits}".upper() for sign in ("", "u") for bits in (8, 16, 32)
    },
    "int64": "INT64",
}
_OWN = "row", "valid"
"""Outputs that are not sent to clients."""
_USED = b"used_dltensor"
"""Name of a DLPack capsule after its consumer has taken the memory."""
_log = logging.getLogger(__name__)

Answer = dict[str, Any] | str
"""Arrays by name, or the reason why the request failed."""


def export(
    preprocessor: Preprocessor,
    repository: str | os.PathLike[str],
    name: str,
    *,
    max_batch: int = 16,
    instances: int = 1,
    num_gpus: int = 0,
    example: Any = None,
) -> Path:
    """Write a model for Triton's Python backend, and test it in this process.

    Parameters
    ----------
    preprocessor : Preprocessor
        Preprocessor with the settings of the model.
    repository : path
        Folder of the models of a server; it is created if it does not exist.
    name : str
        Name of the model, and of its folder.
    max_batch : int
        Maximum number of contents in a batch, from one or several requests.
    instances : int
        Number of processes that the server starts on the CPU, or on each GPU.
    num_gpus : int
        Number of GPUs, from GPU 0 on; 0 for the CPU.
    example : optional
        Content to preprocess as a test.

    Returns
    -------
    Path
        Folder of the model.

    Raises
    ------
    FileExistsError, NotADirectoryError
        If the folder of the model exists, or the repository is a file.
    PreprocessError
        If the example cannot be read.
    ValueError
        If the settings cannot be saved, or images of one request could differ in size.
    """
    for setting, value, least in (
        ("max_batch", max_batch, 1),
        ("instances", instances, 1),
        ("num_gpus", num_gpus, 0),
    ):
        check_integer(setting, value, least)
    if not name or name != os.path.basename(name) or name.startswith("."):
        raise ValueError(f"name must be a folder name, such as jpeg224, got {name!r}")
    if preprocessor.settings.get("ragged") is not None:
        raise ValueError(
            f"ragged={preprocessor.settings['ragged']!r} is for images of several sizes, but the "
            "images of a request must be one array: set crop or resize"
        )
    if os.path.exists(repository) and not os.path.isdir(repository):
        raise NotADirectoryError(f"{repository} is a file, expected a folder of models")
    folder = Path(repository, name)
    if folder.exists():
        raise FileExistsError(f"{folder} exists: choose another name, or remove it")
    part = folder.with_name(f".{name}.{os.getpid()}")
    version = part / "1"
    version.mkdir(parents=True)
    try:
        preprocessor.save(version / SETTINGS)
        model = Path(__file__).with_name("triton_model.py")
        (version / "model.py").write_text(model.read_text(encoding="utf-8"), encoding="utf-8")
        with Preprocessor.load(version / SETTINGS, framework="numpy") as loaded:
            config = _config(loaded, name, max_batch, instances, num_gpus)
            (part / "config.pbtxt").write_text(config, encoding="utf-8")
            if example is not None:
                loaded([example])
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def load(args: Mapping[str, str]) -> Preprocessor:
    """Make the Preprocessor of a model from Triton's arguments, and build its graphs."""
    is_gpu = args["model_instance_kind"] == "GPU"
    preprocessor = Preprocessor.load(
        Path(args["model_repository"], args["model_version"], SETTINGS),
        max_batch=json.loads(args["model_config"])["max_batch_size"],
        device_id=int(args["model_instance_device_id"]) if is_gpu else None,
        framework="dlpack",
    )
    preprocessor.build()
    return preprocessor


def respond(preprocessor: Preprocessor, requests: Sequence[Any], pb_utils: Any) -> list[Any]:
    """Return responses to Triton's requests."""
    responses = []
    # With DLPack, because ``as_numpy`` of a server that was built for NumPy 1 crashes the process.
    inputs = [{one.name(): np.from_dlpack(one) for one in request.inputs()} for request in requests]
    for answer in answers(preprocessor, inputs):
        if isinstance(answer, str):
            error = pb_utils.TritonError(answer)
            responses.append(pb_utils.InferenceResponse(error=error))
        else:
            tensors = [_tensor(name, one, pb_utils) for name, one in answer.items()]
            responses.append(pb_utils.InferenceResponse(tensors))
    return responses


def _tensor(name: str, array: Any, pb_utils: Any) -> Any:
    """Convert an array to a Triton tensor without a copy."""
    capsule = array.__dlpack__()
    tensor = pb_utils.Tensor.from_dlpack(name, capsule)
    # Triton 2.51 does not rename the capsule, as DLPack requires, and NumPy 2 would log an error.
    ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(capsule), ctypes.c_char_p(_USED))
    return tensor


def answers(
    preprocessor: Preprocessor, requests: Sequence[Mapping[str, NDArray[Any]]]
) -> list[Answer]:
    """Preprocess the contents of several requests as one batch.

    If a content cannot be read, the answer to its request is the reason. Other requests get arrays.
    """
    contents: list[Any] = []
    spans: list[range | str] = []
    for request in requests:
        try:
            own = _contents(preprocessor.files, request)
        except ValueError as error:
            spans.append(str(error))
        else:
            spans.append(range(len(contents), len(contents) + len(own)))
            contents += own
    try:
        batch = preprocessor(contents, bad_sample="skip")
    except Exception as error:
        if len(requests) > 1:  # one of them may have caused it
            return [answers(preprocessor, [request])[0] for request in requests]
        if isinstance(error, ValueError):
            return [str(error)]
        _log.exception("a request failed")
        return [f"{type(error).__name__}: {error}"]
    places = {row: place for place, row in enumerate(batch["row"].tolist())}
    return [span if isinstance(span, str) else _answer(batch, span, places) for span in spans]


def _answer(batch: Mapping[str, Any], span: range, places: Mapping[int, int]) -> Answer:
    bad = [
        f"content {row - span.start}: {batch['rejected'][row]}" for row in span if row not in places
    ]
    if bad:
        return "; ".join(bad)
    own = [places[row] for row in span]
    taken = slice(own[0], own[-1] + 1) if own else slice(0)
    outputs = {name: array for name, array in batch.items() if name not in (*_OWN, "rejected")}
    return {name: array[taken] for name, array in outputs.items()}


def _contents(files: Sequence[str], request: Mapping[str, NDArray[Any]]) -> list[Any]:
    """Return the contents of a request, shape (batch, length); ValueError if it is malformed."""
    if not files:
        return _of_file(request, "")
    several = {
        file: _of_file(request, f"_{file}") for file in files if f"{CONTENT}_{file}" in request
    }
    if not several:
        names = ", ".join(f"{CONTENT}_{file}" for file in files)
        raise ValueError(f"expected one or more of the inputs {names}, got {[*request] or 'none'}")
    return [
        {file: one for file, one in zip(several, sample, strict=True) if len(one)}
        for sample in zip(*several.values(), strict=True)
    ]


def _of_file(request: Mapping[str, NDArray[Any]], suffix: str) -> list[NDArray[Any]]:
    data = request[CONTENT + suffix]
    lengths = request.get(NBYTES + suffix)
    if lengths is None:
        return list(data)
    found = lengths.reshape(-1).tolist()
    if len(found) != len(data) or not all(0 <= one <= data.shape[1] for one in found):
        raise ValueError(
            f"{NBYTES + suffix} must be the length of each of the {len(data)} contents, from 0 to "
            f"{data.shape[1]}, got {found}"
        )
    return [one[:nbytes] for one, nbytes in zip(data, found, strict=True)]


def _config(
    preprocessor: Preprocessor, name: str, max_batch: int, instances: int, num_gpus: int
) -> str:
    several = preprocessor.files
    inputs = []
    for suffix in [f"_{file}" for file in several] or [""]:
        optional = " optional: true" if several else ""
        content = f"name: {_quoted(CONTENT + suffix)} data_type: TYPE_UINT8 dims: [ -1 ]"
        nbytes = f"name: {_quoted(NBYTES + suffix)} data_type: TYPE_INT64 dims: [ 1 ]"
        inputs.append(f"{{ {content} allow_ragged_batch: true{optional} }}")
        inputs.append(f"{{ {nbytes} optional: true }}")
    outputs = []
    for output, (dtype, shape) in preprocessor.outputs().items():
        if output not in _OWN:
            dims = ", ".join("-1" if length is None else str(length) for length in shape)
            kind = _TYPES[dtype.name]
            outputs.append(f"{{ name: {_quoted(output)} data_type: TYPE_{kind} dims: [ {dims} ] }}")
    gpus = ", ".join(map(str, range(num_gpus)))
    group = f"kind: KIND_GPU gpus: [ {gpus} ]" if num_gpus else "kind: KIND_CPU"
    separate = ",\n  ".join
    return (
        f"name: {_quoted(name)}\n"
        'backend: "python"\n'
        f"max_batch_size: {max_batch}\n"
        f"input [\n  {separate(inputs)}\n]\n"
        f"output [\n  {separate(outputs)}\n]\n"
        "dynamic_batching { }\n"
        f"instance_group [ {{ {group} count: {instances} }} ]\n"
    )


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
