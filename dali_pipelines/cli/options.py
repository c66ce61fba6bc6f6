"""Command lines: the fields of a frozen dataclass as flags, and as keys of a TOML file."""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

from dali_pipelines.cli import errors
from dali_pipelines.cli.errors import CommandError, one_line
from dali_pipelines.cli.flag_types import at_home, location, number_or_share
from dali_pipelines.keywords import ELSEWHERE, field_docs
from readers.messages import did_you_mean

Config = TypeVar("Config")
_METAVARS = {int: "N", float: "X", str: "TEXT"}


def option(
    default: Any,
    help_text: str,
    *,
    short: str | None = None,
    positional: bool = False,
    **argparse_options: Any,
) -> Any:
    """Declare a field of a configuration.

    A bool makes a pair of flags, ``--name`` and ``--no-name``. With ``const=True`` and choices, the
    first of the pair also takes a choice. The help shows the default. `short` is another name, e.g.
    ``-o``. A `positional` argument has no flag, and is required. All other options are those of
    ``ArgumentParser.add_argument``: type, choices, nargs, metavar, required.
    """
    if isinstance(default, bool):
        argparse_options["action"] = argparse.BooleanOptionalAction
    elif default is not None:
        argparse_options.setdefault("type", type(default))
        if isinstance(default, int) and "choices" not in argparse_options:
            argparse_options.setdefault("metavar", "N")
    argparse_options["help"] = _help_of(help_text, default)
    flag = {"short": short, "positional": positional, "options": argparse_options}
    return dataclasses.field(default=default, metadata=flag)


def settings_of(
    declared: type[Any],
    names: str,
    *,
    hints: type[Any] | None = None,
    renamed: Mapping[str, str] | None = None,
    **changes: Mapping[str, Any],
) -> Any:
    """Declare a field with the given settings of the library; each setting has a flag.

    Parameters
    ----------
    declared : type
        Dataclass that declares the settings: types, defaults, and descriptions.
    names : str
        Names of the settings, separated by blanks.
    hints : type, optional
        TypedDict with the accepted types, if they differ from the fields.
    renamed : mapping of str to str, optional
        Names of flags that differ from their settings.
    **changes
        Options of ``ArgumentParser.add_argument`` by setting; others follow from its type.
    """
    metadata = {
        "declared": declared,
        "hints": hints or declared,
        "names": names.split(),
        "renamed": dict(renamed or {}),
        "changes": changes,
    }
    return dataclasses.field(default_factory=dict, metadata=metadata)


@dataclass(frozen=True)
class Flag:
    """A flag, or a positional argument."""

    name: str
    options: Mapping[str, Any]
    """Arguments of ``ArgumentParser.add_argument``."""
    short: str | None = None
    positional: bool = False
    setting: tuple[str, str] | None = None
    """Field that gathers the setting, and name of the setting."""
    may_be_one: bool = False
    """Whether a single value stays as it is, and does not become a tuple."""

    @property
    def is_bool(self) -> tuple[bool, ...]:
        """(True,) if all values are bools, (False,) if none is, (True, False) if some are."""
        return (True, False) if "const" in self.options else ("action" in self.options,)

    @property
    def is_required(self) -> bool:
        """Whether it must be given."""
        return self.positional or bool(self.options.get("required"))


def flags_of(config_class: type[Any]) -> list[Flag]:
    """Return the flags of a configuration."""
    return [flag for field in dataclasses.fields(config_class) for flag in _flags(field)]


def given_flags(config: Any, *names: str) -> dict[str, Any]:
    """Return the values of all flags, or of those in the named fields, by flag.

    Settings of the library are left out if they are not given.
    """
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        if names and field.name not in names:
            continue
        value = getattr(config, field.name)
        if "declared" not in field.metadata:
            found[field.name] = value
        else:
            renamed = field.metadata["renamed"]
            found |= {renamed.get(name, name): one for name, one in value.items()}
    return found


