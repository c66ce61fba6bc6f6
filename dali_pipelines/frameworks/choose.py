"""Find a framework by its name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Literal, get_args

from dali_pipelines.frameworks.contract import Framework, ImageFormat
from dali_pipelines.values import torch_name
from readers.messages import install

FrameworkName = Literal["torch", "jax", "numpy", "cupy", "dlpack"]


def framework_named(name: FrameworkName, sharding: Any = None) -> Framework:
    """Return a framework and import its library; for JAX `sharding` makes global arrays.

    Raises
    ------
    ImportError
        If the library is not installed.
    TypeError
        If `sharding` is not a sharding.
    ValueError
        If there is no such framework, or it does not support this sharding.
    """
    if name not in get_args(FrameworkName):
        *others, last = map(repr, get_args(FrameworkName))
        raise ValueError(f"framework must be {', '.join(others)} or {last}, got {name!r}")
    try:
        module = importlib.import_module(f"dali_pipelines.frameworks.{name}")
    except ModuleNotFoundError as error:
        if error.name != "jax":
            raise
        raise ImportError(
            f"framework='jax' needs JAX: {install('jax')}, and for GPUs a jaxlib "
            "for their CUDA version, such as jax[cuda12]"
        ) from error
    kind = getattr(module, name.capitalize())
    if sharding is None:
        return kind()
    if name != "jax":
        raise ValueError(f"sharding needs framework='jax', got framework={name!r}")
    return kind(sharding)


def image_format(
    name: FrameworkName, framework: Framework, settings: Mapping[str, Any]
) -> ImageFormat:
    """Return the format of images in the settings; ValueError if the framework lacks it."""
    default = ImageFormat()
    dtype = torch_name(settings.get("dtype", default.dtype))
    memory_format = torch_name(settings.get("memory_format", default.memory_format))
    if dtype == "bfloat16" and not framework.has_bfloat16:
        raise ValueError(
            f"framework={name!r} has no bfloat16: choose dtype='float32' or 'float16', or "
            "framework='torch' or 'jax'"
        )
    if memory_format == "channels_last" and not framework.has_strides:
        raise ValueError(
            f"memory_format='channels_last' is for framework='torch', not {name!r}: leave it out, "
            "and transpose the images if axes in the order NHWC are needed"
        )
    return ImageFormat(dtype, memory_format)
