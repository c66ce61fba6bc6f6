"""Checks of the keywords that a Loader passes to its factory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from dali_pipelines.aia.calibration import CalibrationSettings
from dali_pipelines.config import NAMES, PipelineConfig
from dali_pipelines.settings import check_names, names_of

_OF_THE_LOADER = {
    "device_id": "give devices",
    "epoch": "give load_state_dict a state",
    "position": "give load_state_dict a state",
    "first_step": "give load_state_dict a state",
}


def bound_settings(factory: Callable[..., Any], others: Collection[str]) -> dict[str, Any]:
    """Return the keywords that functools.partial binds to a factory; none if it is no partial.

    TypeError if one of them is a keyword of the Loader itself (`others`), which sets it.
    """
    bound: dict[str, Any] = {}
    function = factory
    while isinstance(function, partial):
        bound = {**function.keywords, **bound}
        function = function.func
    for name in bound:
        if name in others and name not in ("factory", "config"):
            raise TypeError(
                f"functools.partial binds {name} of {_title(factory)}, and a Loader sets it for "
                f"its pipelines: give {name} to the Loader"
            )
    return bound


def _title(factory: Callable[..., Any]) -> str:
    while isinstance(factory, partial):
        factory = factory.func
    return getattr(factory, "__name__", type(factory).__name__)


def check_settings(
    factory: Callable[..., Any], settings: Mapping[str, Any], others: Collection[str], num_rows: int
) -> None:
    """Raise TypeError or ValueError for keywords that a Loader would pass to its factory.

    A factory checks itself the values of keywords that it declares one by one, and all names if it
    takes any keyword. `others` are keywords of the Loader itself; its Index has `num_rows`.
    """
    for name, instead in _OF_THE_LOADER.items():
        if name in settings:
            raise TypeError(f"a Loader sets {name} of its pipelines itself: {instead}")
    names = names_of(factory)
    if names is not None:
        known = (names | set(others)) - {*_OF_THE_LOADER, "factory", "index", "config"}
        check_names(f"Loader with {_title(factory)}", settings, known)
    declared = set(names_of(factory, unpacked=False) or ())
    if "calibration" in declared:  # it has a `missing` of its own
        declared |= CalibrationSettings.__annotations__.keys()
    checked = {name: settings[name] for name in NAMES & set(settings) - declared}
    PipelineConfig(**{"batch_size": 1, **checked})
    for row in checked.get("rejected", ()):
        if row >= num_rows:
            raise ValueError(f"rejected must be rows of the Index, 0 to {num_rows - 1}, got {row}")
