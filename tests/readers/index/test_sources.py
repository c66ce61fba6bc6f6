"""Index.scan: the paths that a folder, a glob, a list or a file of rows stands for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from readers import Index

FILES = ["b.fits", "a.FITS", "sub/c.fits.gz", "sub/deep/d.Fz", "sub/e.jpg", "f.npy", "notes.txt"]
IMAGES = ["a.FITS", "b.fits", "f.npy", "sub/c.fits.gz", "sub/deep/d.Fz", "sub/e.jpg"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of FILES, which is the working directory."""
    root = tmp_path / "archive"
    for name in FILES:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (root / "empty").mkdir()
    (tmp_path / "other/tars").mkdir(parents=True)
    for name in ("tars/a.tar", "i.csv", "i.parquet"):
        (tmp_path / "other" / name).touch()
    monkeypatch.chdir(root)
    return root


def names(index: Index, folder: Path) -> list[str]:
    """Return the paths of the rows, relative to the folder."""
    return [path.removeprefix(f"{folder}/") for path in index.table["path"].to_pylist()]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ("", IMAGES),
        ("sub/deep", ["sub/deep/d.Fz"]),
        ("*.fits", ["b.fits"]),
        ("**/*.fits*", ["b.fits", "sub/c.fits.gz"]),
        ("**/d.Fz", ["sub/deep/d.Fz"]),
        ("sub/[ce].*", ["sub/c.fits.gz", "sub/e.jpg"]),
        ("**/notes.txt", ["notes.txt"]),
        ("notes.txt", ["notes.txt"]),
    ],
)
@pytest.mark.parametrize("kind", [str, Path])
def test_folders_globs_and_files(
    folder: Path, data: str, found: list[str], kind: Callable[[str], Any]
) -> None:
    assert names(Index.scan(kind(f"{folder}/{data}")), folder) == found


def test_suffixes_of_a_folder(folder: Path) -> None:
    found = Index.scan(folder, suffixes=(".fits", ".fz"))
    assert names(found, folder) == ["a.FITS", "b.fits", "sub/deep/d.Fz"]


def test_ranges_of_numbers(folder: Path) -> None:
    for name in ("n08.fits", "n09.fits", "n10.fits", "{08..09}.fits"):
        (folder / name).touch()
    assert names(Index.scan("n{09..10}.fits"), folder) == ["n09.fits", "n10.fits"]
    assert names(Index.scan("{08..09}.fits"), folder) == ["{08..09}.fits"]


def test_a_file_whose_name_is_a_pattern(folder: Path) -> None:
    (folder / "x[1]*.fits").touch()
    assert names(Index.scan("x[1]*.fits"), folder) == ["x[1]*.fits"]


def test_relative_paths_become_absolute(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder / "sub")
    for data in ("../b.fits", "../b.*", ["../b.fits"], iter(["../b.fits"])):
        assert names(Index.scan(data), folder) == ["b.fits"]
    assert names(Index.scan("deep"), folder) == ["sub/deep/d.Fz"]


@pytest.mark.parametrize("kind", [list, tuple, iter, lambda names: (Path(n) for n in names)])
def test_an_iterable_keeps_its_order(kind: Callable[..., Any]) -> None:
    given = ["/z.fits", "/a.fits", "/z.fits", "/m é.fits"]
    assert Index.scan(kind(given)).table["path"].to_pylist() == given


def test_a_list_of_folders_globs_and_files(folder: Path) -> None:
    odd, listed = folder / "x[1].fits", folder / "2024"
    odd.touch()
    listed.touch()
    deep = folder / "sub/deep"
    data: list[str | Path] = [deep, "sub/*.gz", odd, listed, "b.fits", f"{deep}/", "b.fits"]
    expected = ["sub/deep/d.Fz", "sub/c.fits.gz", odd.name, listed.name, "b.fits"]
    assert names(Index.scan(iter(data)), folder) == [*expected, "sub/deep/d.Fz", "b.fits"]
    assert names(Index.scan([folder, folder], suffixes=(".npy",)), folder) == ["f.npy"] * 2


def test_index_file_and_catalogue(folder: Path) -> None:
    index = Index.scan(folder)
    index.save("index.parquet")
    assert Index.scan("index.parquet").table == index.table
    Path("catalogue.csv").write_text("path,label\nb.fits,3\n")
    assert names(Index.scan("catalogue.csv"), folder) == ["b.fits"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("nowhere", "nowhere: no such folder or file.*csv"),
        ("nowhere.parquet", "nowhere.parquet: no such folder or file"),
        ("n{10..11}.fits", "n10.fits: no such folder or file"),
        ("nowhere/*.fits", "no file matches this pattern"),
        ("su*", "no file matches this pattern"),  # a folder is not a file
        ("empty", r"no file in this folder .*\.fits, \.fit.*empty"),
        (["b.fits", "nowhere"], "nowhere: no such folder or file"),
        (["b.fits", "no*.fits"], "no file matches"),
        (["b.fits", "empty"], "the folder is empty"),
        (["b.fits", "../other/tars"], "from_tar"),
    ],
)
def test_missing_files_are_named(data: Any, words: str) -> None:
    with pytest.raises(FileNotFoundError, match=words):
        Index.scan(data)


def test_files_of_other_suffixes_are_named(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"\.tif, \.png; 2 files .*\.fits.*fits_pipeline"):
        Index.scan(folder, suffixes=(".tif", ".png"))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "last",
    [*(f"../other/{name}" for name in ("i.parquet", "i.csv", "tars/a.tar"))]
    + [f"s3://bucket/{name}" for name in ("prefix/", "*", "i.csv")],
)
def test_index_files_and_tars_are_refused_among_several(last: str) -> None:
    with pytest.raises(ValueError, match="concat"):
        Index.scan(["b.fits", last])
