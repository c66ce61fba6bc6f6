from __future__ import annotations

import logging
import os
import re
import tarfile
from glob import glob
from os.path import isfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers import Index
from readers.index.scan import find_files

# Characters before and behind the slash, in and beyond ASCII.
parts = st.text("-.!0aB_é💥 ", min_size=1, max_size=4).filter(lambda name: name.strip("."))
trees = st.lists(st.lists(parts, min_size=1, max_size=4), max_size=12)


@given(trees)
def test_paths_come_sorted(tmp_path_factory: pytest.TempPathFactory, tree: list[list[str]]) -> None:
    root = tmp_path_factory.mktemp("archive")
    for *folders, name in tree:
        folder = root.joinpath(*folders)
        if not any(above.is_file() for above in (folder, *folder.parents)):
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / f"{name}.fits").is_dir():
                (folder / f"{name}.fits").touch()
    (root / "first.fits").touch()
    files = (os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names)
    expected = sorted(file for file in files if "/." not in file.removeprefix(str(root)))
    assert list(find_files(str(root), (".fits",))) == expected


def test_names_are_not_held_longer_than_needed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "1.fits").touch()
    found = find_files(str(tmp_path), (".fits",))
    assert next(found) == str(tmp_path / "a" / "1.fits")
    (tmp_path / "b" / "2.fits").touch()  # not looked at yet
    assert list(found) == [str(tmp_path / "b" / "2.fits")]


def test_a_folder_that_cannot_be_listed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.fits").touch()
    scandir = os.scandir

    def refuse(folder: Any) -> Any:
        if folder.endswith("/b/"):
            raise PermissionError(13, "Permission denied", folder)
        return scandir(folder)

    monkeypatch.setattr("os.scandir", refuse)
    with caplog.at_level(logging.WARNING):
        found = list(find_files(str(tmp_path), (".fits",)))
    assert found == [f"{tmp_path}/a/1.fits", f"{tmp_path}/c/1.fits"]
    [told] = caplog.messages
    assert re.search(f"Permission denied.*{tmp_path}/b/", told)
    with pytest.raises(FileNotFoundError, match="left out: 1 "):  # not: it is empty
        list(find_files(f"{tmp_path}/b", (".fits",)))


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], "the folder is empty"),
        (["a.txt"], "$"),
        (["a.txt", "b.txt", "sub/b.jpg"], r"1 file .*\.jpg.*jpeg_pipeline"),
        (["a.png", "b.JPG", "sub/b.jpg"], r"2 files .*\.jpg.*jpeg_pipeline"),
        (["a.fits.gz"], r"1 file .*\.fits\.gz.*fits_pipeline"),
        ([".a.fits"], r"1 .*dot.*/\.a\.fits$"),
    ],
)
def test_other_files_of_the_folder_are_named(tmp_path: Path, names: list[str], words: str) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(FileNotFoundError, match=rf"^{tmp_path}: .*\.fits, \.fit.*{words}"):
        list(find_files(str(tmp_path), (".fits", ".fit")))


def test_files_left_out_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = ["a.fits", "b.jpg", "c.JPG", "d.fits.bak", "sub/e.fits.gz", "sub/README", "no/f.jpg"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "g.\x1b[31m").touch()  # nothing of it must reach a terminal
    list(find_files(str(tmp_path), (".fits",)))
    [told] = caplog.messages
    assert re.search(f"{tmp_path}: 7 .*: 3 .jpg, 2 of no suffix, 1 .bak, 1 .fits.gz$", told)
    caplog.clear()
    for number in range(8):
        (tmp_path / f"h.{number}").touch()
    list(find_files(str(tmp_path), (".fits",)))
    [told] = caplog.messages
    assert re.search("15 .*: 3 .jpg, 2 of no suffix, 1 .0, 1 .1, 1 .2, 7 more kinds$", told)
    caplog.clear()
    list(find_files(str(tmp_path / "sub" / "*"), (".fits",)))
    assert not caplog.messages


HIDDEN = [".ipynb_checkpoints/a.jpg", "cat/._a.jpg", "cat/.a.jpg.Xy12", "cat/.old/a.jpg"]
"""Names that Jupyter, macOS, rsync and users leave in folders."""


def archive(tmp_path: Path) -> str:
    root = tmp_path / ".cache"  # given by name, it is searched
    for name in [*HIDDEN, "cat/a.jpg", "dog/a.jpg"]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return str(root)


def test_hidden_files_and_folders_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = archive(tmp_path)
    index = Index.from_class_folders(root)
    assert index.classes == ("cat", "dog")
    assert index.table["path"].to_pylist() == [f"{root}/cat/a.jpg", f"{root}/dog/a.jpg"]
    [told] = caplog.messages
    assert re.search(f"4 files and folders.*dot.*{root}/.ipynb_checkpoints/$", told)


@pytest.mark.parametrize(
    "pattern", ["**/*.jpg", "*/*", ".*/*.jpg", "*/.*", "cat/.old/*.jpg", "**/.old/**", "c*/.a*"]
)
def test_globs_find_what_those_of_python_do(tmp_path: Path, pattern: str) -> None:
    """Hidden names where the pattern has their dot, and no others."""
    root = archive(tmp_path)
    files = sorted(file for file in glob(f"{root}/{pattern}", recursive=True) if isfile(file))
    assert Index.scan(f"{root}/{pattern}").table["path"].to_pylist() == files
    assert Index.from_paths(f"{root}/{name}" for name in HIDDEN).table.num_rows == len(HIDDEN)


def test_a_folder_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "1.jpg").touch()
    listed = []
    scandir = os.scandir

    def noted(folder: str) -> Any:
        listed.append(folder)
        return scandir(folder)

    monkeypatch.setattr("os.scandir", noted)
    with pytest.raises(FileNotFoundError, match=r"1 file ends in \.jpg"):
        list(find_files(str(tmp_path), (".fits",)))
    assert listed == [f"{tmp_path}/", f"{tmp_path}/sub/"]


def test_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "1.fits").touch()
    (tmp_path / "again").symlink_to(tmp_path / "real")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "real" / "up").symlink_to(tmp_path)
    (tmp_path / "gone.fits").symlink_to(tmp_path / "nothing")
    # Of two ways to a folder, the first by name.
    found = list(find_files(str(tmp_path), (".fits",)))
    assert found == [f"{tmp_path}/again/1.fits", f"{tmp_path}/gone.fits"]


@pytest.mark.parametrize("slash", ["", "/"])
def test_the_root_folder_is_written_as_one_slash(tmp_path: Path, slash: str) -> None:
    (tmp_path / "1.fits").touch()
    assert list(find_files(f"{tmp_path}{slash}", (".fits",))) == [f"{tmp_path}/1.fits"]


def test_images_that_pillow_decodes_are_found(tmp_path: Path) -> None:
    """In folders, folders of classes and tars."""
    names = ["a.gif", "b.TGA", "c.avif", "d.jpg"]
    folder = tmp_path / "data" / "cats"
    folder.mkdir(parents=True)
    with tarfile.open(tmp_path / "data.tar", "w") as tar:
        for name in names:
            (folder / name).write_bytes(b"image")
            tar.add(folder / name, name)
    for index in (Index.scan(folder.parent), Index.from_class_folders(folder.parent)):
        assert [Path(index.path(row)).name for row in range(len(index))] == names
    assert len(Index.scan(tmp_path / "data.tar")) == len(names)
