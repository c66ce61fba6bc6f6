"""Outputs whose samples differ in size: as lists, or padded to one array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from nvidia.dali import fn, types

from dali_pipelines.graph.decode import DecodedImages
from dali_pipelines.settings import Ragged
from dali_pipelines.values import holds
from readers.targets.several import Targets

SIZE = "size"
"""Name of the output with the sizes of padded images."""

Named = tuple[str, Any]
"""Name and DataNode of an output."""


def listed_or_padded(
    outputs: list[Named], decoded: DecodedImages, targets: Targets, ragged: Ragged
) -> tuple[list[Named], frozenset[str]]:
    """Return the outputs of a pipeline, padded with ragged="pad", and the names of listed outputs.

    ValueError if a target cannot be padded.
    """
    outside = {name: one.outside for name, one in decoded.outputs.items()} | targets.outside
    if ragged == "list":
        return outputs, frozenset((decoded.first.name, *outside))
    if ragged is None:
        return outputs, frozenset()
    for spec in targets.specs:
        if spec.name in outside:
            check_padding(spec.name, outside[spec.name], spec.dtype)
    if decoded.first.name != "image":
        return padded(outputs, {**outside, decoded.first.name: decoded.first.outside}), frozenset()
    return with_size(outputs, outside), frozenset()


def padded(outputs: Sequence[Named], outside: Mapping[str, float]) -> list[Named]:
    """Pad the last two axes of the outputs named in `outside` by its values."""
    return [
        (name, _pad(node, outside[name]) if name in outside else node) for name, node in outputs
    ]


def with_size(outputs: Sequence[Named], outside: Mapping[str, float]) -> list[Named]:
    """Pad the last two axes of outputs to the largest of the batch; add the size of the image.

    Parameters
    ----------
    outputs : sequence of tuple
        Outputs of a pipeline, the image first.
    outside : mapping of str to float
        Fill value for each other output to pad; the image is filled with 0.

    Returns
    -------
    list of tuple
        The outputs, and `SIZE`, int32, shape (2,): the image's own height and width, on its
        device.
    """
    (name, image), *others = outputs
    size = image.shape(dtype=types.INT32)[-2:]
    if image.device == "gpu":
        size = size.gpu()
    return [(name, _pad(image, 0)), (SIZE, size), *padded(others, outside)]


def _pad(node: Any, value: float) -> Any:
    return fn.pad(node, axes=[-2, -1], fill_value=value)


def check_padding(name: str, value: float, dtype: str) -> None:
    """Raise ValueError if DALI cannot pad this type by this value; its fill values are float32."""
    if dtype == "float64":
        raise ValueError(
            f"{name!r} is float64, which DALI does not pad: set dtype='float32', or ragged='list'"
        )
    if np.dtype(dtype).kind in "iu" and not holds(np.iinfo(dtype), value):
        raise ValueError(
            f"outside={value!r} of {name!r} is not exact in float32, as DALI's padding needs: set "
            "another number, such as 0, or ragged='list'"
        )
