"""Command lines: the fields of a frozen dataclass as arguments and as keys of a TOML file."""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from dali_pipelines.cli import errors
from dali_pipelines.cli.errors import Refusal, one_line
from dali_pipelines.cli.paths import at_home

Config = TypeVar("Config")


def option(
    default: Any,
    help_text: str,
    *,
    short: str | None = None,
    positional: bool = False,
    **argparse_options: Any,
) -> Any:
    """Declare a field of a configuration.

    A bool makes a pair of flags, ``--name`` and ``--no-name``. The help gets the default. `short`
    is another name, e.g. ``-o``. What is `positional` has no flag, and must be given. All else is
    for ``ArgumentParser.add_argument``: type, choices, nargs, metavar, required.
    """
    metadata = {
        "help": help_text,
        "short": short,
        "positional": positional,
        "argparse": argparse_options,
    }
    return dataclasses.field(default=default, metadata=metadata)


def parse(
    config_class: type[Config],
    argv: Sequence[str] | None,
    description: str | None,
    name: str,
    defaults: Callable[[Mapping[str, Any]], Sequence[str]] = lambda _: (),
    translate: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
) -> Config:
    """Make a configuration of flags and of the file that ``--config`` names; flags win.

    The class is a frozen dataclass, whose fields `option` made. Its GROUPS, if it has them, are the
    titles of ``--help`` and the names of the flags below each. `defaults` takes the settings that
    are given, and returns flags that all of them override. `translate` takes the settings of a
    file, and returns them by the names that they have here.

    Raises
    ------
    Refusal
        If something is wrong with the flags or the file.
    """
    fields = dataclasses.fields(config_class)  # type: ignore[arg-type]
    names = [field.name for field in fields]
    errors.flags = {field.name: str(field.type).startswith("bool") for field in fields}
    argv = _underscored(sys.argv[1:] if argv is None else argv, names)
    path = config_file(argv)
    # What must be given may stand in the file.
    parser = _parser(config_class, description, name, partial=path is not None)
    flags = vars(parser.parse_args(argv))
    try:
        from_file = {} if path is None else _from_file(parser, path, fields, translate)
        given = {**from_file, **flags}
        first = defaults(given)
        settings = {**(vars(parser.parse_args(first)) if first else {}), **given}
        settings.pop("config", None)
        if missing := [field.name for field in fields if _is_missing(field, settings)]:
            parser.error(f"the following arguments are required: {', '.join(missing)}")
        return config_class(**{name: at_home(value) for name, value in settings.items()})
    except (OSError, ValueError) as error:
        parser.error(one_line(error))


def config_file(argv: Sequence[str] | None) -> str | None:
    """Return the file that ``--config`` names."""
    only_file = Parser(add_help=False)
    only_file.add_argument("--config")
    found, _ = only_file.parse_known_args(sys.argv[1:] if argv is None else argv)
    return None if found.config is None else str(at_home(found.config))


