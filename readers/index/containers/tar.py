"""Samples of tar files in WebDataset's format: members, index files and columns."""

from __future__ import annotations

import json
import posixpath
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from readers.index.arrow import pa
from readers.index.containers.columns import (
    Span,
    container_table,
    integers_or_text,
    span_columns,
    value_column,
)
from readers.index.containers.forward import Damage, ForwardReader, check_unpacked
from readers.index.scan import FORMATS
from readers.index.skipped import Skipped
from readers.places.contract import Place

_JSON = (".json", ".jsn")
_TEXTS = (".cls", ".cls2", ".index", ".inx", ".id", ".txt", ".text", ".transcript", *_JSON)
"""Suffixes of members that become columns. WebDataset decodes them as text, too."""
_MOST_KINDS = 64
"""Maximum number of extensions. With more, the names are not in WebDataset's format."""
_LONGEST_TEXT = 64 << 10
"""Maximum number of bytes of a member that becomes a value."""
_META = re.compile(r"__[^/]*__($|/)")
"""Names of members that WebDataset reserves."""
_NAME = re.compile(r"((?:.*/|)[^./]+)\.([^/]*)", re.DOTALL)
"""Key of a member, and extension: everything after the first dot of the base name."""

Split = Callable[[str], tuple[str, str] | None]
"""Function that returns key and extension for the name of a member, or None to leave it out."""


@dataclass(slots=True)
class _Sample:
    spans: dict[str, Span] = field(default_factory=dict)
    """Members by extension, in lower case."""
    texts: dict[str, Any] = field(default_factory=dict)
    """Contents of short texts, values of JSON."""
    error: ValueError | None = None
    """Error, if a member that should be text cannot be read."""


def tar_table(
    place: Place,
    idx: tuple[str, str] | None,
    suffixes: Sequence[str],
    image: str | None,
    skipped: Skipped,
) -> pa.Table:
    """Return the table of a tar, see `readers.index.table.Index.from_tar`.

    `idx` is the path and text of its index file. `suffixes` are those of images, in lower case with
    the dot, or `image` is the extension of images. `skipped` counts the entries that are left out.

    Raises
    ------
    ValueError
        If it is not a tar, or two members have the same name.
    """
    reader = ForwardReader(place)
    found = listed_members(reader, *idx) if idx else None
    links: list[Link] = []
    files = found or members(reader, links=links)
    named: list[tuple[Member, Any]] = []
    try:
        named.extend((each, _value(reader, each, skipped)) for each in files)  # in one pass
    except Damage as error:
        what = "tars that are damaged or cut off, with the rest of the file"
        skipped.reject(what, place.name, error)
        if named:  # other members of the last sample may be lost
            named.append((named.pop()[0], ValueError("the last sample before the damage")))
    linked = _linked([each for each, _ in named], links, skipped) if links else []
    named += [(each, _value(reader, each, skipped)) for each in linked]
    exact = [image.lower().lstrip(".")] if image else [suffix[1:] for suffix in suffixes]
    samples, unnamed = _grouped(place.name, named, _by_first_dot)
    if not image and not any(ext in exact for each in samples.values() for ext in each.spans):
        # Names contain other dots, as in names of AIA files, so each image is a sample.
        by_suffix = _BySuffix(tuple(sorted(suffixes, key=len, reverse=True)))
        samples, unnamed = _grouped(place.name, named, by_suffix)
    for name in unnamed:
        if not _META.match(name):
            skipped.add("members of tars whose names begin with a dot, or have none", name)
    rank = {ext: number for number, ext in reversed([*enumerate(exact)])}
    for key in [key for key, sample in samples.items() if sample.error]:
        name = f"{place.name}: {key}"
        skipped.reject("samples of tars that cannot be read", name, samples.pop(key).error)
    chosen = {
        key: min(present, key=rank.__getitem__)
        for key, sample in samples.items()
        if (present := [ext for ext in sample.spans if ext in rank])
    }
    for key in [key for key in samples if key not in chosen]:
        other = next((ext for ext in samples[key].spans if f".{ext}" in FORMATS), None)
        hint = f"; {FORMATS[f'.{other}']}_pipeline reads .{other}" if other else ""
        kinds = ", ".join(f".{ext}" for ext in exact[:3])
        skipped.add(
            f"samples of tars without an image ({kinds}, ...{hint})",
            _described(key, samples[key], exact),
        )
    kept = [(samples[key], ext) for key, ext in chosen.items()]
    others = _columns(place.name, kept, tuple(suffixes), skipped)
    return container_table(place, [sample.spans[ext] for sample, ext in kept], [*chosen], others)


