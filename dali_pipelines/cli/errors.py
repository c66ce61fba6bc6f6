"""Errors of commands: one line for the user, and an exit status."""

from __future__ import annotations

import functools
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec

from readers.messages import install, printable

Arguments = ParamSpec("Arguments")

EXTRA = ("duckdb", "matplotlib", "nvtx", "packaging", "pynvml")
"""Packages of the extra ``cli``."""


flags: dict[str, tuple[bool, ...]] = {}
"""Flags of the running command, and whether their values may be bools; `parse` sets them."""
settings: dict[str, str] = {}
"""Flags of the running command, by the settings of the library that they set."""
_WRONG = re.compile(r"\w+(?= (?:must|needs|is not for)\b)")
_SETTING = re.compile(
    r"(?<![\w./=-])(\w+)=(True|False|'[^' ]*'|\(\d+(?:, \d+)*\)|-?\d+(?:\.\d+)?)(?![\w/=]|\.\w)"
)
_REPORTED = "dali_pipelines.loading.recovery"
"""Logger of rejected rows. Its messages are not shown, because reports list these rows."""


class CommandError(Exception):
    """An error that the user can fix: a message of one line, and the exit status."""

    def __init__(self, message: object, status: int = 2) -> None:
        super().__init__(one_line(message))
        self.status = status


@contextmanager
def refusing(*errors: type[Exception], status: int = 2, doing: str = "") -> Iterator[None]:
    """Turn these errors into a CommandError; `doing` begins its message."""
    try:
        yield
    except errors as error:
        raise CommandError(f"{doing}: {one_line(error)}" if doing else error, status) from error


def count(number: int, noun: str) -> str:
    """Return a number of things as text, such as "2 files"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def one_line(message: object) -> str:
    """Return a message without line breaks, runs of blanks and control characters.

    For an OSError, return its file, if any, and the reason, without the error number.
    """
    if isinstance(message, OSError) and message.strerror and message.filename is not None:
        message = f"{os.fsdecode(message.filename)}: {message.strerror}"
    elif isinstance(message, OSError) and message.strerror:
        # tempfile raises this:
        no_folder = message.strerror.startswith("No usable temporary directory")
        remedy = ": set TMPDIR to a folder that can be written" if no_folder else ""
        message = f"{message.strerror}{remedy}"
    if isinstance(message, KeyError) and message.args:
        message = message.args[0]  # str() would quote it
    return printable(" ".join(str(message).split()))


def command(
    name: str = "", interrupted: str = "interrupted"
) -> Callable[[Callable[Arguments, int]], Callable[Arguments, int]]:
    """Decorate the function `main` of a command: report its errors, return the exit status.

    Each message begins with ``dali-pipelines NAME: ``, or without a name ``dali-pipelines: ``.
    `interrupted` is the message after Ctrl-C (status 130).
    """

    def decorate(main: Callable[Arguments, int]) -> Callable[Arguments, int]:
        @functools.wraps(main)
        def reporting(*args: Arguments.args, **kwargs: Arguments.kwargs) -> int:
            _open_streams()
            _log_to_stderr()
            try:
                status = main(*args, **kwargs)
                print(end="", flush=True)  # an error if the output cannot be written
                return status
            except CommandError as refusal:
                message, status = str(refusal), refusal.status
            except ModuleNotFoundError as error:
                if error.name not in EXTRA:
                    raise
                message = f"{error}: commands need {install('cli')}"
                status = 2
            except BrokenPipeError:  # of `dali-pipelines doctor | head`
                return 128 + signal.SIGPIPE
            except OSError as error:  # e.g. the disk of standard output is full
                message, status = one_line(error), 1
            except KeyboardInterrupt as error:
                message, status = str(error) or interrupted, 128 + signal.SIGINT
            finally:
                _drop_output()
            print(f"{f'dali-pipelines {name}'.rstrip()}: {in_flags(message)}", file=sys.stderr)
            return status

        return reporting

    return decorate


def _open_streams() -> None:
    """Open /dev/null in place of standard streams that are closed (``2>&-``).

    Otherwise the next opened file would get the descriptor of stderr, and libraries would write
    their messages into that file.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode))


def in_flags(message: str) -> str:
    """Return a message of the library with flags in place of settings.

    ``outside='fill'`` is ``--outside=fill``, and ``crop=(3, 4)`` is ``--crop 3 4``. Names of files
    that look like settings stay.
    """
    if wrong := _WRONG.match(message):
        flag = settings.get(wrong[0], wrong[0])
        message = f"--{flag}{message[wrong.end() :]}" if flag in flags else message
    if "pipeline" in flags:
        message = re.sub(r"\b(aia|audio|fits|jpeg|video)_pipeline\b", r"--pipeline=\1", message)
    elif "video" in flags:  # index
        message = re.sub(r"\b(audio|video)_pipeline\b", r"--\1", message)
        message = re.sub(r"(?<!\S)classes=$", "--classes", message)  # an Index or its file
    return _SETTING.sub(_in_flags, message)


def _in_flags(setting: re.Match[str]) -> str:
    name, value = settings.get(setting[1], setting[1]), setting[2]
    is_bool = value in ("True", "False")
    if is_bool not in flags.get(name, ()):
        return setting[0]
    if is_bool:
        return f"--{name}" if value == "True" else f"--no-{name}"
    if value.startswith("("):
        return f"--{name} {value[1:-1].replace(',', '')}"
    return f"--{name}={value.strip(chr(39))}"


class _InFlags(logging.Formatter):
    """Shows only the message, with flags in place of settings."""

    def format(self, record: logging.LogRecord) -> str:
        return in_flags(record.getMessage())


def _log_to_stderr() -> None:
    """Print log messages, unless a program that calls the command has its own handlers.

    Warnings and errors of this package, and only errors of other libraries.
    """
    handler = logging.StreamHandler()
    handler.addFilter(_is_shown)
    handler.setFormatter(_InFlags())
    logging.basicConfig(handlers=[handler])


def _is_shown(record: logging.LogRecord) -> bool:
    package = record.name.partition(".")[0]
    is_ours = package in ("dali_pipelines", "readers") and record.name != _REPORTED
    return is_ours or record.levelno >= logging.ERROR


def _drop_output() -> None:
    """Drop output that cannot be written, because the interpreter would report it at exit."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