def _flags(field: dataclasses.Field[Any]) -> Iterator[Flag]:
    told = field.metadata
    if "declared" not in told:
        yield Flag(field.name, told["options"], told["short"], told["positional"])
        return
    declared = {one.name: one for one in dataclasses.fields(told["declared"])}
    hints, docs = typing.get_type_hints(told["hints"]), field_docs(told["declared"])
    for name in told["names"]:
        default = declared[name].default
        changes = told["changes"].get(name, {})
        options = {
            **({} if "type" in changes else _options_of(hints[name])),
            "help": _help_of(docs.get(name, ""), default),
            **changes,
        }
        yield Flag(
            told["renamed"].get(name, name),
            options,
            setting=(field.name, name),
            may_be_one=bool({int, float} & {*_kinds(hints[name])}),
        )


def _help_of(text: str, default: Any) -> str:
    """Return the help of a flag: text of a docstring, and the default."""
    text = " ".join(text.replace("`", "").split()).rstrip(".")
    if text[1:2].islower():
        text = text[0].lower() + text[1:]
    if default in (None, "", (), dataclasses.MISSING) or default is False:
        return text
    shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
    return f"{text} (default: {shown})"


def _kinds(hint: Any) -> list[Any]:
    """Return the types that a hint allows, without None."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return [one for one in typing.get_args(hint) if one is not type(None)] if is_union else [hint]


def _options_of(hint: Any) -> dict[str, Any]:
    """Return the options of argparse for the type of a setting."""
    kinds = _kinds(hint)
    plain = [one for one in kinds if one in (int, float, str, bool)]
    several = [one for one in kinds if typing.get_origin(one) in (tuple, Sequence)]
    literals = [one for one in kinds if typing.get_origin(one) is Literal]
    choices = [each for one in literals for each in typing.get_args(one)]
    if bool in plain:
        return {"action": argparse.BooleanOptionalAction}
    if several:
        items = typing.get_args(several[0])
        is_fixed = not plain and Ellipsis not in items and len(items) > 1
        kind = items[0]
        if typing.get_origin(kind) is Literal:
            return {"nargs": "+", "choices": typing.get_args(kind)}
        return {
            "nargs": len(items) if is_fixed else "+",
            "type": kind,
            "metavar": ("LEAST", "MOST") if is_fixed else _METAVARS[kind],
        }
    if choices:
        known = [one for one in choices if one is not None]
        return {"choices": known, "type": type(known[0])}
    return {"type": plain[0], "metavar": _METAVARS[plain[0]]}


def parse(
    config_class: type[Config],
    argv: Sequence[str] | None,
    description: str | None,
    name: str,
    defaults: Callable[[Mapping[str, Any]], Sequence[str]] = lambda _: (),
    translate: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
) -> Config:
    """Make a configuration from flags and from the files that ``--config`` names; flags win.

    The class is a frozen dataclass with fields that `option` and `settings_of` made. Its optional
    GROUPS are the titles in ``--help`` and the names of the flags below each, and COMMON the names
    that ``-h`` lists. `defaults` takes the given settings, and returns flags that these override.
    `translate` takes the settings of the files, and returns them by the names of the flags. If
    several files have a setting, the last one counts.

    Raises
    ------
    CommandError
        If the flags or a file are wrong.
    """
    flags = {flag.name: flag for flag in flags_of(config_class)}
    errors.flags = {flag.name: flag.is_bool for flag in flags.values()}
    errors.settings = {each.setting[1]: each.name for each in flags.values() if each.setting}
    argv = _underscored(sys.argv[1:] if argv is None else argv, flags)
    paths = config_files(argv)
    # Required arguments may be in a file.
    parser = _parser(config_class, flags, description, name, partial=bool(paths))
    from_argv = vars(parser.parse_args(argv))
    try:
        from_file = _from_files(parser, paths, flags, translate) if paths else {}
        given = {**from_file, **from_argv}
        first = defaults(given)
        given = {**(vars(parser.parse_args(first)) if first else {}), **given}
        given.pop("config", None)
        required = [name for name, flag in flags.items() if flag.is_required]
        if missing := [one for one in required if not given.get(one)]:
            parser.error(f"the following arguments are required: {', '.join(missing)}")
        return config_class(**gathered(config_class, given))
    except (OSError, ValueError) as error:
        parser.error(one_line(error))


def gathered(config_class: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of flags by field; a field of `settings_of` gathers several."""
    flags = {flag.name: flag for flag in flags_of(config_class)}
    found: dict[str, Any] = {}
    for name, value in given.items():
        value = at_home(value)
        if (setting := flags[name].setting) is None:
            found[name] = value
            continue
        if isinstance(value, list):
            value = value[0] if flags[name].may_be_one and len(value) == 1 else tuple(value)
        found.setdefault(setting[0], {})[setting[1]] = value
    return found


