"""Flags for augmentations, operators of the user's own, and outputs that say where samples lie."""

from __future__ import annotations

import ast
import os
import pkgutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.options import option
from readers.messages import did_you_mean

if TYPE_CHECKING:
    from dali_pipelines.settings import Augmentation

AUGMENTATIONS = (
    *("ColorJitter", "TrivialAugment", "RandAugment", "RandomGrayscale"),
    *("Noise", "PhotonNoise", "Blur", "Erase"),
)
"""Names that ``--augment`` takes."""


@dataclass(frozen=True, kw_only=True)
class OwnFlags:
    """Changes of each image after its geometry."""

    augment: tuple[str, ...] | None = option(
        None,
        f"random changes in turn, e.g. 'ColorJitter(brightness=0.4)': {', '.join(AUGMENTATIONS)}",
        nargs="+",
        metavar="NAME(...)",
    )
    transform: str | None = option(
        None, "function that adds operators of your own to the graph", metavar="MODULE:FUNCTION"
    )
    outputs: tuple[str, ...] | None = option(
        None,
        "more outputs that say where each sample is in its image",
        choices=("window", "flip", "matrix"),
        nargs="+",
    )

    def own_settings(self) -> dict[str, Any]:
        """Return the keywords for the pipeline factory."""
        return {
            "augment": tuple(map(augmentation_of, self.augment or ())),
            "transform": None
            if self.transform is None
            else function_of("transform", self.transform),
            "outputs": tuple(self.outputs or ()),
        }


def augmentation_of(text: str) -> Augmentation:
    """Return the augmentation that a text describes.

    Parameters
    ----------
    text : str
        A call with values alone, e.g. ``RandAugment(2, magnitude=9)``, or a table of TOML, as
        options make a text of it: ``{'name': 'RandAugment', 'magnitude': 9}``.

    Raises
    ------
    ValueError
        If it is neither, the name is unknown, or a value makes no sense.
    """
    import dali_pipelines

    name, values, settings = _call_of(text)
    if not isinstance(name, str) or name not in AUGMENTATIONS:
        name = str(name)
        raise ValueError(
            f"--augment has no {name!r}: {did_you_mean(name, AUGMENTATIONS)}there are "
            f"{', '.join(AUGMENTATIONS)}"
        )
    try:
        return getattr(dali_pipelines, name)(*values, **settings)
    except (TypeError, ValueError) as error:
        raise ValueError(f"--augment {text!r}: {error}") from None


def _call_of(text: str) -> tuple[Any, list[Any], Mapping[str, Any]]:
    """Return name, positional values and keyword values, without running anything."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        if isinstance(tree, ast.Dict):
            table = ast.literal_eval(tree)
            return table.pop("name"), [], table
        if isinstance(tree, ast.Name):
            return tree.id, [], {}
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
            settings = {str(one.arg): ast.literal_eval(one.value) for one in tree.keywords}
            if len(settings) < len(tree.keywords):
                raise ValueError("a keyword is given twice")
            return tree.func.id, [*map(ast.literal_eval, tree.args)], settings
    except (SyntaxError, ValueError, KeyError, RecursionError):
        pass
    raise ValueError(
        "--augment takes names with numbers, such as 'ColorJitter(brightness=0.4)' or "
        f"'TrivialAugment()', got {text!r}"
    )


def function_of(flag: str, name: str) -> Any:
    """Return a function by its name, also from the current folder; ValueError if there is none."""
    sys.path.append(os.getcwd())
    try:
        if not name.partition(":")[2]:
            raise ValueError("it is no MODULE:FUNCTION")
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"--{flag}={name}: {error}") from None
    except Exception as error:  # of the module, as it is imported
        reason = f"its module raises {type(error).__name__}: {error}"
        raise ValueError(f"--{flag}={name}: {reason}") from error
    finally:
        sys.path.remove(os.getcwd())
