"""Index.from_class_folders: labels and names of classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from readers import Index


@pytest.fixture
def split(tmp_path: Path) -> Path:
    """Folders train with classes a, b, c, and val without b."""
    for name in ("train/a/1.jpg", "train/b/2.jpg", "train/c/3.jpg", "val/a/4.jpg", "val/c/5.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def labels(index: Index) -> dict[str, list[Any]]:
    return index.table.drop_columns("path").to_pydict()


def test_labels_are_sorted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("b/2.jpg", "a/deep/1.PNG", "b/1.tiff"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".thumbnails").mkdir()
    index = Index.from_class_folders(tmp_path)
    [hidden] = caplog.messages
    assert hidden.endswith(f"{tmp_path}/.thumbnails/")
    assert labels(index) == {"label": [0, 1, 1], "class_name": ["a", "b", "b"]}
    names = ["a/deep/1.PNG", "b/1.tiff", "b/2.jpg"]
    assert index.table["path"].to_pylist() == [f"{tmp_path}/{name}" for name in names]


def test_folders_without_a_file_are_named(split: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As those after them have other labels than with a file there."""
    root = split / "val"
    (root / "ant").mkdir()
    (root / "b").mkdir()
    (root / "b" / "notes.txt").touch()
    assert Index.from_class_folders(root).classes == ("a", "c")
    left_out, unlabelled = caplog.messages
    assert left_out.endswith("1 .txt")
    assert unlabelled.startswith(f"{root}: ")
    assert "'ant', 'b'" in unlabelled
    assert unlabelled.endswith("classes=")
    caplog.clear()
    classes = ["a", "ant", "b", "c"]
    assert labels(Index.from_class_folders(root, classes=classes))["label"] == [0, 3]
    assert caplog.messages == [left_out]


@pytest.mark.parametrize("suffix", ["parquet", "arrow", None])
def test_a_folder_that_lacks_a_class_keeps_the_labels(split: Path, suffix: str | None) -> None:
    train = Index.from_class_folders(split / "train")
    if suffix is not None:
        train.save(split / f"train.{suffix}")
        train = Index.scan(split / f"train.{suffix}")
    for classes in (train, train.select([0]), train.classes, ["a", "b", "c"]):
        val = Index.from_class_folders(split / "val", classes=classes)
        assert labels(val) == {"label": [0, 2], "class_name": ["a", "c"]}
        assert val.classes == ("a", "b", "c")


@pytest.mark.parametrize(
    "classes", [("c", "b", "a", "none"), {"c": 0, "b": 1, "a": 2, "none": 3}.keys()]
)
def test_classes_in_an_order_of_ones_own(split: Path, classes: Any) -> None:
    index = Index.from_class_folders(split / "train", classes=classes)
    assert labels(index)["label"] == [2, 1, 0]
    assert index.classes == ("c", "b", "a", "none")


@pytest.mark.parametrize(
    ("classes", "error", "words"),
    [
        ("abc", TypeError, "classes.* 'abc'"),
        ({"a", "b", "c"}, TypeError, "classes.*sequence.*{"),
        ({"a": 1, "b": 0}, TypeError, "classes.*sequence"),
        (["a", "b", 1], TypeError, "classes.*names.*1"),
        (["a", "c", "a"], ValueError, "classes.*once.*'a', 'c', 'a'"),
        ([], ValueError, "classes.*names"),
        (Index.from_paths(["x"]), ValueError, "classes.*from_class_folders"),
        (["a", "d"], ValueError, "'c'.*2 classes 'a', "),
    ],
)
def test_classes_are_checked(split: Path, classes: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Index.from_class_folders(split / "val", classes=classes)


def test_metadata_of_others_is_kept(split: Path) -> None:
    index = Index.from_class_folders(split / "train")
    theirs = {**index.table.schema.metadata, b"mine": b"1"}
    index = Index(index.table.replace_schema_metadata(theirs))
    for name in "a.parquet", "a.arrow":
        index.save(split / name)
        loaded = Index.load(split / name)
        assert loaded.table.schema.metadata[b"mine"] == b"1"
        assert loaded.classes == ("a", "b", "c")
        assert loaded.select([2]).classes == ("a", "b", "c")
    assert Index.from_paths(["x"]).classes == ()


def test_a_file_beside_the_folders_is_named(split: Path) -> None:
    (split / "train/2.jpg").touch()
    with pytest.raises(ValueError, match=f"{split}/train: .*subfolder.*{split}/train/2.jpg"):
        Index.from_class_folders(split / "train")


def test_real_photographs(shared_data: Path) -> None:
    index = Index.from_class_folders(shared_data / "jpeg")
    names = index.table["class_name"].to_pylist()
    assert sorted(set(names))[:3] == ["100", "134", "182"]
    assert index.table["label"].to_pylist() == [sorted(set(names)).index(n) for n in names]


@pytest.mark.parametrize("names", [("train", "val"), ("Train", "test", "validation")])
def test_folders_that_look_like_parts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, names: tuple[str, ...]
) -> None:
    for name in names:
        (tmp_path / name / "cat").mkdir(parents=True)
        (tmp_path / name / "cat" / "a.jpg").touch()
    index = Index.from_class_folders(tmp_path)
    assert index.classes == tuple(sorted(names))
    [warned] = caplog.messages
    assert str(tmp_path / min(names)) in warned
    caplog.clear()
    Index.from_class_folders(tmp_path, classes=names)
    Index.from_class_folders(tmp_path / names[0])
    assert not caplog.messages
