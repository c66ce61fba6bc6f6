"""Names of the keywords of a factory, and their descriptions for help()."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Literal, TypeVar, Unpack, get_args, get_origin, get_type_hints

from readers.messages import did_you_mean

Documented = TypeVar("Documented", bound=Callable[..., Any])

ELSEWHERE = {
    "num_workers": "num_read_processes",
    "py_num_workers": "num_read_processes",
    "drop_last": "tail",
    "prefetch_factor": "prefetch",
    "prefetch_queue_depth": "prefetch",
    "sampler": "weights",
    "steps_per_epoch": "epoch_steps",
    "registered_size": "size",
    "rank": "shard_id",
    "world_size": "num_shards",
    "last_batch_policy": "tail",
    "random_resized_crop": "random_area",
    "scale": "random_area",
    "ratio": "random_aspect_ratio",
    "center_crop": "crop",
    "random_crop": "crop",
    "horizontal_flip": "flip",
    "random_horizontal_flip": "flip",
    "hflip": "flip",
    "degrees": "rotate",
    "normalize": "mean",
    "channels_last": "memory_format",
    "layout": "memory_format",
    "output_layout": "memory_format",
    "sample_rate": "rate",
    "sampling_rate": "rate",
    "sr": "rate",
    "seconds": "duration",
    "segment": "duration",
    "label": "columns",
    "labels": "columns",
}
"""Our settings by their names in PyTorch's DataLoader, torchvision, Keras, DALI and `show`."""


def names_of(factory: Callable[..., Any], *, unpacked: bool = True) -> frozenset[str] | None:
    """Return the keywords that a factory takes; None if they are unknown.

    They are known if the ``**`` parameter is annotated as ``Unpack[...]`` of a TypedDict, such as
    `PipelineSettings`. Its names are left out if `unpacked` is False.
    """
    try:
        parameters = inspect.signature(factory, eval_str=True).parameters.values()
    except (TypeError, ValueError, NameError):  # not in Python, or its types are not imported
        return None
    names: set[str] = set()
    for parameter in parameters:
        if parameter.kind is not parameter.VAR_KEYWORD:
            names.add(parameter.name)
        elif unpacked and get_origin(parameter.annotation) is not Unpack:
            return None
        elif unpacked:
            names |= get_args(parameter.annotation)[0].__annotations__.keys()
    return frozenset(names)


def check_names(
    where: str, given: Iterable[str], known: Collection[str], refused: Collection[str] = ()
) -> None:
    """Raise TypeError if a name is unknown; the message suggests similar names, or lists all.

    Names in `refused` are known, but not suggested, as no value of them is accepted.
    """
    for name in given:
        if name not in known:
            taken = {*known} - {*refused}
            asked = did_you_mean(name, taken, ELSEWHERE).strip()
            told = asked or f"available settings: {', '.join(sorted(taken))}"
            raise TypeError(f"{where} takes no setting {name!r}: {told}")


def bound_keywords(
    factory: Callable[..., Any], others: Collection[str], taker: str = "Loader"
) -> dict[str, Any]:
    """Return the keywords that functools.partial binds to a factory; empty if it is not a partial.

    TypeError if a bound keyword is in `others`, the keywords that the `taker` sets itself.
    """
    bound = _flat(factory).keywords
    for name in bound:
        if name in others and name not in ("factory", "config"):
            raise TypeError(
                f"functools.partial binds {name} of {title(factory)}, but a {taker} sets it for "
                f"its pipelines: pass {name} to the {taker}"
            )
    return bound


def without_keywords(factory: Callable[..., Any]) -> Callable[..., Any]:
    """Return a factory without its `bound_keywords`."""
    flat = _flat(factory)
    return partial(flat.func, *flat.args) if flat.args else flat.func


def title(factory: Callable[..., Any]) -> str:
    """Return the name of a factory, also inside functools.partial."""
    function = _flat(factory).func
    return getattr(function, "__name__", type(function).__name__)


