"""Checks of the keywords that a Loader passes to its factory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from dali_pipelines.aia.calibration import CalibrationSettings
from dali_pipelines.config import NAMES, PipelineConfig
from dali_pipelines.settings import check_names, names_of
from readers.index.rows.values import RowValues
from readers.index.table import Index

_OF_THE_LOADER = {
    "device_id": "give devices",
    "epoch": "give load_state_dict a state",
    "position": "give load_state_dict a state",
    "first_step": "give load_state_dict a state",
}


def pipeline_settings(
    factory: Callable[..., Any],
    config: Mapping[str, Any],
    order: Mapping[str, Any],
    others: Collection[str],
    num_rows: int,
) -> dict[str, Any]:
    """Return the keywords that a Loader passes to its factory, with those of the order of rows.

    TypeError or ValueError if they make no sense. Of the order (batch_size, seed, ...) those that
    are None are left out, as not every factory takes them; shuffle then follows the mode.
    """
    settings = bound_settings(factory, others) | dict(config)
    for name, instead in _OF_THE_LOADER.items():
        if name in settings:
            raise TypeError(f"a Loader sets {name} of its pipelines itself: {instead}")
    check_settings(factory, settings, others, taker="Loader", not_taken=_OF_THE_LOADER)
    for row in settings.get("rejected", ()):
        if row >= num_rows:
            raise ValueError(f"rejected must be rows of the Index, 0 to {num_rows - 1}, got {row}")
    given = {name: value for name, value in order.items() if value is not None}
    given.setdefault("shuffle", settings.get("mode") != "eval")
    PipelineConfig(**{"batch_size": None, "seed": None, **given})
    return {**settings, "rejected": dict(settings.get("rejected", {})), **given}


def row_values(index: Index, settings: dict[str, Any]) -> RowValues:
    """Take the columns that no tensor carries out of the settings of pipelines.

    KeyError or TypeError as of `Index.row_values`.
    """
    columns = settings.get("columns", ())
    values = index.row_values(columns)
    if values.names:
        settings["columns"] = tuple(name for name in columns if name not in values.names)
    return values


def bound_settings(
    factory: Callable[..., Any], others: Collection[str], taker: str = "Loader"
) -> dict[str, Any]:
    """Return the keywords that functools.partial binds to a factory; none if it is not a partial.

    TypeError if one of them is a keyword of the `taker` itself (`others`), which sets it.
    """
    bound: dict[str, Any] = {}
    function = factory
    while isinstance(function, partial):
        bound = {**function.keywords, **bound}
        function = function.func
    for name in bound:
        if name in others and name not in ("factory", "config"):
            raise TypeError(
                f"functools.partial binds {name} of {title(factory)}, and a {taker} sets it for "
                f"its pipelines: give {name} to the {taker}"
            )
    return bound


def title(factory: Callable[..., Any]) -> str:
    """Return the name of a factory, below functools.partial."""
    while isinstance(factory, partial):
        factory = factory.func
    return getattr(factory, "__name__", type(factory).__name__)


def check_settings(
    factory: Callable[..., Any],
    settings: Mapping[str, Any],
    others: Collection[str],
    *,
    taker: str,
    not_taken: Collection[str],
) -> dict[str, Any]:
    """Check keywords for a factory; return those of PipelineConfig, as it converts them.

    A factory checks itself the values of keywords that it declares one by one, and all names if it
    takes any keyword. `taker` is the class that takes them, as a Loader; `others` are keywords of
    its own, and `not_taken` those of factories that it does not take.

    Raises
    ------
    TypeError, ValueError
        If a keyword is unknown, or its value makes no sense.
    """
    names = names_of(factory)
    if names is not None:
        known = (names | set(others)) - {*not_taken, "factory", "index", "config"}
        check_names(f"{taker} with {title(factory)}", settings, known)
    declared = set(names_of(factory, unpacked=False) or ())
    if "calibration" in declared:  # it has a `missing` of its own
        declared |= CalibrationSettings.__annotations__.keys()
    checked = {name: settings[name] for name in NAMES & set(settings) - declared}
    config = PipelineConfig(**{"batch_size": 1, **checked})
    return {name: getattr(config, name) for name in checked}
