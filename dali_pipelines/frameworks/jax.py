"""Batches of JAX arrays: of one device each, or global over devices and hosts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import jax
from nvidia.dali.tensors import TensorGPU
from nvidia.dali.types import to_numpy_type

from dali_pipelines.frameworks.contract import Array, Batch, Convert, Framework
from dali_pipelines.frameworks.jax_sharding import ShardsOnDevices, fits, jax_device, own_devices
from dali_pipelines.frameworks.numpy import to_numpy
from dali_pipelines.graph.pipeline import ReaderPipeline
from dali_pipelines.runtime.devices import Device
from dali_pipelines.runtime.ranks import FindShards


class Jax(Framework):
    """JAX arrays over DALI's memory, without a copy.

    Arrays of 64 bits stay NumPy arrays on the CPU unless ``jax_enable_x64`` is set: JAX would
    silently cut them to 32 bits.

    Parameters
    ----------
    sharding : jax.sharding.NamedSharding, optional
        Sharding of global arrays, see `ShardsOnDevices`. By default each pipeline has its own
        batch.
    """

    has_bfloat16 = True

    def __init__(self, sharding: Any = None) -> None:
        self._layout = None if sharding is None else ShardsOnDevices.of(sharding)
        self._listed: frozenset[str] = frozenset()

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raise ValueError if readers are forked, or shards of a global array may be short."""
        if settings.get("start_method") == "fork":
            raise ValueError(
                "start_method 'fork' does not work with JAX, which has threads: set it to "
                "'forkserver' or 'spawn'"
            )
        if self._layout is None:
            return
        if settings.get("ragged") is not None:
            raise ValueError(
                f"ragged={settings['ragged']!r} makes shards of different sizes, but a sharding "
                "needs equal shards: set crop or resize, or leave out sharding"
            )
        if settings["tail"] == "fill":
            return
        if settings["tail"] == "partial":
            raise ValueError(
                "tail 'partial' makes the last step short, but a sharding needs equal shards: set "
                "tail='fill' and use valid, or set tail='drop'"
            )
        if settings["bad_sample"] == "skip":
            raise ValueError(
                "bad_sample 'skip' leaves out rows, but a sharding needs equal shards: set "
                "tail='fill', which replaces them by samples that are not valid"
            )

    def shards(
        self, devices: Sequence[Device] | None, shard_id: int | None, num_shards: int | None
    ) -> FindShards:
        """Return a function that finds JAX's devices of this process and the shards they read."""
        if self._layout is None:
            found = super().shards(devices, shard_id, num_shards)
            return partial(found, own_devices=own_devices)
        return self._layout.find_shards(devices, shard_id, num_shards)

    def converter(self, pipeline: ReaderPipeline) -> Convert:
        """Return the function that makes JAX arrays on a GPU, and NumPy arrays on the CPU.

        ValueError if JAX has no such GPU.
        """
        if pipeline.device_id is not None and pipeline.device_id not in (gpus := own_devices()):
            raise ValueError(
                f"a pipeline would run on GPU {pipeline.device_id}, but in this process JAX has "
                f"the devices {gpus}: leave out devices, or install a JAX for GPUs, jax[cuda12]"
            )
        self._listed = pipeline.listed
        return partial(_to_array, device=jax_device(pipeline.device_id))

    def to_bfloat16(self, array: Array) -> Array:
        """Return an array, of JAX or NumPy, as bfloat16."""
        return array.astype(jax.dtypes.bfloat16)

    def deliver(self, batches: list[Batch]) -> Any:
        """Return a batch of global arrays, or the batches of the devices."""
        if self._layout is not None:
            return self._layout.joined(batches)
        return [_delivered(batch, self._listed) for batch in batches]


_ALIGNMENT = 16
"""Bytes to which XLA requires GPU addresses to be aligned (kEntryParameterAlignBytes)."""


def _to_array(tensor: Any, device: jax.Device | None) -> Array:
    # Arrays on the CPU become JAX arrays in `deliver`. The Loader slices them before, and JAX would
    # compile for each new shape.
    if not isinstance(tensor, TensorGPU) or not fits(to_numpy_type(tensor.dtype)):
        return to_numpy(tensor)
    address: Any = tensor.data_ptr()
    if address % _ALIGNMENT:  # a sample of a list, which follows the previous one without a gap
        return jax.device_put(to_numpy(tensor), device)
    return jax.dlpack.from_dlpack(tensor)


def _delivered(batch: Batch, listed: Collection[str]) -> Batch:
    arrays = chain.from_iterable(one if isinstance(one, list) else [one] for one in batch.values())
    device = next((array.device for array in arrays if isinstance(array, jax.Array)), None)
    if device is not None:
        return {name: _put(one, device, name in listed) for name, one in batch.items()}
    # Uncommitted: otherwise JAX would compute on the CPU although it has a GPU.
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        return {name: _put(one, None, name in listed) for name, one in batch.items()}


def _put(array: Any, device: Any, is_listed: bool = False) -> Any:
    if is_listed:
        return [_put(one, device) for one in array]
    if isinstance(array, list) or not fits(array.dtype):
        return array
    return jax.device_put(array, device)
