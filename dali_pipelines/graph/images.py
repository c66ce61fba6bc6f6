"""Samples of several images with one geometry.

Files of the parts are joined along the channels; images of `hdus` are separate outputs.
"""

from __future__ import annotations

import functools
import logging
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from nvidia.dali import fn, types
from nvidia.dali.types import to_dali_type

from dali_pipelines.config import PipelineConfig
from dali_pipelines.graph.decode import (
    MOVED,
    Decode,
    DecodeAll,
    Decoded,
    DecodedImages,
    ImageOutput,
    decode_file,
    decode_fits,
    mean_and_std,
    no_flip,
    with_layout,
)
from dali_pipelines.graph.place import permute, place
from dali_pipelines.graph.ragged import SIZE, check_padding
from dali_pipelines.graph.source import first_readable, places_of
from dali_pipelines.graph.transform import transform
from dali_pipelines.graph.user_operators.chance import Chance
from dali_pipelines.values import holds
from readers.channels import ChannelsReader
from readers.fits.file import hdu_names
from readers.fits.headers import HduName, plain_name
from readers.fits.multi_hdu import OFFSETS, STORED, Hdu, HduKind, HdusReader, hdu_beside, suffix
from readers.fits.reader import FitsReader
from readers.index.columns import Columns
from readers.index.schema import warn_of_shared_files
from readers.index.table import Index
from readers.messages import printable
from readers.places.failures import nobody_answered
from readers.worker.timeout import TimeLimit

logger = logging.getLogger(__name__)

_TAKEN = ("row", "valid", "report")
_WIDE = {"int8": "int16", "uint16": "int32", "int64": "int64"}
"""Wider types in which offsets are added."""


def hdus_reader(
    index: Index,
    hdus: Mapping[str, HduName | Hdu],
    config: PipelineConfig,
    stored: str | None,
    largest_tile: float,
) -> HdusReader:
    """Make the Reader of several images. The first readable row determines their types.

    Raises
    ------
    KeyError
        If the Index lacks a part.
    ReadError
        If types or numbers of planes are not set, and none of the first rows can be read.
    ValueError
        If the settings contradict each other, or do not fit the Index.
    """
    images = checked_hdus(hdus)
    _check_outputs(images, config)
    _check_columns(index, images)
    main = FitsReader(None, stored, images["image"].planes, 1)
    reader = HdusReader(images, {}, main, largest_tile)
    others = [one for name, one in images.items() if name != "image"]
    columns = index.columns(parts=reader.parts).with_places(places_of(config))
    check_extnames(columns, images, config)
    if not images["image"].is_counted or not all(one.is_known for one in others):
        kinds = first_readable(columns, reader.kinds_of, config.read_timeout)[1]
    else:
        kinds = {name: HduKind.of(one) for name, one in images.items()}
    image = kinds.pop("image")
    beside = {}
    if any(one.relative is not None for one in images.values()):
        beside = first_readable(columns, reader.beside_in, config.read_timeout)[1]
    for name, kind in kinds.items():
        _check_outside(name, kind)
        if config.ragged == "pad":
            check_padding(name, kind.outside or 0, kind.dtype)
    main = replace(main, num_planes=image.planes)
    return replace(reader, kinds=kinds, main=main, beside=beside)


def check_extnames(columns: Columns, images: Mapping[str, Hdu], config: PipelineConfig) -> None:
    """Check in the first file that each EXTNAME is unique.

    Without a column ``hdu`` the first HDU with the EXTNAME is read; a warning is logged if the file
    has more. With that column EXTVER must distinguish the HDUs, otherwise ValueError is raised.
    """
    names = {name: one.hdu for name, one in images.items() if isinstance(one.hdu, str)}
    names = {name: hdu for name, hdu in names.items() if images[name].part is None}
    if not names:
        return
    try:
        row, found = first_readable(columns, lambda row: hdu_names(row.place), config.read_timeout)
    except (OSError, TimeLimit) as error:
        if nobody_answered(error):
            raise
        return  # the readers report it
    several: dict[str, str] = {}
    for name, hdu in names.items():
        if row.hdu is not None:
            try:
                hdu_beside(name, hdu, row.hdu, found)
            except ValueError as error:
                raise ValueError(f"hdus: {name!r} in {printable(row.name)}: {error}") from None
            continue
        wanted = plain_name(hdu)
        numbers = [str(number) for number, (one, _) in enumerate(found) if one == wanted]
        if len(numbers) > 1:
            several[hdu] = f"{len(numbers)} {hdu} (HDUs {', '.join(numbers)})"
    if several:
        _warn_once(
            f"{printable(row.name)} has {' and '.join(several.values())}, and only the first is "
            "read: to read another one, add its EXTVER to the name; to read each as a row, make "
            f"the Index with dali-pipelines index --hdus {next(iter(several))}"
        )


