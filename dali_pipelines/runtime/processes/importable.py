"""Check that reader processes can import Readers, Targets and the main script."""

from __future__ import annotations

import ast
import os
import pickle
import pickletools
import sys
from pathlib import Path
from typing import Any

from readers.contract import Reader
from readers.targets.contract import Target

_REMEDY = (
    "reader processes cannot import it from there: put it into a module (a .py file) and import "
    "it, or use start_method='fork', before anything initialises CUDA"
)


def check_main() -> None:
    """Check that reader processes started by spawn or forkserver can import the main script.

    Without a guard, importing it would start further reader processes.

    Raises
    ------
    RuntimeError
        If it is not a file, e.g. ``python - < script.py``, or has no guard.
    """
    main = sys.modules["__main__"]
    script, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if script is None or (spec is not None and spec.name.endswith("__main__")):
        return  # multiprocessing does not import these
    other = "or use start_method='fork', before anything initialises CUDA"
    if not os.path.isfile(script):
        if spec is None:
            reason = f"reader processes import the main script, and {script!r} is not a file"
            raise RuntimeError(f"{reason}: save the script in a file, {other}")
    elif not _has_guard(script):
        raise RuntimeError(
            f"reader processes import {script} again, and would run all of it: put its code "
            f"below 'if __name__ == \"__main__\":', {other}"
        )


def check_sendable(*several: Reader | Target) -> None:
    """Check that processes started by spawn or forkserver can unpickle Readers and Targets.

    Raises
    ------
    TypeError
        If one cannot be pickled, or if one of its classes was defined in a notebook, in an
        interactive session, or in a script below ``if __name__ == "__main__":``.
    """
    for sent in several:
        _check_sendable(sent)


def _check_sendable(sent: Reader | Target) -> None:
    try:
        pickled = pickle.dumps(sent)
    except Exception as error:  # a __reduce__ may raise anything
        raise TypeError(
            f"{type(sent).__name__} cannot be sent to the reader processes: {error}: define its "
            "class at the top level of a module (a .py file), and keep settings, not open files"
        ) from error
    if b"__main__" not in pickled:
        return
    script = getattr(sys.modules["__main__"], "__file__", "")  # "<stdin>" is not a file
    for name in _names_of_main(sent):
        if not os.path.isfile(script):
            raise TypeError(f"{name} was defined in a notebook or a session, and {_REMEDY}")
        if name in _guarded_names(script):
            guard = 'if __name__ == "__main__":'
            raise TypeError(f"{name} is defined below '{guard}' of {script}, and {_REMEDY}")


def _names_of_main(value: Any) -> list[str]:
    """Return the names of the globals of ``__main__`` in a pickle."""
    # Protocol 2 writes module and name as one string.
    found = (arg for code, arg, _ in pickletools.genops(pickle.dumps(value, 2)) if arg is not None)
    texts = (arg.partition(" ") for arg in found if isinstance(arg, str))
    return [name for module, _, name in texts if module == "__main__" and name]


def _has_guard(script: str) -> bool:
    """Return whether a script compares ``__name__`` outside its functions and classes."""
    if (tree := _parsed(script)) is None:
        return True
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Compare) and "__name__" in ast.unparse(node):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)
    return False


def _guarded_names(script: str) -> set[str]:
    """Return the classes and functions that a script defines only when it is run itself."""
    if (tree := _parsed(script)) is None:
        return set()
    return {
        node.name
        for statement in tree.body
        if isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)
        for node in ast.walk(statement)
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }


def _parsed(script: str) -> ast.Module | None:
    """Return the syntax tree of a script; None for other files, such as zip or bytecode."""
    try:
        return ast.parse(Path(script).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
