"""Find a framework by its name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Literal, get_args

from dali_pipelines.frameworks.contract import Framework, ImageFormat
from dali_pipelines.values import check_choice, torch_name
from readers.messages import install

FrameworkName = Literal["torch", "jax", "numpy", "cupy", "dlpack"]


def framework_named(name: FrameworkName, sharding: Any = None) -> Framework:
    """Import the library of a framework and return the framework.

    Raises
    ------
    ImportError
        If the library is not installed.
    TypeError
        If `sharding` is not a sharding of JAX.
    ValueError
        If the framework is unknown, or does not support this sharding.
    """
    check_choice("framework", name, get_args(FrameworkName))
    try:
        module = importlib.import_module(f"dali_pipelines.frameworks.{name}")
    except ModuleNotFoundError as error:
        if error.name != "jax":
            raise
        raise ImportError(
            f"framework='jax' needs JAX: {install('jax')}; for GPUs also install JAX for their "
            "CUDA version, such as jax[cuda12]"
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
    """Return the format that the settings ask for; ValueError if the framework lacks it."""
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
            f"memory_format='channels_last' needs framework='torch', not {name!r}: leave it out, "
            "and transpose delivered images to NHWC where you need that"
        )
    return ImageFormat(dtype, memory_format)