def config_files(argv: Sequence[str] | None) -> list[str]:
    """Return the files that ``--config`` names."""
    only_files = Parser(with_help=False)
    only_files.add_argument("--config", action="append", default=[])
    found, _ = only_files.parse_known_args(sys.argv[1:] if argv is None else argv)
    return list(map(at_home, found.config))


def _parser(
    config_class: type[Any],
    flags: Mapping[str, Flag],
    description: str | None,
    name: str,
    partial: bool,
) -> Parser:
    groups: Mapping[str, str] = getattr(config_class, "GROUPS", {})
    left = dict(flags)
    places = "".join(f" {one.name.upper()}" for one in flags.values() if one.positional)
    parser = Parser(
        prog=f"dali-pipelines {name}",
        usage=f"%(prog)s [--help] [--config FILE.toml] [FLAG ...]{places}" if groups else None,
        description=description,
        argument_default=argparse.SUPPRESS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        common=getattr(config_class, "COMMON", "").split(),
    )
    parser.add_argument(
        "--config",
        action="append",
        metavar="FILE.toml",
        help="take settings from this file; of several files the later ones win",
    )
    for title, names in groups.items():
        group = parser.add_argument_group(title)
        for each in names.split():
            parser.add(left.pop(each), partial, group)
    for flag in left.values():
        parser.add(flag, partial, parser)
    return parser


def _underscored(argv: Sequence[str], names: Iterable[str]) -> list[str]:
    """Return the arguments with ``--two-words`` spelt ``--two_words``: both are accepted."""
    flags = {f"--{name.replace('_', '-')}": f"--{name}" for name in names}
    flags |= {f"--no-{name.replace('_', '-')}": f"--no-{name}" for name in names}
    split = (word.partition("=") for word in argv)
    return [flags.get(flag, flag) + equals + value for flag, equals, value in split]