@functools.lru_cache(maxsize=256)
def _warn_once(message: str) -> None:
    """Log a warning that all pipelines of a Loader would repeat."""
    logger.warning("%s", message)


def _check_outside(name: str, kind: HduKind) -> None:
    if kind.outside is None:
        return
    if kind.dtype == "float32":
        if abs(kind.outside) > float(np.finfo(np.float32).max):
            raise ValueError(f"outside={kind.outside!r} of {name!r} exceeds float32: set NaN or 0")
        return
    stored = np.iinfo(STORED.get(kind.dtype, kind.dtype))
    if not holds(stored, kind.outside - OFFSETS.get(kind.dtype, 0)):
        raise ValueError(
            f"outside={kind.outside!r} of {name!r} is not a value of {kind.dtype} that float32 "
            "holds exactly, as DALI needs: set 0"
        )


def checked_hdus(hdus: Any) -> dict[str, Hdu]:
    """Return the images by name, "image" first; ValueError if `hdus` is not such a mapping."""
    example = "such as {'image': 'SCI', 'dq': 'DQ'}"
    if not isinstance(hdus, Mapping) or not all(isinstance(name, str) and name for name in hdus):
        raise ValueError(f"hdus must be a mapping of names to HDUs, {example}, got {hdus!r}")
    images = {name: one if isinstance(one, Hdu) else Hdu(one) for name, one in hdus.items()}
    if "image" not in images:
        raise ValueError(f"hdus must name the HDU of 'image', {example}, got {hdus!r}")
    if images["image"].dtype is not None:
        raise ValueError("'image' has the dtype of the settings: leave dtype out of its Hdu")
    if images["image"].outside is not None:
        raise ValueError(
            "the Hdu of 'image' takes no outside: leave it out; pixels outside the image are 0, or "
            "with the setting outside='fill' the value of missing"
        )
    return {"image": images.pop("image"), **images}


def _check_outputs(images: Mapping[str, Hdu], config: PipelineConfig) -> None:
    taken_names = {*_TAKEN, *config.outputs, *(SIZE,) * (config.ragged == "pad")}
    if taken := sorted(set(images) & taken_names):
        raise ValueError(f"hdus {taken} have the name of another output: rename them")
    moving = [type(one).__name__ for one in config.augment if one.moves_pixels]
    if moving and len(images) > 1:
        raise ValueError(
            f"{moving[0]} also shears, shifts and rotates, but only 'image', not the other images "
            "of hdus: use rotate and zoom, and a ColorJitter, instead"
        )


def _check_columns(index: Index, images: Mapping[str, Hdu]) -> None:
    names, image = index.table.column_names, images["image"]
    if index.parts and all(one.part is None for one in images.values()):
        raise ValueError(
            f"each row of the Index is a sample of several files ({', '.join(index.parts)}), but "
            f"hdus selects none of them: pass Hdu(part={index.parts[0]!r}), or leave out hdus"
        )
    for name, one in images.items():
        if one.relative is not None and "hdu" not in names:
            raise ValueError(
                f"relative={one.relative} of {name!r} counts from column 'hdu', but the Index has "
                "none: add that column with with_column, or name the HDU"
            )
        if isinstance(one.planes, tuple | str) and "plane" in names and name == "image":
            raise ValueError(
                f"the Index has a column 'plane', one for each row, but planes={one.planes!r} asks "
                "for several: leave out one of them"
            )
        is_first = one.hdu is one.relative is None and f"hdu_{one.part}" not in names
        if one.part in index.parts and is_first:
            taken, setting = "the first image", f"the Hdu of {name!r}"
            warn_of_shared_files(index.table, f"path_{one.part}", taken, setting)
    numbered = "hdu" in names and index.table["hdu"].null_count < len(index)
    if numbered and image.part is None and not isinstance(image.hdu, str | None):
        raise ValueError(
            f"the Index has a column 'hdu', one for each row, but hdus has {image.hdu!r} for "
            "'image': make the Index of these HDUs with dali-pipelines index --hdu, and pass Hdu() "
            "(image=+0 in commands); or drop the column: Index(index.table.drop_columns(['hdu']))"
        )