def _described(key: str, sample: _Sample, suffixes: Sequence[str]) -> str:
    """Return the key and extensions of a sample without an image, for the log."""
    found = ", ".join(f".{ext}" for ext in [*sample.spans][:4])
    is_dotted = any(ext.endswith(tuple(f".{one}" for one in suffixes)) for ext in sample.spans)
    why = ": a key ends at the first dot of a name: replace dots before the suffix" * is_dotted
    return f"{key} with {found}{why}"


def _linked(files: Sequence[Member], links: Sequence[Link], skipped: Skipped) -> list[Member]:
    """Return links to members of the tar as members with the bytes of their targets."""
    known = {posixpath.normpath(each.name): each for each in files}
    found = []
    for link in links:
        if (file := known.get(link.target)) is None:
            skipped.add(
                "links in tars to files outside of them: pack with tar --dereference", link.name
            )
        else:
            found.append(Member(link.name, file.offset, file.nbytes))
            known[posixpath.normpath(link.name)] = file
    return found


def _value(reader: ForwardReader, member: Member, skipped: Skipped) -> Any:
    """Return the text of a member, or its value if it is JSON; a ValueError if it cannot be read.

    None for other members, for long texts, and for hidden members such as ``._a.txt``.
    """
    if not member.name.lower().endswith(_TEXTS) or _is_hidden(member.name):
        return None
    if member.nbytes > _LONGEST_TEXT:
        skipped.add("members of tars with too much text for an Index", member.name)
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
        if "\\u" in text:  # raises ValueError for half a surrogate pair
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
    """Splits a name before the suffix of an image, or before its last dot."""

    suffixes: tuple[str, ...]
    """Longest first."""

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
                f"{path}: two members have the name {member.name!r}, at byte "
                f"{sample.spans[ext].offset} and {member.offset}: pack the tar again without one"
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
    skipped: Skipped,
) -> Mapping[str, pa.Array]:
    """Return the columns of all members except the images of samples."""
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
                skipped.add("members of tars that are neither images nor texts", f".{ext}", count)
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


# ---- Index files of NVIDIA's wds2idx: positions of members ---------------------------------------

_VERSION = "v1.2"
"""Version of index files; older ones have no names of members."""


def listed_members(reader: ForwardReader, idx: str, content: str) -> list[Member] | None:
    """Return the members in an index file; `idx` is its path, for messages.

    None if the headers of the tar must be read: the version is unknown, or names contain spaces,
    which also separate the fields.

    Raises
    ------
    ValueError
        If the index file belongs to another tar. The headers of the first, middle and last member,
        and the end of the tar are compared.
    """
    version, _, count = content.partition("\n")[0].partition(" ")
    samples = [line.split(" ") for line in content.splitlines()[1:] if line]
    if version != _VERSION or any(len(each) % 4 for each in samples):
        return None
    try:
        found = [
            Member(each[at + 3], int(each[at + 1]), int(each[at + 2]))
            for each in samples
            for at in range(0, len(each), 4)
        ]
        if len(samples) != int(count):
            raise ValueError(f"{len(samples)} samples are listed, {count} announced")
        _check(reader, found)
    except ValueError as error:
        raise ValueError(
            f"{idx}: it is out of date or damaged ({error}): make it again with wds2idx, or delete "
            f"it to read the headers of {reader.place.name}"
        ) from error
    return found