def _from_files(
    parser: Parser,
    paths: Sequence[str],
    flags: Mapping[str, Flag],
    translate: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for path in paths:
        text = Path(path).read_bytes()
        try:
            settings |= tomllib.loads(text.decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not TOML: {error}") from None
    try:
        return vars(parser.parse_args(_arguments(translate(settings), flags)))
    except (ValueError, CommandError) as error:
        raise CommandError(f"{' and '.join(paths)}: {error}") from None


def _arguments(settings: Mapping[str, Any], known: Mapping[str, Flag]) -> list[str]:
    """Return the settings of a TOML file as arguments."""
    if unknown := sorted(set(settings) - set(known)):
        raise ValueError(
            f"unknown keys {', '.join(unknown)}; {did_you_mean(unknown[0], known)}"
            f"known keys: {', '.join(sorted(known))}"
        )
    arguments: list[str] = []
    positional: list[str] = []
    for name, value in settings.items():
        flag = known[name]
        if isinstance(value, bool) not in flag.is_bool:
            expected = "true or false" if flag.is_bool[0] else "a value or several"
            raise ValueError(f"{name} must be {expected}, got {value!r}")
        values = value if isinstance(value, list) else [value]
        is_path = flag.options.get("type") is location and "nargs" not in flag.options
        if is_path and isinstance(value, list):  # a name may have commas
            raise ValueError(f"{name} must be one path, got {value!r}")
        is_number = flag.options.get("type") in (int, float, number_or_share)
        if is_number and any(isinstance(one, str) for one in values):
            raise ValueError(f"{name} must be a number, without quotes, got {value!r}")
        texts = list(map(str, values))
        if flag.positional:
            positional += texts
        elif isinstance(value, bool):
            arguments.append(f"--{name}" if value else f"--no-{name}")
        elif "nargs" in flag.options:
            arguments += [f"--{name}", *texts]
        else:
            arguments.append(f"--{name}={','.join(texts)}")
    return [*arguments, "--", *positional] if positional else arguments


class Parser(argparse.ArgumentParser):
    """A parser that raises a CommandError, and suggests flags that are similar to an unknown one.

    If there are `common` arguments, ``-h`` lists only these, and ``--help`` all of them.
    """

    def __init__(
        self, *, common: Sequence[str] = (), with_help: bool = True, **options: Any
    ) -> None:
        self._common = common
        self._added: dict[str, argparse.Action] = {}
        super().__init__(**options, add_help=False, allow_abbrev=False)
        if with_help:
            short = [] if common else ["-h"]
            told = "show this help, and exit"
            self.add_argument(*short, "--help", action=Print, text=Parser.format_help, help=told)
        if common:
            told = "show the most useful flags, and exit"
            self.add_argument("-h", action=Print, text=Parser.format_short_help, help=told)
        self.register("action", None, _Store)
        # argparse would take -1e-5 of --mean, and -1h,0 of --offsets, for flags.
        self._negative_number_matcher = re.compile(r"^-(\.?\d|inf|nan)")

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:
        """Add an argument."""
        action = super().add_argument(*names, **options)
        self._added[action.dest] = action
        return action

    def add(self, flag: Flag, partial: bool, group: Any) -> None:
        """Add an argument to this parser or a group of it; with `partial` none is required."""
        options = dict(flag.options)
        if partial:
            options.pop("required", None)
        if flag.positional:
            if partial:
                options["nargs"] = "*" if options.get("nargs") else "?"
            options.setdefault("metavar", flag.name.upper())
            names = [flag.name]
        else:
            names = [name for name in (flag.short, f"--{flag.name}") if name]
        self._added[flag.name] = group.add_argument(*names, **options)
        if flag.is_bool == (True, False):
            told = f"the opposite of --{flag.name}"
            group.add_argument(f"--no-{flag.name}", action="store_false", dest=flag.name, help=told)

    def format_short_help(self) -> str:
        """Return the beginning of the help, with its examples, and the arguments in `common`."""
        formatter = self.formatter_class(prog=self.prog)
        formatter.add_usage(self.usage, self._added.values(), ())
        formatter.add_text("\n\n".join((self.description or "").split("\n\n")[:2]))
        formatter.start_section("flags")
        formatter.add_arguments([self._added[name] for name in self._common])
        formatter.end_section()
        formatter.add_text(f"All flags: {self.prog} --help")
        return formatter.format_help()

    def error(self, message: str) -> NoReturn:
        """Raise a CommandError."""
        raise CommandError(f"{message} (see --help)")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse all arguments; unknown ones are an error."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            flags = [flag for one in self._added.values() for flag in one.option_strings]
            flags = [flag for flag in flags if flag.startswith("--")]
            others = {f"--{theirs}": f"--{ours}" for theirs, ours in ELSEWHERE.items()}
            asked = did_you_mean(unknown[0].partition("=")[0], flags, others).rstrip()
            self.error(f"unrecognized arguments: {' '.join(unknown)}{asked and f' ({asked})'}")
        return found


class _Store(argparse.Action):
    """Stores a value. A list that is given twice is an error: argparse would drop the first."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        """Store the value."""
        is_several = option_string is not None and isinstance(values, list | tuple | dict)
        if is_several and hasattr(namespace, self.dest):
            parser.error(f"{option_string} is given twice: pass all of its values at once")
        setattr(namespace, self.dest, values)


class Print(argparse.Action):
    """Prints a text, and exits; argparse's own actions ignore errors, such as a full disk."""

    def __init__(
        self,
        option_strings: Sequence[str],
        dest: str,
        text: Callable[[Parser], str],
        **options: Any,
    ) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, **options)
        self.text = text

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        """Print the text, and exit."""
        print(self.text(parser), end="", flush=True)
        parser.exit()