def decode_images(
    arrays: Mapping[str, Any],
    config: PipelineConfig,
    *,
    kinds: Mapping[str, HduKind],
    planes: int,
) -> DecodedImages:
    """Decode the images of a HdusReader: the first like `decode_fits`, the others to outputs.

    All get the same geometry: floats are resampled like the image, integers by nearest pixels.
    """
    outputs: dict[str, ImageOutput] = {}
    for number, (name, kind) in enumerate(kinds.items(), 1):
        names = ("shape", "payload", "plan", "scaling")
        own = {**arrays, **{one: arrays[one + suffix(number)] for one in names}}
        decode = _decode_floats if kind.dtype == "float32" else _decode_integers
        image, status = decode(own, config, kind)
        item = np.dtype(_WIDE.get(kind.dtype, kind.dtype)).itemsize
        is_nearest = "nearest" in arrays
        outputs[name] = ImageOutput(
            image, status, kind.outside or 0, kind.planes * item, is_nearest
        )
    return DecodedImages((decode_fits(arrays, config, planes),), (config,), outputs)


def _decode_floats(
    arrays: Mapping[str, Any], config: PipelineConfig, kind: HduKind
) -> tuple[Any, Any]:
    """Return the image, layout CHW, and its status."""
    plain: Any = dict.fromkeys(("mean", "std", "stretch", "transform", "missing"))
    plain |= {"dtype": "float32", "augment": (), "targets": {}}
    plain |= {"memory_format": "contiguous_format"}
    own = replace(config, **plain)
    decoded = decode_fits(arrays, own, kind.planes)
    images = DecodedImages((decoded,), (own,))
    image = transform(images, arrays, kind.planes, own, Chance(None), missing=kind.outside)
    return image, decoded.status


def _decode_integers(
    arrays: Mapping[str, Any], config: PipelineConfig, kind: HduKind
) -> tuple[Any, Any]:
    """Return the image, layout CHW, and its status."""
    dtype, offset = STORED.get(kind.dtype, kind.dtype), OFFSETS.get(kind.dtype, 0)
    moved = config.resized_to is not None or not MOVED.isdisjoint(arrays)
    flip = no_flip() if moved else arrays.get("flip", no_flip())
    image, status = decode_file(arrays, dtype, flip, ((0.0, 1.0),) * kind.planes, config)
    decoded = Decoded(image, dtype, finished=not moved, layout="HWC" if kind.planes == 1 else "CHW")
    how: Any = {"interpolation": "nearest", "missing": int(kind.outside or 0) - offset}
    placed = place(decoded, arrays, kind.planes, config, **how)
    image = placed.image
    if placed.layout == "HWC":
        image = permute(image, "CHW", kind.planes)
    if offset:
        wide = to_dali_type(_WIDE[kind.dtype])
        image = fn.cast(image, dtype=wide) + types.Constant(offset, dtype=wide)
        image = fn.cast(image, dtype=to_dali_type(kind.dtype))
    return image, status


def decode_parts(
    decode: Decode, reader: ChannelsReader, times: int | None = None, *, missing: bool
) -> DecodeAll:
    """Return the decoder of samples of several files.

    Parameters
    ----------
    decode : Decode
        Decoder of one file.
    reader : ChannelsReader
        Reader of these samples.
    times : int, optional
        Frames of a sequence, each of which has the same number of files; None for a single time.
    missing : bool
        Whether the graph must replace missing files by NaN or 0.

    Returns
    -------
    DecodeAll
        Its output ``present`` is bool, shape (files,), or (times, files of one time).
    """

    def decode_all(arrays: Any, config: PipelineConfig) -> DecodedImages:
        names = [spec.name for spec in reader.reader.specs]
        configs = _configs(config, len(reader.parts), times, reader.reader.channels)
        decoded = (
            decode(ChainMap({name: arrays[f"{name}_{number}"] for name in names}, arrays), one)
            for number, one in enumerate(configs)
        )
        first, *images = (with_layout(one, reader.reader) for one in decoded)
        raw = present = arrays["present"]
        if times is not None:
            present = fn.reshape(present, shape=[times, -1])
        first = first._replace(others={"present": present})
        joined = (first, *images)
        return DecodedImages(joined, configs, times=times, present=raw if missing else None)

    return decode_all


def _configs(
    config: PipelineConfig, files: int, times: int | None, channels: int
) -> tuple[PipelineConfig, ...]:
    """Return the settings of each file of `channels` channels, with its own mean and std."""
    if config.mean is None and config.std is None:
        return (config,) * files
    of_time = files // (times or 1)
    mean, std = mean_and_std(config, of_time * channels)
    own = []
    for number in range(of_time):
        part = slice(number * channels, (number + 1) * channels)
        own.append(replace(config, mean=tuple(mean[part]), std=tuple(std[part])))
    return tuple(own) * (times or 1)
