"""Conversion of settings to plain values of TOML and back.

A dataclass becomes a table with its import name ``module:name`` as ``class``, and its fields. A
function becomes a table with its import name as ``function``. Calibration tables are separate
files.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import os
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import dali_pipelines
from dali_pipelines.aia.calibration import Calibration
from readers.aia.degradation import CorrectionTable
from readers.aia.pointing import PointingTable

_TABLES = PointingTable, CorrectionTable


def encoded(name: str, value: Any) -> Any:
    """Convert a setting to a plain value; `name` is for messages.

    Raises
    ------
    ValueError
        If another process could not restore the setting: a function of ``__main__``, a lambda, an
        absolute path, or an object that is not a dataclass.
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, bool):
        return value
    for kind in (int, float):  # of subclasses, too
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, str | os.PathLike):
        return _relative(name, os.fspath(value))
    if isinstance(value, Mapping):
        return {_key(name, key): encoded(f"{name}[{key!r}]", one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [encoded(name, one) for one in value]
    if value is None:
        return {"class": "None"}
    if isinstance(value, _TABLES):
        return _table(value)
    if isinstance(value, Calibration) and isinstance(value.stretch, Mapping):
        stretch = {str(channel): one for channel, one in value.stretch.items()}
        value = dataclasses.replace(value, stretch=stretch)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"class": import_name(name, type(value))} | _fields(name, value)
    return {"function": import_name(name, value)}


def decoded(value: Any, folder: Path) -> Any:
    """Restore a setting from the result of `encoded`. Arrays of TOML become tuples.

    Raises
    ------
    ImportError
        If a class or function cannot be imported.
    OSError, ValueError
        If a calibration table is not in the folder, or was changed.
    """
    if isinstance(value, list):
        return tuple(decoded(one, folder) for one in value)
    if not isinstance(value, dict):
        return value
    if "function" in value:
        return imported(value["function"])
    if "class" not in value:
        return {key: decoded(one, folder) for key, one in value.items()}
    if value["class"] == "None":
        return None
    rest = {key: decoded(one, folder) for key, one in value.items() if key != "class"}
    kind = imported(value["class"])
    return _read_table(kind, folder, **rest) if kind in _TABLES else kind(**rest)


def import_name(name: str, value: Any) -> str:
    """Return the import name of a function or class; ValueError if it cannot be imported."""
    module, own = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module is None or own is None:
        raise ValueError(
            f"{name} is a {type(value).__name__}, which cannot be saved: use a function or a "
            "dataclass of a module"
        )
    if getattr(dali_pipelines, own, None) is value:  # its documented name
        return f"{dali_pipelines.__name__}:{own}"
    found = f"{module}:{own}"
    try:
        is_it = module != "__main__" and imported(found) is value
    except ImportError:
        is_it = False
    if not is_it:
        raise ValueError(
            f"{name} is {own} of {module}, which another process cannot import: use a function or "
            "a dataclass at the top level of a module"
        )
    return found


def imported(name: str) -> Any:
    """Import an object by its ``module:name``; ImportError if that fails."""
    try:
        importlib.import_module(name.partition(":")[0])
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ImportError(
            f"cannot import {name!r}: install its package, or add its folder to sys.path ({error})"
        ) from error


def tables_in(value: Any) -> list[PointingTable | CorrectionTable]:
    """Return the calibration tables in a setting."""
    if isinstance(value, _TABLES):
        return [value]
    if isinstance(value, Mapping):
        return [table for one in value.values() for table in tables_in(one)]
    if isinstance(value, list | tuple):
        return [table for one in value for table in tables_in(one)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [
            table
            for field in dataclasses.fields(value)
            for table in tables_in(getattr(value, field.name))
        ]
    return []


def _relative(name: str, path: str) -> str:
    if os.path.isabs(path):
        raise ValueError(
            f"{name} is an absolute path, {path!r}, which may not exist on other machines: use a "
            "relative path, or an object that was read from the file"
        )
    return path


def _key(name: str, key: Any) -> str:
    if not isinstance(key, str) or key in ("class", "function"):
        raise ValueError(f"{name} has the key {key!r}, which cannot be saved: use other text")
    return key


def _fields(name: str, value: Any) -> dict[str, Any]:
    found = {}
    for field in dataclasses.fields(value):
        own = getattr(value, field.name)
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if field.init and not _is_same(own, default):
            found[field.name] = encoded(f"{name}.{field.name}", own)
    return found


def _is_same(value: Any, default: Any) -> bool:
    if isinstance(value, float) and isinstance(default, float) and math.isnan(value):
        return math.isnan(default)
    return type(value) is type(default) and value == default


def _table(table: PointingTable | CorrectionTable) -> dict[str, Any]:
    found: dict[str, Any] = {
        "class": import_name("table", type(table)),
        "file": table.name,
        "sha256": table.sha256,
    }
    if isinstance(table, CorrectionTable):
        if table.version is None:
            (found["channel"],) = table.curves
        else:
            found["version"] = table.version
    return found


def _read_table(
    kind: Callable[..., Any], folder: Path, *, file: str, sha256: str, **options: Any
) -> Any:
    path = folder / os.path.basename(file)
    table = kind.read(path, **options)  # type: ignore[attr-defined]
    if table.sha256 != sha256:
        raise ValueError(
            f"{path} has the SHA-256 {table.sha256[:12]}..., expected {sha256[:12]}...: replace it "
            "by the table that was saved with the settings"
        )
    return table
