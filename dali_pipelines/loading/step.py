"""A step of a Loader: the batches of its devices."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, KeysView, ValuesView
from typing import Any, SupportsIndex, overload

from readers.messages import did_you_mean


class Step(list[Any]):
    """The batches of one step, a dict for each device, in the order of `Loader.devices`.

    With one device it is used like the only batch: ``step["image"]`` is ``step[0]["image"]``, and
    ``keys``, ``values``, ``items``, ``get``, ``dict(step)`` and ``step["image"] = ...`` are those
    of this dict. `len`, loops and positions are those of the list.

    Parameters
    ----------
    batches : iterable of dict
        A batch for each device.
    epoch, step : int, optional
        Epoch and step of these batches, counted from 0.
    seed : int, optional
        Seed of the Loader.
    """

    def __init__(
        self,
        batches: Iterable[Any] = (),
        epoch: int | None = None,
        step: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(batches)
        self.epoch = epoch
        """Epoch of these batches; the epoch of the Loader is that of the next step."""
        self.step = step
        """Step of the epoch; the step of the Loader is the next one."""
        self.seed = seed
        """Seed of the Loader, from which `dali_pipelines.mixup` draws."""

    @overload
    def __getitem__(self, key: str | SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, key: slice) -> list[Any]: ...
    def __getitem__(self, key: Any) -> Any:
        """Return the batch of a device, or an array of the only batch.

        Raises
        ------
        KeyError
            If the batch has no such array.
        TypeError
            If an array is asked for, and there are several devices.
        """
        if not isinstance(key, str):
            return super().__getitem__(key)
        batch = self._only(f"[{key!r}]")
        if key not in batch:
            asked = did_you_mean(key, batch)
            raise KeyError(f"no array {key!r} in the batch: {asked}it has {', '.join(batch)}")
        return batch[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        """Replace the batch of a device, or set an array of the only batch.

        Raises
        ------
        TypeError
            If an array is set, and there are several devices.
        """
        if isinstance(key, str):
            self._only(f"[{key!r}]")[key] = value
        else:
            super().__setitem__(key, value)

    def __contains__(self, key: object) -> bool:
        """Return whether a batch has an array of this name, or the list has this object."""
        return super().__contains__(key) or any(
            isinstance(key, str) and key in batch for batch in self
        )

    def keys(self) -> KeysView[str]:
        """Return the names of the arrays in the only batch; TypeError with several devices."""
        return self._only(".keys()").keys()

    def values(self) -> ValuesView[Any]:
        """Return the arrays of the only batch; TypeError with several devices."""
        return self._only(".values()").values()

    def items(self) -> ItemsView[str, Any]:
        """Return the names and arrays of the only batch; TypeError with several devices."""
        return self._only(".items()").items()

    def get(self, key: str, default: Any = None) -> Any:
        """Return an array of the only batch, or the default; TypeError with several devices."""
        return self._only(f".get({key!r})").get(key, default)

    def _only(self, use: str) -> dict[str, Any]:
        """Return the only batch; with several, raise TypeError, with an example of this use."""
        if len(self) != 1:
            raise TypeError(
                f"this step has {len(self)} batches, one for each device: take one by its number, "
                f"as batch[0]{use}"
            )
        only: dict[str, Any] = super().__getitem__(0)
        return only
