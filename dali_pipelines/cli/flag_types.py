"""Types of flags: functions that read a value of the command line."""

from __future__ import annotations

import argparse
import os
import pkgutil
import re
import sys
from collections.abc import Callable
from typing import Any


def location(text: str) -> str:
    """Read a path or a URL of the command line; reject a URL that contains a secret."""
    from readers.places.urls import check_url, is_url

    if is_url(text):
        try:
            check_url(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return text


def at_least(least: int) -> Callable[[str], int]:
    """Return a type for `option`: integers from `least` on."""

    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected an integer from {least} on, got {text!r}")
        return int(text)

    return number


def number_of_bytes(text: str) -> int:
    """Read a number of bytes of the command line, as 200GB, 1.5TB or 4096."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kMGT]?)B?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"expected bytes, as 200GB or 1.5TB, got {text!r}")
    return int(float(found[1]) * 1000 ** " kMGT".index(found[2] or " "))


def number_or_share(text: str) -> float:
    """Read an int, or a float if the text has a point or an exponent."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def number_or(word: str) -> Callable[[str], int | str]:
    """Return a type for `option`: numbers from 0 on, or a word."""

    def number(text: str) -> int | str:
        if text != word and not text.isdecimal():
            raise argparse.ArgumentTypeError(f"expected a number or {word}, got {text!r}")
        return text if text == word else int(text)

    return number


def hdu_name(text: str) -> int | str | tuple[str, int]:
    """Read an HDU of the command line: a number, EXTNAME, or EXTNAME,EXTVER."""
    name, comma, version = text.rpartition(",")
    if text.isdecimal():
        return int(text)
    if not text.strip() or text.startswith("-") or (comma and not version.strip().isdecimal()):
        raise argparse.ArgumentTypeError(
            f"expected the number of an HDU, its EXTNAME, or EXTNAME,EXTVER, got {text!r}"
        )
    return (name, int(version)) if comma else text


def column_and_hdu(text: str) -> str:
    """Check a column of the command line, which may have an HDU, as in seg_path=SEG."""
    _, equals, hdu = text.partition("=")
    if equals:
        hdu_name(hdu)
    return text


def named_hdu(text: str) -> tuple[str, Any]:
    """Read an HDU with a name: NAME=HDU, or NAME=+N for N HDUs after the HDU of the row.

    Returns
    -------
    tuple
        The name, and its HDU as `fits_pipeline` takes it.
    """
    name, equals, hdu = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=HDU, such as dq=DQ, got {text!r}")
    if hdu[:1] in ("+", "-") and hdu[1:].isdecimal():
        from readers.fits.multi_hdu import Hdu

        return name, Hdu(relative=int(hdu))
    return name, hdu_name(hdu)


def plane_numbers(text: str) -> tuple[int, ...] | str:
    """Read planes of the command line: all, or numbers as 0,2,3."""
    numbers = [part.strip() for part in text.split(",")]
    if text == "all":
        return text
    if not all(number.isdecimal() for number in numbers):
        raise argparse.ArgumentTypeError(f"expected all, or numbers as 0,2,3, got {text!r}")
    return tuple(map(int, numbers))


def fractions(text: str) -> dict[str, float]:
    """Read fractions of the command line, as train=0.9,val=0.1."""
    words = [re.fullmatch(r"\s*([\w-]+)=(\d*\.?\d+)\s*", word) for word in text.split(",")]
    found = {word[1]: float(word[2]) for word in words if word}
    if len(found) < len(words):
        raise argparse.ArgumentTypeError(
            f"expected names, each once, and shares, as train=0.9,val=0.1, got {text!r}"
        )
    return found


def positions(text: str) -> dict[str, Any]:
    """Read positions on axes of the command line, as level=3,run=-1, level=0,5 or level=0:9:2."""
    found: dict[str, list[int | slice]] = {}
    name = ""
    try:
        for word in text.split(","):
            axis, is_named, position = word.rpartition("=")
            if is_named:
                name = axis.strip()
                if not name or name in found:
                    raise ValueError
            bounds = [int(one) if one.strip() else None for one in position.split(":")]
            at = int(position) if len(bounds) == 1 else slice(*bounds)
            found.setdefault(name, []).append(at)
        lists = [ats for ats in found.values() if len(ats) > 1]
        if "" in found or any(isinstance(at, slice) for ats in lists for at in ats):
            raise ValueError
    except (TypeError, ValueError):
        raise argparse.ArgumentTypeError(
            "expected names of axes, each once, with a position, several or a slice, as "
            f"level=3,run=-1, level=0,5 or level=0:9, got {text!r}"
        ) from None
    return {name: ats[0] if len(ats) == 1 else ats for name, ats in found.items()}


def function_of(flag: str, name: str) -> Any:
    """Import a function by its name, also from the current folder; ValueError if that fails."""
    sys.path.append(os.getcwd())
    try:
        if not name.partition(":")[2]:
            raise ValueError("it is not MODULE:FUNCTION")
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"--{flag}={name}: {error}") from None
    except Exception as error:  # raised by the module while it is imported
        reason = f"its module raises {type(error).__name__}: {error}"
        raise ValueError(f"--{flag}={name}: {reason}") from error
    finally:
        sys.path.remove(os.getcwd())


def at_home(value: Any) -> Any:
    """Return a value, or several, with the user's home in place of a leading ``~``.

    Shells expand it at the beginning of a word, but not after ``--data=``, and not in a file.
    """
    if isinstance(value, list):
        return list(map(at_home, value))
    is_path = isinstance(value, str) and f"{value}/".startswith("~/")
    return os.path.expanduser(value) if is_path else value
