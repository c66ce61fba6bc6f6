"""Text of messages: suggested names, pipelines and extras; escapes of control characters."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from types import MappingProxyType

_PIPELINES = {
    "fits": re.compile(rb"SIMPLE  ="),
    "jpeg": re.compile(rb"\xff\xd8|\x89PNG|GIF8|RIFF....WEBP|II\*\0|MM\0\*", re.DOTALL),
    "npy": re.compile(rb"\x93NUMPY"),
    "audio": re.compile(
        rb"(RIFF|RF64|BW64)....WAVE|FORM....AIF[FC]|fLaC|OggS|riff|caff|\.snd|ID3|"
        rb"\xff[\xe2\xe3\xf2\xf3\xfa\xfb]",  # MPEG
        re.DOTALL,
    ),
    "video": re.compile(
        rb"....ftyp(isom|iso[2-9]|mp4|avc1|M4V|qt  |3g)|\x1a\x45\xdf\xa3|RIFF....AVI |FLV\1",
        re.DOTALL,
    ),
}
"""First bytes of the files that each pipeline reads."""
FIRST_BYTES = 12
"""Number of first bytes that distinguish these files."""


def begins_like(begin: bytes, pipeline: str) -> bool:
    """Return whether a pipeline (``fits``, ...) reads files with these first bytes."""
    return _PIPELINES[pipeline].match(begin) is not None


def pipeline_hint(begin: bytes, asked: str) -> str:
    """Return a hint at another pipeline that reads files with these first bytes.

    The hint starts with a semicolon. It is empty if no pipeline is known.
    """
    found = (name for name, start in _PIPELINES.items() if name != asked and start.match(begin))
    return next((f"; {name}_pipeline reads such files" for name in found), "")


def near(
    name: str,
    known: Collection[str],
    others: Mapping[str, str] = MappingProxyType({}),
    least: float = 0.75,
) -> list[str]:
    """Return similar known names, most similar first, ignoring case.

    `others` maps names of other projects to known names. `least` is the minimum similarity, up to
    1.
    """
    meant = {other.lower(): ours for other, ours in others.items() if ours in known}
    meant |= {each.lower(): each for each in known}
    asked = name.lower()
    if asked in meant:
        return [meant[asked]]
    found = difflib.get_close_matches(asked, meant, cutoff=least)
    # crop_size for crop, --batch for --batch_size.
    found += [one for one in meant if asked.startswith(f"{one}_") or one.startswith(f"{asked}_")]
    return list(dict.fromkeys(meant[each] for each in found))


def did_you_mean(
    name: str,
    known: Collection[str],
    others: Mapping[str, str] = MappingProxyType({}),
    least: float = 0.75,
) -> str:
    """Return a question with the names of `near`, and a blank; empty without names."""
    found = near(name, known, others, least)
    return f"did you mean {' or '.join(found)}? " if found else ""


def install(extra: str) -> str:
    """Return the command that installs an extra of this project, which is not on PyPI."""
    return f"pip install '.[{extra}]' in a clone of dali-pipelines"


def printable(text: object) -> str:
    """Return a text with backslash escapes for control characters and line breaks.

    A file name may contain sequences that move the cursor, set a terminal's title or forge a line
    of a log. Bytes that are not UTF-8 (surrogates) are also escaped.
    """
    raw = str(text)
    if raw.isprintable():
        return raw
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in raw
    )
