"""Checks of the keywords that a Loader passes to its factory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from dali_pipelines.config import NAMES, PipelineConfig
from dali_pipelines.settings import check_names, names_of

_OF_THE_LOADER = {
    "device_id": "give devices",
    "epoch": "give load_state_dict a state",
    "position": "give load_state_dict a state",
    "first_step": "give load_state_dict a state",
}


def check_settings(
    factory: Callable[..., Any], settings: Mapping[str, Any], others: Collection[str]
) -> None:
    """Raise TypeError or ValueError for keywords that a Loader would pass to its factory.

    A factory checks itself the values of keywords that it declares one by one, and all names if it
    takes any keyword. `others` are the keywords of the Loader itself.
    """
    for name, instead in _OF_THE_LOADER.items():
        if name in settings:
            raise TypeError(f"a Loader sets {name} of its pipelines itself: {instead}")
    names = names_of(factory)
    if names is not None:
        function = getattr(factory, "func", factory)  # of a functools.partial
        title = getattr(function, "__name__", type(function).__name__)
        known = (names | set(others)) - {*_OF_THE_LOADER, "factory", "index", "config"}
        check_names(f"Loader with {title}", settings, known)
    declared = names_of(factory, unpacked=False) or ()
    checked = {name: settings[name] for name in NAMES & set(settings) - set(declared)}
    PipelineConfig(**{"batch_size": 1, **checked})
