"""Checks of the keywords that a Loader passes to its factory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from dali_pipelines.aia.calibration import NOT_OF_AIA, CalibrationSettings, check_aia
from dali_pipelines.config import NAMES, PipelineConfig
from dali_pipelines.keywords import bound_keywords, check_names, names_of, title
from dali_pipelines.settings import AudioSettings, OrderSettings
from readers.index.rows.values import RowValues
from readers.index.rows.windows import CORNERS
from readers.index.table import Index

logger = logging.getLogger(__name__)

ORDER = frozenset(OrderSettings.__annotations__)
"""Settings of the order of samples, which the Loader itself uses, too."""
OF_IMAGES = NAMES - AudioSettings.__annotations__.keys() - {"window"}
"""Settings that only factories of images take."""
_OF_THE_LOADER = {
    "device_id": "pass devices",
    "epoch": "pass a state to load_state_dict",
    "position": "pass a state to load_state_dict",
    "first_step": "pass a state to load_state_dict",
}


def pipeline_settings(
    factory: Callable[..., Any],
    config: Mapping[str, Any],
    others: Collection[str],
    index: Index,
) -> dict[str, Any]:
    """Return the keywords that a Loader passes to its factory; TypeError or ValueError if wrong.

    Parameters
    ----------
    factory : callable
        Factory of the Loader.
    config : mapping
        Keywords of the Loader. The function adds those that functools.partial binds, and those for
        the windows of the Index.
    others : collection of str
        Keywords that the Loader keeps for itself.
    index : Index
        Index of the Loader.
    """
    settings = bound_keywords(factory, others) | dict(config)
    for name, instead in _OF_THE_LOADER.items():
        if name in settings:
            raise TypeError(f"a Loader sets {name} of its pipelines itself: {instead}")
    names = names_of(factory)
    if names is None or {"window", "crop", "outside"} <= names:
        settings |= window_settings(index, settings)
        _warn_of_lost_windows(index, settings)
    check_settings(factory, settings, others, taker="Loader", not_taken=_OF_THE_LOADER)
    if "batch_size" not in settings:
        raise TypeError("a Loader needs a batch_size")
    for row in settings.get("rejected", ()):
        if row >= len(index):
            raise ValueError(
                f"rejected must be rows of the Index, 0 to {len(index) - 1}, got {row}"
            )
    # Not every factory takes all of the order.
    is_left_out = ORDER - {"batch_size"}
    settings = {n: one for n, one in settings.items() if one is not None or n not in is_left_out}
    defaults = {"seed": 0, "tail": "partial", "shuffle": settings.get("mode") != "eval"}
    return {**defaults, **settings, "rejected": dict(settings.get("rejected", {}))}


def window_settings(index: Index, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that cut the windows of an Index, except those that were given.

    Empty if the Index has no windows, or if other parts of the images were asked for.
    """
    if index.window_size is None or not takes_windows(given):
        return {}
    windows = {"window": "row", "crop": index.window_size, "outside": index.outside}
    return {
        name: one for name, one in windows.items() if one is not None and given.get(name) is None
    }


def takes_windows(given: Mapping[str, Any]) -> bool:
    """Return whether the settings can be used with the windows of the rows."""
    others = ("random_area", "resize_shorter")
    return given.get("window") in (None, "row") and not any(given.get(one) for one in others)


def _warn_of_lost_windows(index: Index, settings: Mapping[str, Any]) -> None:
    """Log a warning if rows look like windows, but other parts of the images are delivered."""
    is_lost = index.window_size is None and {*CORNERS} <= {*index.table.column_names}
    if not is_lost or settings.get("window") is not None or not takes_windows(settings):
        return
    logger.warning(
        "%s delivered, and columns y and x of the Index are not used, because it has no "
        "window_size, which pandas, CSV files and a concat of several sizes do not keep: set "
        "window='row' and crop for windows at y and x, or window='center' if y and x mean "
        "something else",
        "Whole images are" if settings.get("crop") is None else "The middle of each image is",
    )


def row_values(index: Index, settings: dict[str, Any]) -> RowValues:
    """Remove the columns that cannot be tensors from the settings of pipelines.

    KeyError or TypeError as of `Index.row_values`.
    """
    columns = settings.get("columns", ())
    values = index.row_values(columns)
    if values.names:
        settings["columns"] = tuple(name for name in columns if name not in values.names)
    return values


def check_settings(
    factory: Callable[..., Any],
    settings: Mapping[str, Any],
    others: Collection[str],
    *,
    taker: str,
    not_taken: Collection[str],
) -> dict[str, Any]:
    """Check keywords for a factory; return those of PipelineConfig, converted by it.

    A factory with explicit keywords checks their values itself. One that takes any keyword also
    checks the names. `taker` is a class for messages, such as Loader, and `others` are its own
    keywords. Names in `not_taken` are rejected, although factories have them.

    Raises
    ------
    TypeError, ValueError
        If a keyword is unknown, or its value makes no sense.
    """
    names = names_of(factory)
    if names is not None:
        known = (names | set(others)) - {*not_taken, "factory", "index", "config"}
        if not names & OF_IMAGES and (given := sorted(OF_IMAGES & settings.keys())):
            raise TypeError(
                f"{title(factory)} takes no settings of images, such as {', '.join(given)}; "
                f"available settings: {', '.join(sorted(known))}"
            )
        refused = NOT_OF_AIA if "calibration" in names else ()
        check_names(f"{taker} with {title(factory)}", settings, known, refused)
    declared = set(names_of(factory, unpacked=False) or ())
    if "calibration" in declared:  # its own `missing` is another setting
        declared |= CalibrationSettings.__annotations__.keys()
        check_aia(settings)
    checked = {name: settings[name] for name in NAMES & set(settings) - (declared - ORDER)}
    config = PipelineConfig(**{"batch_size": 1, **checked})
    return {name: getattr(config, name) for name in checked}
