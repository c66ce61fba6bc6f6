"""Samples of tar files, as WebDataset names them: members that differ in their extension only."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from readers.index.containers.columns import (
    Span,
    container_table,
    integers_or_text,
    span_columns,
    value_column,
)
from readers.index.containers.forward import Damage, ForwardReader
from readers.index.containers.left_out import LeftOut
from readers.index.containers.tar.idx import listed_members
from readers.index.containers.tar.members import Link, Member, members
from readers.index.scan import FORMATS

if TYPE_CHECKING:
    import pyarrow as pa

    from readers.places.contract import Place

_JSON = (".json", ".jsn")
_TEXTS = (".cls", ".cls2", ".index", ".inx", ".id", ".txt", ".text", ".transcript", *_JSON)
"""Ends of members whose content becomes a column; WebDataset decodes the same as text."""
_MOST_KINDS = 64
"""Extensions of members; if there are more, the names are not those of WebDataset."""
_LONGEST_TEXT = 64 << 10
"""Bytes of a member whose content becomes a value."""
_META = re.compile(r"__[^/]*__($|/)")
"""Members that WebDataset keeps for itself."""
_NAME = re.compile(r"((?:.*/|)[^./]+)\.([^/]*)", re.DOTALL)
"""Key and extension of a member: everything after the first dot of its base name."""

Split = Callable[[str], tuple[str, str] | None]
"""Returns key and extension of the name of a member, or None to leave it out."""


@dataclass(slots=True)
class _Sample:
    spans: dict[str, Span] = field(default_factory=dict)
    """Members by extension, in lower case."""
    texts: dict[str, Any] = field(default_factory=dict)
    """Contents of those that are short texts, of JSON its value."""
    error: ValueError | None = None
    """Why a text of it cannot be read."""


def tar_table(
    place: Place,
    idx: tuple[str, str] | None,
    suffixes: Sequence[str],
    image: str | None,
    left_out: LeftOut,
) -> pa.Table:
    """Return the table of a tar, see `readers.index.table.Index.from_tar`.

    Parameters
    ----------
    place : Place
        The tar.
    idx : tuple of (str, str), optional
        Path and text of its index file.
    suffixes : sequence of str
        Suffixes of images, in lower case, with the dot.
    image : str, optional
        Extension of the image of each sample.
    left_out : LeftOut
        To count what is left out.

    Raises
    ------
    ValueError
        If it is not a tar, or two members have one name.
    """
    reader = ForwardReader(place)
    found = listed_members(reader, *idx) if idx else None
    links: list[Link] = []
    files = found or members(reader, links=links)
    named: list[tuple[Member, Any]] = []
    try:
        named.extend((each, _content(reader, each, left_out)) for each in files)  # in one pass
    except Damage as error:
        left_out.reject("tars that are damaged or cut off, with what is behind", place.name, error)
        if named:  # more members of its sample may be behind
            named.append((named.pop()[0], ValueError("it is the last one before the damage")))
    linked = _linked([each for each, _ in named], links, left_out) if links else []
    named += [(each, _content(reader, each, left_out)) for each in linked]
    exact = [image.lower().lstrip(".")] if image else [suffix[1:] for suffix in suffixes]
    samples, unnamed = _grouped(place.name, named, _by_first_dot)
    if not image and not any(ext in exact for each in samples.values() for ext in each.spans):
        # Names as those of AIA have dots: each image is a sample.
        by_suffix = _BySuffix(tuple(sorted(suffixes, key=len, reverse=True)))
        samples, unnamed = _grouped(place.name, named, by_suffix)
    for name in unnamed:
        if not _META.match(name):
            left_out.add("members of tars whose names begin with a dot, or have none", name)
    rank = {ext: number for number, ext in reversed([*enumerate(exact)])}
    for key in [key for key, sample in samples.items() if sample.error]:
        name = f"{place.name}: {key}"
        left_out.reject("samples of tars that cannot be read", name, samples.pop(key).error)
    chosen = {
        key: min(present, key=rank.__getitem__)
        for key, sample in samples.items()
        if (present := [ext for ext in sample.spans if ext in rank])
    }
    for key in [key for key in samples if key not in chosen]:
        other = next((ext for ext in samples[key].spans if f".{ext}" in FORMATS), None)
        hint = f"; {FORMATS[f'.{other}']}_pipeline reads .{other}" if other else ""
        kinds = ", ".join(f".{ext}" for ext in exact[:3])
        left_out.add(f"samples of tars without an image ({kinds}, ...{hint})", key)
    kept = [(samples[key], ext) for key, ext in chosen.items()]
    others = _columns(place.name, kept, tuple(suffixes), left_out)
    return container_table(place, [sample.spans[ext] for sample, ext in kept], [*chosen], others)


def _linked(files: Sequence[Member], links: Sequence[Link], left_out: LeftOut) -> list[Member]:
    """Return links to members of the tar as members, which have the bytes of these."""
    known = {posixpath.normpath(each.name): each for each in files}
    found = []
    for link in links:
        if (file := known.get(link.target)) is None:
            left_out.add(
                "links in tars to what is not in them: pack by tar --dereference", link.name
            )
        else:
            found.append(Member(link.name, file.offset, file.nbytes))
            known[posixpath.normpath(link.name)] = file
    return found


def _content(reader: ForwardReader, member: Member, left_out: LeftOut) -> Any:
    """Return the content of a member that is a short text, and not hidden, as ``._a.txt``.

    Of JSON it is its value; if it cannot be read, a ValueError.
    """
    if not member.name.lower().endswith(_TEXTS) or _is_hidden(member.name):
        return None
    if member.nbytes > _LONGEST_TEXT:
        left_out.add("members of tars with more text than an Index should hold", member.name)
        return None
    content = reader.read(member.offset, member.offset + member.nbytes)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        return ValueError(f"{member.name!r} is not UTF-8: {error}")
    if not member.name.lower().endswith(_JSON):
        return text
    try:
        value = json.loads(text)
        if "\\u" in text:  # of which halves of a pair are no text
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        return ValueError(f"{member.name!r} is not JSON: {error}")
    return value


def _is_hidden(name: str) -> bool:
    return name.rpartition("/")[2].startswith(".")


def _by_first_dot(name: str) -> tuple[str, str] | None:
    found = _NAME.fullmatch(name)
    return (found[1], found[2].lower()) if found and not _META.match(name) else None


@dataclass(frozen=True)
class _BySuffix:
    """Splits a name before the suffix of an image, or at its last dot."""

    suffixes: tuple[str, ...]
    """The longest first."""

    def __call__(self, name: str) -> tuple[str, str] | None:
        if _is_hidden(name):
            return None
        lower = name.lower()
        for suffix in self.suffixes:
            if lower.endswith(suffix):
                return name[: -len(suffix)], suffix[1:]
        stem, _, ext = name.rpartition(".")
        return stem, ext.lower()


def _grouped(
    path: str, named: Iterable[tuple[Member, Any]], split: Split
) -> tuple[dict[str, _Sample], list[str]]:
    """Return the samples by key, in the order of their first members, and names without a key."""
    samples: dict[str, _Sample] = {}
    unnamed = []
    for member, text in named:
        if (found := split(member.name)) is None:
            unnamed.append(member.name)
            continue
        key, ext = found
        sample = samples.setdefault(key, _Sample())
        if ext in sample.spans:
            raise ValueError(
                f"{path}: two members are {member.name!r}, at {sample.spans[ext].offset} and "
                f"{member.offset}: which is right is unknown; pack the tar again"
            )
        sample.spans[ext] = Span(member.offset, member.nbytes)
        if isinstance(text, ValueError):
            sample.error = text
        elif text is not None:
            sample.texts[ext] = text
    return samples, unnamed


def _columns(
    path: str,
    kept: Sequence[tuple[_Sample, str]],
    suffixes: tuple[str, ...],
    left_out: LeftOut,
) -> Mapping[str, pa.Array]:
    """Return the columns of members that are not the image of their sample."""
    columns: dict[str, pa.Array] = {}
    kinds = dict.fromkeys(ext for sample, _ in kept for ext in sample.spans)
    if len(kinds) > _MOST_KINDS:
        raise ValueError(
            f"{path}: members have {len(kinds)} extensions, counted from the first dot of a name, "
            f"such as .{min(kinds)}: replace the dots before the suffix"
        )
    for ext in kinds:
        name = re.sub(r"\W", "_", ext)
        texts = [sample.texts.get(ext) for sample, _ in kept]
        spans = [None if ext == image else sample.spans.get(ext) for sample, image in kept]
        if any(text is not None for text in texts):
            made = _text_columns(name, ext, texts)
        elif f".{ext}".endswith(suffixes) and any(spans):
            made = span_columns(name, path, spans)
        else:
            if any(spans) and not f".{ext}".endswith(_TEXTS):
                count = sum(span is not None for span in spans)
                left_out.add("members of tars that are neither images nor texts", f".{ext}", count)
            continue
        if twice := columns.keys() & made.keys():
            raise ValueError(f"{path}: members make two columns {min(twice)!r}; rename some")
        columns |= made
    return columns


def _text_columns(name: str, ext: str, texts: Sequence[Any]) -> dict[str, pa.Array]:
    if not f".{ext}".endswith(_JSON):
        stripped = [text if text is None else text.strip() for text in texts]
        return {name: integers_or_text(stripped)}
    if not all(isinstance(each, dict | None) for each in texts):
        return {name: value_column(texts)}
    of_rows: list[dict[str, Any]] = [each or {} for each in texts]
    fields = dict.fromkeys(field for each in of_rows for field in each)
    return {f"{name}_{field}": value_column([e.get(field) for e in of_rows]) for field in fields}