def _check(reader: ForwardReader, listed: Sequence[Member]) -> None:
    """Raise ValueError if one of three headers differs, or a member follows the last one."""
    for member in [listed[number] for number in (0, len(listed) // 2, -1)] if listed else []:
        found = next(members(reader, member.offset - BLOCK), None) if member.offset > 0 else None
        # A header has only a part of a long name or of a name that is not ASCII.
        is_plain = member.name.isascii() and len(member.name) < 100
        if found is None or found.nbytes != member.nbytes or (is_plain and found != member):
            raise ValueError(f"{member.name!r} is not at {member.offset}")
    end = listed[-1].offset + -(-listed[-1].nbytes // BLOCK) * BLOCK if listed else 0
    for member in members(reader, end):
        if not member.name.rpartition("/")[2].startswith("."):  # hidden files are not listed
            raise ValueError(f"{member.name!r} is not listed")


# ---- Members: ustar, GNU and pax, with long names and more than 8 GiB ----------------------------

BLOCK = 512
_ZEROS = bytes(BLOCK)
_FILES, _WITHOUT_DATA, _SPARSE = b"07\0", b"123456", b"S"
_HARD_LINK, _LINKS = b"1", b"12"
_LONG_NAME, _LONG_LINK, _PAX, _PAX_OF_ALL = b"L", b"K", b"x", b"g"
_LONGEST = 1 << 20
"""Maximum number of bytes of a long name or of pax records. A larger number is damage."""
_AFTER_END = 64 << 10
"""Number of bytes after the end mark that must be zero. tar writes at most 10 KiB of zeros."""


class Member(NamedTuple):
    """A file in a tar."""

    name: str
    offset: int
    """Position of its first byte in the tar."""
    nbytes: int


class Link(NamedTuple):
    """A link in a tar."""

    name: str
    target: str
    """Name of the target, if it is in the tar."""


def members(
    reader: ForwardReader, start: int = 0, links: list[Link] | None = None
) -> Iterator[Member]:
    """Yield the files of a tar; folders, links and devices are left out.

    Links are appended to `links`. `start` is the position of the first header to read.

    Raises
    ------
    Damage
        If it is damaged or truncated, after all members before the damage.
    ValueError
        If it is not a tar, is compressed, or has a sparse member.
    """
    if start == 0:
        check_unpacked(reader)
    of_all: dict[bytes, bytes] = {}
    of_next: dict[bytes, bytes] = {}
    at = start
    while (header := reader.read(at, at + BLOCK)) != _ZEROS:
        kind, nbytes, name = _parsed(reader, at, header)
        data = at + BLOCK
        if kind in (_LONG_NAME, _LONG_LINK, _PAX, _PAX_OF_ALL):
            content = _content(reader, data, nbytes)
            if kind == _LONG_NAME:
                of_next[b"path"] = content.partition(b"\0")[0]
            elif kind == _LONG_LINK:
                of_next[b"linkpath"] = content.partition(b"\0")[0]
            elif kind == _PAX:
                of_next |= _records(data, content)
            elif kind == _PAX_OF_ALL:
                of_all |= _records(data, content)
        else:
            found = of_all | of_next
            if found:
                name = found.get(b"path", name)
                nbytes = _decimal(at, found[b"size"]) if b"size" in found else nbytes
                if any(key.startswith(b"GNU.sparse.") for key in found):
                    kind = _SPARSE
            of_next = {}
            if kind == _SPARSE:
                raise reader.error(f"{text(name)!r} is sparse: pack it with tar, without --sparse")
            if kind in _WITHOUT_DATA:
                nbytes = 0
            if data + nbytes > reader.nbytes:
                raise _cut(reader, f"{text(name)!r} ends at {data + nbytes}")
            if links is not None and kind in _LINKS:
                links.append(_link(kind, name, found.get(b"linkpath", header[157:257])))
            if kind in _FILES and not name.endswith(b"/"):
                yield Member(text(name), data, nbytes)
        at = data + -(-nbytes // BLOCK) * BLOCK
    if reader.read(at, min(at + _AFTER_END, reader.nbytes)).strip(b"\0"):
        raise reader.error(
            f"it continues after its end mark at {at}, like tars joined by cat: join them with tar "
            "--concatenate"
        )


def _link(kind: bytes, name: bytes, target: bytes) -> Link:
    """Return a link. A hard link names a member; a symbolic link has a path relative to its own."""
    named = text(target.partition(b"\0")[0])
    folder = "" if kind == _HARD_LINK else posixpath.dirname(text(name))
    return Link(text(name), posixpath.normpath(posixpath.join(folder, named)))


def text(name: bytes) -> str:
    """Return a name as text for an Index, with escapes for invalid UTF-8."""
    return name.decode(errors="backslashreplace")


def _parsed(reader: ForwardReader, at: int, header: bytes) -> tuple[bytes, int, bytes]:
    """Return type, size and name from a header; ValueError if the bytes are not a header."""
    if len(header) < BLOCK:
        raise _cut(reader, f"a header or the end mark is expected at {at}")
    field = header[148:156].strip(b" \0")
    # The checksum covers the header with spaces in its own field.
    if not _is_octal(field) or int(field, 8) != sum(header) - sum(header[148:156]) + 256:
        if at == 0:
            raise reader.error("it is not a tar: it does not begin with a header")
        raise Damage(f"it is damaged: expected the header of a member at {at}")
    name = header[:100].partition(b"\0")[0]
    if header[257:263] == b"ustar\0" and header[345]:
        name = header[345:500].partition(b"\0")[0] + b"/" + name
    return header[156:157], _size(at, header[124:136]), name


def _size(at: int, field: bytes) -> int:
    if field[0] == 0x80:  # binary, for 8 GiB or more
        return struct.unpack(">Q", field[4:])[0]
    digits = field.strip(b" \0") or b"0"  # GNU tar writes no size for the label of a volume
    if not _is_octal(digits):
        raise Damage(f"the header at {at} has a damaged size, {field!r}")
    return int(digits, 8)


def _is_octal(digits: bytes) -> bool:
    return digits.isdigit() and b"8" not in digits and b"9" not in digits


def _decimal(at: int, digits: bytes) -> int:
    if not digits.isdigit():
        raise Damage(f"pax records before {at} have a damaged number, {digits!r}")
    return int(digits)


def _content(reader: ForwardReader, at: int, nbytes: int) -> bytes:
    if nbytes > _LONGEST:
        raise Damage(f"it is damaged: the name or pax records at {at} have {nbytes} bytes")
    content = reader.read(at, at + nbytes)
    if len(content) < nbytes:
        raise _cut(reader, f"a name or pax records end at {at + nbytes}")
    return content


def _records(at: int, content: bytes) -> dict[bytes, bytes]:
    """Return pax records. Each consists of its length, a space, key=value, and a line break."""
    found = {}
    start = 0
    while start < len(content) and content[start]:
        length, space, _ = content[start : start + 20].partition(b" ")
        stop = start + (_decimal(at, length) if space else 0)
        record = content[start + len(length) + 1 : stop]
        key, equals, value = record.partition(b"=")
        if stop > len(content) or not (equals and value.endswith(b"\n")):
            raise Damage(f"it is damaged: the pax records at {at} have no key or end")
        found[key] = value[:-1]
        start = stop
    return found


def _cut(reader: ForwardReader, expected: str) -> Damage:
    return Damage(f"it is cut off or still written: {expected}, the file at {reader.nbytes}")
