"""Readers and Targets that cannot be imported: in notebooks, sessions, and below the guard."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from types import ModuleType

import jobs
import pytest

from dali_pipelines import (
    ChannelsReader,
    Index,
    Loader,
    NpyReader,
    PipelineConfig,
    npy_pipeline,
    reader_pipeline,
)
from dali_pipelines.graph.decode import decode_array
from dali_pipelines.runtime.processes.importable import check_main

pytestmark = pytest.mark.slow

PROGRAM = """
from dali_pipelines import ChannelsReader, Index, Mask, NpyReader, PipelineConfig, reader_pipeline
from dali_pipelines.graph.decode import decode_array

class Mine(NpyReader):
    pass

class MineToo(Mask):
    pass

def check(reader, start_method, **settings):
    index = Index.from_paths(["/nowhere/0.npy"]).with_column("mask", ["/nowhere/1.npy"])
    config = PipelineConfig(batch_size=2, start_method=start_method, **settings)
    try:
        reader_pipeline(index, reader, decode_array, config)
    except TypeError as error:
        print(error)
    else:
        print("accepted")
"""

CHECKS = """
check(Mine(), "forkserver")
check(ChannelsReader(Mine(), ("a", "b")), "forkserver")
check(NpyReader(), "forkserver", targets={"mask": MineToo("mask")})
"""

REFUSED = "and reader processes cannot import it from there: put it into a module (a .py file) and "


def test_a_class_of_a_notebooks_cell() -> None:
    """A notebook's __main__ has no file, as that of a session; forked processes need none."""
    program = PROGRAM + CHECKS + 'check(Mine(), "fork")\n'
    found = jobs.run([sys.executable, "-c", program])
    assert found.returncode == 0, found.stderr
    *lines, forked = found.stdout.splitlines()
    assert len(lines) == 3
    for name, line in zip(("Mine", "Mine", "MineToo"), lines, strict=True):
        assert line.startswith(f"{name} was defined in a notebook or a session, {REFUSED}")
    assert forked == "accepted"


def test_classes_above_and_below_the_guard_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    mine = "class Mine(NpyReader):\n    pass\nclass MineToo(Mask):\n    pass\n"
    guarded = f'check(Above(), "forkserver")\n{mine}{CHECKS}'
    below = textwrap.indent(guarded, "    ")
    script.write_text(f'{PROGRAM.replace("Mine", "Above")}\nif __name__ == "__main__":\n{below}')
    found = jobs.run([sys.executable, str(script)])
    assert found.returncode == 0, found.stderr
    above, *lines = found.stdout.splitlines()
    assert above == "accepted"
    assert len(lines) == 3
    for name, line in zip(("Mine", "Mine", "MineToo"), lines, strict=True):
        assert line.startswith(f"{name} is defined below 'if __name__ == \"__main__\":' of ")
        assert f"{script}, {REFUSED}" in line


def test_a_class_that_a_local_function_made(npy_index: Index) -> None:
    class Local(NpyReader):
        pass

    for reader in Local(), ChannelsReader(Local(), ("a", "b")):
        with pytest.raises(
            TypeError, match=r"Reader cannot be sent|Local cannot be sent to the reader processes: "
        ):
            reader_pipeline(npy_index, reader, decode_array, PipelineConfig(batch_size=2))


@pytest.mark.parametrize(
    ("name", "text", "refused"),
    [
        (
            "script.py",
            "train()",
            "script.py again, and would run all of it: put its code below",
        ),
        ("<stdin>", None, "'<stdin>' is not a file: save the script in a file"),
        ("script.py", "log = getLogger(__name__)\ntrain()", "script.py again"),
        (
            "script.py",
            "def main():\n    if __name__ == '__main__': pass\nmain()",
            "script.py again",
        ),
        ("script.py", "if __name__ == '__main__': train()", None),
        ("script.py", "try:\n    '__main__' == __name__ and train()\nfinally: pass", None),
        ("script.py", "\0 bytecode", None),
        (None, None, None),  # of a session, of a notebook, or python -c
    ],
)
def test_main_is_what_readers_can_import(
    npy_index: Index,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str | None,
    text: str | None,
    refused: str | None,
) -> None:
    main = ModuleType("__main__")
    if name is not None:
        main.__file__ = str(tmp_path / name)
    if text is not None:
        (tmp_path / "script.py").write_text(text)
    monkeypatch.setitem(sys.modules, "__main__", main)
    if refused is None:
        check_main()
        return
    for start_method in "forkserver", "spawn":
        loader = Loader(npy_pipeline, npy_index, batch_size=2, start_method=start_method)
        with pytest.raises(RuntimeError) as caught:
            loader.start()
        assert refused in str(caught.value).replace(f"{tmp_path}/", "")


def test_a_script_without_a_guard(npy_index: Index, tmp_path: Path) -> None:
    """The last line says what to do, and no reader process has printed another."""
    script = tmp_path / "script.py"
    script.write_text(
        "from dali_pipelines import Index, Loader, npy_pipeline\n"
        f"index = Index.from_paths([{npy_index.path(0)!r}])\n"
        "list(Loader(npy_pipeline, index, batch_size=1, devices=[None]))\n"
    )
    ended = jobs.run([sys.executable, str(script)])
    assert ended.stderr.count("Traceback") == 1
    assert f"import {script} again" in ended.stderr.splitlines()[-1]