def _parser(config_class: type[Any], description: str | None, name: str, partial: bool) -> Parser:
    groups: Mapping[str, str] = getattr(config_class, "GROUPS", {})
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    parser = Parser(
        prog=f"dali-pipelines {name}",
        usage="%(prog)s [--help] [--config FILE.toml] [FLAG ...]" if groups else None,
        description=description,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE.toml", help="take settings from this file")
    for title, names in groups.items():
        group = parser.add_argument_group(title)
        for name in names.split():
            _add(group, fields.pop(name), partial)
    for field in fields.values():
        _add(parser, field, partial)
    return parser


def _underscored(argv: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the arguments with ``--two-words`` spelt ``--two_words``, as older releases had it."""
    flags = {f"--{name.replace('_', '-')}": f"--{name}" for name in names}
    split = (word.partition("=") for word in argv)
    return [flags.get(flag, flag) + equals + value for flag, equals, value in split]


def _from_file(
    parser: Parser,
    path: str,
    fields: Sequence[dataclasses.Field[Any]],
    translate: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> dict[str, Any]:
    text = Path(path).read_bytes()
    try:
        arguments = _arguments(translate(tomllib.loads(text.decode())), fields)
        return vars(parser.parse_args(arguments))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    except (ValueError, Refusal) as error:
        raise Refusal(f"{path}: {error}") from None


def _arguments(settings: Mapping[str, Any], fields: Sequence[dataclasses.Field[Any]]) -> list[str]:
    """Return the settings of a TOML file as arguments."""
    known = {field.name: field for field in fields}
    if unknown := sorted(set(settings) - set(known)):
        from readers.messages import did_you_mean

        raise ValueError(
            f"unknown keys {', '.join(unknown)}; {did_you_mean(unknown[0], known)}"
            f"known are {', '.join(sorted(known))}"
        )
    flags: list[str] = []
    positional: list[str] = []
    for name, value in settings.items():
        options = known[name].metadata["argparse"]
        is_switch = isinstance(known[name].default, bool) or "action" in options
        if is_switch != isinstance(value, bool):
            expected = "true or false" if is_switch else "a value or several"
            raise ValueError(f"{name} must be {expected}, got {value!r}")
        values = value if isinstance(value, list) else [value]
        kind = options.get("type", type(known[name].default))
        if kind in (int, float, number_or_share) and any(isinstance(one, str) for one in values):
            raise ValueError(f"{name} must be a number, without quotes, got {value!r}")
        texts = list(map(str, values))
        if known[name].metadata["positional"]:
            positional += texts
        elif is_switch:
            flags.append(f"--{name}" if value else f"--no-{name}")
        elif "nargs" in options:
            flags += [f"--{name}", *texts]
        else:
            flags.append(f"--{name}={','.join(texts)}")
    return [*flags, "--", *positional] if positional else flags


def _is_missing(field: dataclasses.Field[Any], settings: Mapping[str, Any]) -> bool:
    needed = field.metadata["positional"] or field.metadata["argparse"].get("required")
    return bool(needed) and not settings.get(field.name)


def _add(parser: argparse._ActionsContainer, field: dataclasses.Field[Any], partial: bool) -> None:
    """Add an argument; with `partial` none is required."""
    options = dict(field.metadata["argparse"])
    default = "" if field.default in (None, "") else f" (default: {field.default})"
    options["help"] = field.metadata["help"] + default
    if isinstance(field.default, bool):
        options["action"] = argparse.BooleanOptionalAction
    elif field.default is not None:
        options.setdefault("type", type(field.default))
    if partial:
        options.pop("required", None)
    if field.metadata["positional"]:
        if partial:
            options["nargs"] = "*" if options.get("nargs") else "?"
        options.setdefault("metavar", field.name.upper())
        parser.add_argument(field.name, **options)
    else:
        names = filter(None, (field.metadata["short"], f"--{field.name}"))
        parser.add_argument(*names, **options)


class Parser(argparse.ArgumentParser):
    """A parser that raises a Refusal, and names the flags that are near to an unknown one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # With exponents and units, which argparse takes for flags: --mean -1e-5, --offsets -1h,0.
        self._negative_number_matcher = re.compile(r"^-\.?\d")

    def error(self, message: str) -> NoReturn:
        """Raise a Refusal."""
        raise Refusal(f"{message} (see --help)")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse all arguments; what is left over is an error."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            from readers.messages import did_you_mean

            flags = [flag for flag in self._option_string_actions if flag.startswith("--")]
            asked = did_you_mean(unknown[0].partition("=")[0], flags).rstrip()
            self.error(f"unrecognized arguments: {' '.join(unknown)}{asked and f' ({asked})'}")
        return found

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help or the version; argparse would not tell that nobody takes it."""
        print(message, end="", file=file, flush=True)


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
    """Read an int, or a float where there is a point or an exponent."""
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


def named_hdu(text: str) -> tuple[str, Any]:
    """Read one of several HDUs of the command line: NAME=HDU, or NAME=+N, counted from the row's.

    Returns
    -------
    tuple
        The name, and what `fits_pipeline` takes as its HDU.
    """
    name, equals, hdu = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=HDU, such as dq=DQ, got {text!r}")
    if hdu[:1] in ("+", "-") and hdu[1:].isdecimal():
        from readers.fits.several.hdu import Hdu

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
