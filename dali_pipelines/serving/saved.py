"""TOML file of a Preprocessor, with the calibration tables in its folder."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from dali_pipelines.runtime.version import own_version
from dali_pipelines.serving.document import decoded, encoded, import_name, imported, tables_in
from readers.index.grouping.frames import Frames
from readers.values import is_integer

VERSION = 1
"""Version of the results. A release that makes other images from the same settings raises it."""

_HEAD = """\
# Preprocessing of images for a model, saved by dali-pipelines {release}.
# Preprocessor.load(PATH) restores it.
"""


def document_of(
    factory: Callable[..., Any], frames: Frames, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the content of the file as plain values; ValueError if a setting cannot be saved."""
    document = {
        "version": VERSION,
        "factory": import_name("the factory", factory),
        "parts": list(frames.channels),
        "offsets": list(frames.offsets),
        "settings": {name: encoded(name, value) for name, value in sorted(settings.items())},
    }
    return {**document, "digest": _digest(document)}


def save(
    path: str | os.PathLike[str],
    factory: Callable[..., Any],
    frames: Frames,
    settings: Mapping[str, Any],
) -> None:
    """Write the file and the tables; see `Preprocessor.save`."""
    path = Path(path)
    if path.suffix != ".toml":
        raise ValueError(f"{path}: expected a name that ends in .toml")
    release = own_version()
    document = {**document_of(factory, frames, settings), "release": release}
    values = document.pop("settings")  # its tables must come last
    contents: dict[str, bytes] = {}
    for table in tables_in(settings):
        content = _content(table)
        if contents.setdefault(table.name, content) != content:
            raise ValueError(f"two calibration tables are named {table.name}: rename one of them")
    for name, content in contents.items():
        target = path.with_name(name)
        if target.exists() and target.read_bytes() != content:
            raise FileExistsError(
                f"{target} exists, but is not the calibration table of that name: save to another "
                "folder"
            )
        _write(target, content)
    text = tomli_w.dumps({**document, "settings": values})
    _write(path, (_HEAD.format(release=release) + text).encode())


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the arguments for `Preprocessor`; see `Preprocessor.load`."""
    path = Path(path)
    try:
        document = tomllib.loads(path.read_bytes().decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    needed = {"version", "factory", "parts", "offsets", "settings", "digest"}
    if missing := needed - document.keys():
        raise ValueError(
            f"{path} lacks {', '.join(sorted(missing))}: expected a file from Preprocessor.save"
        )
    version, release = document["version"], document.pop("release", "unknown")
    if version != VERSION:
        age = "a newer" if is_integer(version, VERSION + 1) else "an older"
        raise ValueError(
            f"{path} was saved by {age} release of dali-pipelines, whose images may differ "
            f"({release}, version {version!r} of the preprocessing, here {VERSION}): install that "
            "release"
        )
    if document.pop("digest") != _digest(document):
        raise ValueError(
            f"{path} was changed after it was saved, and its images may differ from the training: "
            "save it again from a Preprocessor with these settings"
        )
    try:
        settings = {
            name: decoded(value, path.parent) for name, value in document["settings"].items()
        }
        factory = imported(document["factory"])
    except (ImportError, OSError, TypeError, ValueError) as error:
        raise type(error)(f"{path}: {error}") from error
    return {
        "factory": factory,
        "parts": tuple(document["parts"]),
        "offsets": tuple(document["offsets"]),
        **settings,
    }


def _digest(document: dict[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, ensure_ascii=False, default=str)  # dates of TOML
    return hashlib.sha256(text.encode()).hexdigest()


def _content(table: Any) -> bytes:
    """Return the bytes of a table's file; OSError if the file has changed since it was read."""
    content = Path(table.path).read_bytes()
    if hashlib.sha256(content).hexdigest() != table.sha256:
        raise OSError(f"{table.path} has changed since it was read: read it again")
    return content


def _write(path: Path, content: bytes) -> None:
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
