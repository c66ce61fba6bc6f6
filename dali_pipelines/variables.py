"""Variables of an Index of chunked arrays as channels of an image, and their stretches."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dali_pipelines.aia.preset import Preset, channel_of, load_preset
from dali_pipelines.stretch import Stretch, Stretches
from readers.chunks.array import NOTE, ChunkedArray, unpacked
from readers.index.table import Index
from readers.messages import did_you_mean
from readers.targets.mask import Mask


@dataclass(frozen=True)
class Channels:
    """Channels of an image, or of one time of a sequence."""

    names: tuple[str, ...] | None
    """Variables to read of each row; None for all, if those of the parts have different names."""
    count: int | None
    """Number of variables of each row, if `names` is None."""
    named: tuple[tuple[str, ChunkedArray], ...]
    """Part of the sample ("" without parts) and variable, for each channel."""

    def grid(self, crop: tuple[int, int]) -> tuple[int, int]:
        """Return the height and width of the chunks of the first variable.

        If one is larger than the crop, its largest divisor up to the crop is returned instead.
        """
        _, array = self.named[0]
        chunks = (array.inner or array).chunks
        y, x = array.image_axes
        return _part(chunks[y], crop[0]), _part(chunks[x], crop[1])


def _part(length: int, most: int) -> int:
    """Return the largest divisor of a length up to `most`."""
    return next(part for part in range(min(length, most), 0, -1) if length % part == 0)


def channels_of(index: Index, variables: Sequence[str] | None, targets: Any) -> Channels:
    """Return the channels of samples, from the first row of the Index.

    Parameters
    ----------
    index : Index
        Index of arrays.
    variables : sequence of str, optional
        Setting of `chunked_pipeline`.
    targets : mapping of str to Target
        Setting of `chunked_pipeline`. By default the variables of masks are not channels.

    Raises
    ------
    ValueError
        If the Index does not describe arrays, or lacks a variable.
    """
    frames = index.frames
    of_parts = frames.channels or ("",)
    first_time = frames.parts if index.parts else ("",)
    noted = {name: _noted(index, part) for name, part in zip(of_parts, first_time, strict=False)}
    masks = _variables_of_masks(index, targets)
    if variables is not None:
        names = tuple(variables) if isinstance(variables, Sequence) else ()
        if isinstance(variables, str) or not names:
            raise ValueError(f"variables must be names, such as ('t2m', 'u10'), got {variables!r}")
        for part, own in noted.items():
            where = f"part {part} of the Index" if part else "the Index"
            names = tuple(one for name in names for one in _levels_of(name, own, where))
        return _of_names(names, noted)
    left = {
        part: {name: one for name, one in own.items() if name not in masks}
        for part, own in noted.items()
    }
    first = next(iter(left.values()))
    if not all(left.values()):
        shown = ", ".join(name for own in noted.values() for name in own)
        raise ValueError(
            f"masks use all variables of the Index ({shown}): set variables to the names of the "
            "channels"
        )
    if all(own.keys() == first.keys() for own in left.values()):
        return _of_names(tuple(first), left)
    if len(set(map(len, left.values()))) > 1 or left != noted:
        several = "; ".join(f"{part}: {', '.join(own)}" for part, own in left.items())
        raise ValueError(
            f"the parts of a sample have different variables ({several}): set variables to the "
            "names of the channels"
        )
    named = tuple((part, one) for part, own in left.items() for one in own.values())
    return Channels(None, len(first), named)


def _of_names(names: tuple[str, ...], noted: Mapping[str, Mapping[str, ChunkedArray]]) -> Channels:
    named = tuple((part, own[name]) for part, own in noted.items() for name in names)
    return Channels(names, None, named)


def _levels_of(name: str, noted: Mapping[str, ChunkedArray], where: str) -> Sequence[str]:
    """Return the channels of a variable: itself, or its levels; ValueError if there is none."""
    levels = [one.name for one in noted.values() if one.variable == name]
    if name in noted or not levels:
        _check_noted((name,), noted, where)
        return (name,)
    return levels


def _variables_of_masks(index: Index, targets: Any) -> set[str]:
    """Return the variables that masks read; ValueError if the Index lacks one."""
    found = set[str]()
    for target in targets.values() if isinstance(targets, Mapping) else ():
        if isinstance(target, Mask) and target.variable is not None:
            part = target.part or ""
            if not part or part in index.parts:  # otherwise the Mask raises an error later
                where = f"part {part} of the Index" if part else "the Index"
                _check_noted((target.variable,), _noted(index, part), where)
            found.add(target.variable)
    return found


def _check_noted(names: Iterable[str], noted: Collection[str], where: str) -> None:
    if unknown := [name for name in names if name not in noted]:
        meant = did_you_mean(str(unknown[0]), noted)
        raise ValueError(
            f"{where} has no variable {unknown[0]!r}: {meant}it has {', '.join(noted)}"
        )


def _noted(index: Index, part: str) -> dict[str, ChunkedArray]:
    """Return the variables of the first row, or of a part of it, by name."""
    column = f"{NOTE}_{part}" if part else NOTE
    if column not in index:
        raise ValueError(
            f"chunked_pipeline needs the column {column!r} with the positions of the chunks: make "
            "the Index by Index.from_zarr or Index.scan_arrays"
        )
    notes = index[column].drop_null()
    return unpacked(notes[0].as_py() if len(notes) else b"")


def stretches_of(
    stretch: Stretches | Preset | str | os.PathLike[str] | None, channels: Channels
) -> Stretch | Sequence[Stretch] | None:
    """Return the setting `stretch` of `chunked_pipeline` as one stretch for each channel.

    Raises
    ------
    OSError
        If the file of a preset cannot be read.
    ValueError
        If a variable or the preset is unknown, or the preset lacks a channel.
    """
    if isinstance(stretch, Mapping):
        names = list(dict.fromkeys(one.name for _, one in channels.named))
        variables = {one.variable for _, one in channels.named}
        if unknown := [name for name in stretch if name not in names and name not in variables]:
            raise ValueError(
                f"stretch names {unknown[0]!r}, but the variables are {', '.join(names)}"
            )
        return tuple(
            stretch.get(one.name, stretch.get(one.variable, Stretch())) for _, one in channels.named
        )
    if not isinstance(stretch, Preset | str | os.PathLike):
        return stretch
    preset = stretch if isinstance(stretch, Preset) else load_preset(os.fspath(stretch))
    found = []
    for part, array in channels.named:
        channel = channel_of(array.name)
        if channel not in preset.channels and part in preset.channels:
            channel = part
        try:
            found.append(preset.stretch(channel))
        except ValueError as error:
            raise ValueError(
                f"variable {array.name!r}: {error}; or pass stretch={{{array.name!r}: ...}}"
            ) from None
    return tuple(found)
