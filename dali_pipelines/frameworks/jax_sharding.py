"""Batches over several devices and hosts as global JAX arrays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from dali_pipelines.frameworks.contract import Array, Batch
from dali_pipelines.runtime.devices import Device
from dali_pipelines.runtime.ranks import FindShards, find_shards


def own_devices() -> list[Device]:
    """Return JAX's GPUs in this process, or one CPU pipeline if there are none."""
    gpus = [device_of(device) for device in jax.local_devices()]
    return [gpu for gpu in gpus if gpu is not None] or [None]


def device_of(device: jax.Device) -> Device:
    """Return the device of the pipeline that fills a JAX device."""
    return device.local_hardware_id if device.platform == "gpu" else None


def jax_device(gpu: Device) -> jax.Device | None:
    """Return this process's JAX device for a pipeline's GPU; None for JAX's default."""
    found = (device for device in jax.local_devices() if device_of(device) == gpu)
    return None if gpu is None else next(found, None)


def fits(dtype: Any) -> bool:
    """Return whether JAX has arrays of this type; 64-bit types must be enabled."""
    return jax.dtypes.canonicalize_dtype(dtype) == dtype


Shards = dict[int, list[jax.Device]]
"""Devices that hold a copy of each shard, by the shard's number."""


def _check_processes(held: dict[int, Shards], num_shards: int) -> None:
    """Raise ValueError if a process has no shards, or shards that a Loader cannot fill.

    Each process checks the shards of all processes, so that all fail together and none waits.
    """
    count = jax.process_count()
    if {*held} not in ({jax.process_index()}, {*range(count)}):
        raise ValueError(
            f"the mesh has devices of processes {sorted(held)}, but there are {count} processes: "
            "make it from the devices of all processes, or in each process from its own devices"
        )
    for process, shards in held.items():
        first, each = min(shards), len(shards)
        if max(shards) - first >= each or first % each or num_shards % each:
            raise ValueError(
                f"process {process} has shards {sorted(shards)} of {num_shards}, but all "
                "processes need the same number of consecutive shards: make the mesh from "
                "jax.devices(), in that order"
            )


@dataclass(frozen=True)
class ShardsOnDevices:
    """Devices of this process that hold the shards of a global array along its first axis."""

    sharding: jax.sharding.NamedSharding
    """Sharding for arrays with any number of axes."""
    num_shards: int
    """Number of shards over all devices of the array."""
    shards: Shards
    """Shards of this process, in ascending order."""

    @classmethod
    def of(cls, sharding: Any) -> ShardsOnDevices:
        """Find the shards of this process.

        Raises
        ------
        TypeError
            If `sharding` is not a NamedSharding of a mesh of devices.
        ValueError
            If it splits images, if its memory_kind is not the default of its devices, or if
            processes have different numbers of shards, or shards that are not consecutive.
        """
        named = isinstance(sharding, jax.sharding.NamedSharding)
        if not named or not isinstance(sharding.mesh, jax.sharding.Mesh):
            raise TypeError(
                "sharding must be a jax.sharding.NamedSharding of a Mesh, such as NamedSharding("
                f"mesh, PartitionSpec('batch')), got {sharding!r}"
            )
        if any(axes is not None for axes in sharding.spec[1:]):
            raise ValueError(
                "sharding must split only the first axis, the samples, got "
                f"{sharding.spec}: split other axes with jax.device_put(batch['image'], ...)"
            )
        memory = sharding.mesh.devices.flat[0].default_memory().kind
        if sharding.memory_kind not in (None, memory):
            raise ValueError(
                f"sharding must have the memory_kind {memory!r}, got {sharding.memory_kind!r}: "
                "move arrays with jax.device_put(batch['image'], ...)"
            )
        spec = jax.sharding.PartitionSpec(*sharding.spec[:1])  # type: ignore[no-untyped-call]
        sharding = sharding.update(spec=spec)
        size = sharding.mesh.size  # arrays without further axes can always be split
        each = sharding.shard_shape((size,))[0]
        held: dict[int, Shards] = defaultdict(lambda: defaultdict(list))
        for device, (rows,) in sharding.devices_indices_map((size,)).items():
            held[device.process_index][(rows.start or 0) // each].append(device)
        _check_processes(held, size // each)
        own = held[jax.process_index()]
        return cls(sharding, size // each, {shard: own[shard] for shard in sorted(own)})

    def find_shards(
        self, devices: Sequence[Device] | None, shard_id: int | None, num_shards: int | None
    ) -> FindShards:
        """Return a function that finds the pipelines' devices, one per shard of this process.

        Raises
        ------
        ValueError
            If `devices`, `shard_id` or `num_shards` contradict the sharding.
        """
        own = tuple(device_of(holders[0]) for holders in self.shards.values())
        if devices is None:
            devices = own
        elif (asked := find_shards(devices, 0, 1).devices) not in (own, (None,) * len(own)):
            raise ValueError(
                f"the shards of this process are on devices {[*own]}, but devices is {[*asked]}: "
                "leave it out"
            )
        if self.sharding.is_fully_addressable:  # each process may have its own array
            return partial(find_shards, devices=devices, shard_id=shard_id, num_shards=num_shards)
        if shard_id is not None or num_shards is not None:
            raise ValueError(
                "the sharding determines which shards each process reads: leave out shard_id and "
                "num_shards"
            )
        count = len(self.shards)
        shard_id, num_shards = min(self.shards) // count, self.num_shards // count
        return partial(find_shards, devices=devices, shard_id=shard_id, num_shards=num_shards)

    def joined(self, batches: list[Batch]) -> Batch:
        """Return the batches of this process as global arrays; lists stay lists.

        Arrays of types that JAX lacks become NumPy arrays with the samples of this process only.

        Raises
        ------
        ValueError
            If images differ in size; or if JAX lacks the type of a column (other than the row), and
            the global arrays are spread over several processes.
        """
        return {name: self._joined(name, [batch[name] for batch in batches]) for name in batches[0]}

    def _joined(self, name: str, parts: list[Any]) -> Array:
        if isinstance(parts[0], list):
            return [value for part in parts for value in part]
        if len(shapes := {part.shape for part in parts}) > 1:
            raise ValueError(
                f"a global array needs equal shards, but the shards of {name!r} have the shapes "
                f"{sorted(shapes)}: set crop or resize, or leave out images of other sizes"
            )
        if not fits(parts[0].dtype):
            if name != "row" and not self.sharding.is_fully_addressable:
                raise ValueError(
                    f"{name!r} is {parts[0].dtype}, which JAX would cut to 32 bits: set "
                    "jax_enable_x64, or convert the column to 32 bits with "
                    f"index.with_column({name!r}, ...)"
                )
            return np.concatenate(parts)
        arrays = [
            jax.device_put(part, device)
            for part, holders in zip(parts, self.shards.values(), strict=True)
            for device in holders
        ]
        shape = (self.num_shards * len(parts[0]), *parts[0].shape[1:])
        return jax.make_array_from_single_device_arrays(shape, self.sharding, arrays)
