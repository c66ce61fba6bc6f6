"""Make the Preprocessor of a Loader. Values of its Index become settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow.compute as pc

from dali_pipelines.config import NAMES, PipelineConfig
from dali_pipelines.factories import (
    audio_pipeline,
    chunked_pipeline,
    clip_of,
    fits_pipeline,
    jpeg_pipeline,
    npy_pipeline,
    video_pipeline,
)
from dali_pipelines.graph.images import checked_hdus, hdus_reader
from dali_pipelines.graph.source import look_at_first
from dali_pipelines.keywords import names_of, title, without_keywords
from dali_pipelines.serving.preprocessor import OF_A_RUN, OF_ROWS, Preprocessor
from readers.audio.reader import sound_facts
from readers.fits.file import hdu_names
from readers.fits.multi_hdu import Hdu, hdu_beside
from readers.fits.reader import FitsReader
from readers.index.grouping.frames import Frames
from readers.index.table import Index

_READING = "storage", "cache", "cache_bytes", "read_timeout"


def preprocessor_of(
    factory: Callable[..., Any], index: Index, settings: Mapping[str, Any], **changes: Any
) -> Preprocessor:
    """Make the Preprocessor of a Loader; see `dali_pipelines.Loader.preprocessor`.

    Parameters
    ----------
    factory : callable
        Factory of the Loader.
    index : Index
        Index of the Loader.
    settings : mapping
        Keywords that the Loader passes to its factory.
    **changes
        Keywords of the Preprocessor that replace those of the Loader.
    """
    rest = OF_ROWS | OF_A_RUN | {"mode"}
    given = {name: one for name, one in settings.items() if name not in rest} | changes
    if given.get("random_area") is not None:
        raise ValueError(
            "a Preprocessor cannot draw regions (random_area): pass other settings, for example "
            "loader.preprocessor(random_area=None, resize=None, resize_shorter=256, crop=224)"
        )
    config = PipelineConfig(
        batch_size=1, **{name: settings[name] for name in _READING if name in settings}
    )
    factory = without_keywords(factory)
    if factory is chunked_pipeline:
        raise ValueError(
            "chunked_pipeline has no Preprocessor, because its rows are parts of a store, not "
            "files: make a Loader with mode='eval' instead"
        )
    if factory is fits_pipeline and given.get("hdus") is not None:
        given["hdus"] = _known_hdus(index, given, config)
    elif factory is audio_pipeline:
        if given.get("rate") is None:
            given["rate"] = look_at_first(index, sound_facts, config).rate
    elif factory is video_pipeline:
        given |= clip_of(index, given.get("frames"), given.get("stride"))._asdict()
    elif factory not in (jpeg_pipeline, npy_pipeline):
        given |= _of_columns(factory, index, given)
        if given.get("planes") == "all" and given.get("num_planes") is None:
            look = FitsReader(given.get("hdu")).shape
            given["num_planes"] = look_at_first(index, look, config).planes
    frames = Frames() if given.get("hdus") is not None or not index.parts else index.frames
    return Preprocessor(factory, **{"parts": frames.channels, "offsets": frames.offsets, **given})


def _of_columns(
    factory: Callable[..., Any], index: Index, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return settings that replace the columns ``hdu`` and ``plane``."""
    found: dict[str, Any] = {}
    for column, setting in (("hdu", "hdu"), ("plane", "planes")):
        if given.get(setting) is not None or (value := _only_value(index, column, setting)) is None:
            continue
        calibration = given.get("calibration") if column == "hdu" else None
        if calibration is not None:
            found["calibration"] = replace(calibration, hdu=value)
        elif setting in (names_of(factory) or ()):
            found[setting] = value
        else:
            raise ValueError(
                f"column {column!r} of the Index is {value} in each row, but a Preprocessor has no "
                f"Index, and {title(factory)} has no setting {setting!r}: add that setting to it"
            )
    return found


def _only_value(index: Index, column: str, setting: str) -> int | None:
    """Return the value that a column such as ``hdu`` has in all rows and parts; None if absent.

    ValueError if there are several values; the message says to pass `setting` instead.
    """
    names = [f"{column}_{part}" for part in index.parts] or [column]
    names = [name for name in names if name in index.table.column_names]
    values = {one for name in names for one in pc.unique(index.table[name]).to_pylist()}
    if index.parts:  # null for missing files
        values -= {None}
    if len(values) > 1:
        several = ", ".join(map(str, sorted(values - {None})[:3]))
        raise ValueError(
            f"column {column!r} of the Index has several values ({several}, ...), but a "
            f"Preprocessor has no Index: pass {setting} to preprocessor()"
        )
    return next(iter(values), None)


def _known_hdus(index: Index, given: Mapping[str, Any], config: PipelineConfig) -> dict[str, Hdu]:
    """Return `hdus` with the dtypes and numbers of planes of the first file."""
    images = checked_hdus(given["hdus"])
    # An HDU of 'image' replaces the column, but pipelines reject both together.
    if not isinstance(images["image"].hdu, str | None):
        left = [name for name in index.table.column_names if name != "hdu"]
        index = Index(index.table.select(left))
    config = replace(config, mode="eval", **{name: given[name] for name in NAMES & given.keys()})
    reader = hdus_reader(index, images, config, None, float("inf"))
    hdu = plane = None
    if any(one.hdu is None or isinstance(one.hdu, str) for one in images.values()):
        hdu = _only_value(index, "hdu", "hdus with an EXTVER each, as {'image': ('SCI', 2)},")
    if any(one.planes is None for one in images.values()):
        plane = _only_value(index, "plane", "hdus, each Hdu with its planes,")
    known = {}
    found: Sequence[tuple[str, int]] = ()
    if hdu is not None and any(isinstance(one.hdu, str) for one in images.values()):
        found = look_at_first(index, lambda row: hdu_names(row.place), config)
    for name, one in images.items():
        if hdu is not None and isinstance(one.hdu, str) and one.part is None:
            one = replace(one, hdu=hdu_beside(name, one.hdu, hdu, found))
        if one.hdu is None and hdu is not None and one.part is None:
            one = replace(one, hdu=hdu + (one.relative or 0), relative=None)
        if one.planes is None and plane is not None and one.part is None:
            one = replace(one, planes=plane)
        if name != "image":
            one = replace(one, dtype=reader.kinds[name].dtype)
        if one.planes == "all":
            count = reader.main.num_planes if name == "image" else reader.kinds[name].planes
            one = replace(one, num_planes=count)
        known[name] = one
    return known