def _flat(factory: Callable[..., Any]) -> partial[Any]:
    """Return a factory as a single partial; partials with attributes may contain others."""
    flat = partial(factory)
    while isinstance(inner := flat.func, partial):
        flat = partial(inner.func, *inner.args, *flat.args, **{**inner.keywords, **flat.keywords})
    return flat


_PARSING = threading.Lock()
"""Python 3.11 raises SystemError if two threads parse at once."""


def field_docs(declared: type[Any]) -> dict[str, str]:
    """Return the docstrings below the fields of a class, by field; empty without its source."""
    docs: dict[str, str] = {}
    for each in reversed(declared.__mro__):
        try:
            with _PARSING:
                tree = ast.parse(textwrap.dedent(inspect.getsource(each)))
        except (OSError, TypeError):  # of a built-in class
            continue
        for one, after in pairwise(tree.body[0].body):  # type: ignore[attr-defined]
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                text = getattr(getattr(after, "value", None), "value", None)
                if isinstance(text, str):
                    docs[one.target.id] = inspect.cleandoc(text)
    return docs


def documents(
    types: type[Any], *declared: type[Any], left_out: Collection[str] = ()
) -> Callable[[Documented], Documented]:
    """Return a decorator that lists the keywords of a ``**`` parameter in help().

    Parameters
    ----------
    types : type
        TypedDict of the ``**`` parameter, with names and types.
    *declared : type
        Dataclasses with the defaults and descriptions of the names; by default the decorated class.
        If they lack a name of `types`, the ``**`` parameter is listed as well.
    left_out : collection of str
        Names to leave out.
    """
    kinds = get_type_hints(types)  # without Required

    def decorate(documented: Documented) -> Documented:
        sources: Sequence[Any] = declared or (documented,)
        fields = {field.name: field for each in sources for field in dataclasses.fields(each)}
        docs = {name: text for each in sources for name, text in field_docs(each).items()}
        listed = [
            _parameter(fields[name], types.__annotations__[name])
            for name in fields
            if name in kinds and name not in left_out
        ]
        entries = "\n".join(_entry(one, kinds[one.name], docs.get(one.name, "")) for one in listed)
        rest = kinds.keys() - fields.keys()
        text = inspect.cleandoc(documented.__doc__ or "")
        before, name, after = re.split(r"^(\*\*\w+\n(?: +.*\n?)+)", text, flags=re.MULTILINE)
        documented.__doc__ = f"{before}{entries}\n{name if rest else ''}{after}"
        if isinstance(documented, type):
            own = inspect.signature(documented)
            parameters = [*own.parameters.values(), *listed]
            if not rest:
                parameters = [one for one in parameters if one.kind is not one.VAR_KEYWORD]
            parameters.sort(key=lambda one: (one.kind, one.default is not one.empty))
            documented.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return documented

    return decorate


def _parameter(field: dataclasses.Field[Any], kind: Any) -> inspect.Parameter:
    default: Any = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    if default is dataclasses.MISSING:
        default = inspect.Parameter.empty
    kind = re.sub(r"^Required\[(.*)\]$", r"\1", getattr(kind, "__forward_arg__", str(kind)))
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
    )


def _entry(one: inspect.Parameter, hint: Any, text: str) -> str:
    """Return an entry of numpydoc's section Parameters."""
    kind = one.annotation
    kinds = [hint] if get_origin(hint) is Literal else get_args(hint)
    literals = [each for each in kinds if get_origin(each) is Literal]
    if literals:
        shown = f"{{{', '.join(map(repr, get_args(literals[0])))}}}"
        if "Literal[" in kind:
            kind = re.sub(r"Literal\[[^\]]*\]", shown, kind)
        elif get_origin(hint) is tuple:
            kind = f"tuple of {shown}"
        else:
            kind = f"bool or {shown}" if bool in kinds else shown
    default = "" if one.default is one.empty else f", default {one.default!r}"
    if dataclasses.is_dataclass(one.default):
        default = f", default {type(one.default).__name__}()"
    return f"{one.name} : {kind}{default}\n{textwrap.indent(text, '    ')}"


def plain(text: str) -> str:
    """Return a docstring without reStructuredText markup, for a terminal."""
    return " ".join(text.replace("`", "").split())
