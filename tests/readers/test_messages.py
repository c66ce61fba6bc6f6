from __future__ import annotations

import logging
import os
import pickle
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import ROOT

from readers import Index, ReadError
from readers.messages import printable


@given(st.text(st.characters(exclude_categories=())))
def test_nothing_unprintable_is_left(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    assert (shown == text) == text.isprintable()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/data/é 1.fits", "/data/é 1.fits"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("a\nrejected b", r"a\nrejected b"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("\udcff.jpg", r"\udcff.jpg"),
        ("\x9b31m", r"\x9b31m"),
    ],
)
def test_escapes(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_errors_show_nothing_raw() -> None:
    error = ReadError("/data/\x1b[31m.fits", "card '\x07'\nand \x1b[0m", row=3)
    assert str(error) == r"/data/\x1b[31m.fits (row 3): card '\x07' and \x1b[0m"
    assert error.path == "/data/\x1b[31m.fits"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


BAD = [b"\xff\xfe.jpg", b"a\x80.fits"]


def archive(folder: Path, names: list[bytes]) -> None:
    (folder / "good").mkdir()
    (folder / "good" / "1.jpg").touch()
    for name in names:
        with open(os.path.join(os.fsencode(folder), name), "wb"):
            pass


def test_names_that_are_not_utf8_are_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    archive(tmp_path, BAD)
    os.mkdir(os.path.join(os.fsencode(tmp_path), b"\xe9"))
    for data, names in (
        (tmp_path, [b"a\x80.fits", b"\xe9/", b"\xff\xfe.jpg"]),
        (f"{tmp_path}/**", [b"a\x80.fits", b"\xff\xfe.jpg"]),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            index = Index.scan(data)
        assert index.table["path"].to_pylist() == [f"{tmp_path}/good/1.jpg"]
        [told] = caplog.messages
        assert f"{len(names)} files" in told
        paths = [re.escape(repr(os.path.join(os.fsencode(tmp_path), name))) for name in names]
        assert re.search(f"the first: ({'|'.join(paths)}): .*UTF-8, rename", told)


def test_a_folder_of_which_nothing_is_left(tmp_path: Path) -> None:
    archive(tmp_path, BAD)
    (tmp_path / "good" / "1.jpg").unlink()
    with pytest.raises(FileNotFoundError, match="left out: 2 files"):
        Index.scan(tmp_path)


def test_a_list_of_paths_must_be_utf8() -> None:
    with pytest.raises(ValueError, match=r"b'/a/\\xff.jpg'.*UTF-8, rename"):
        Index.from_paths([os.fsdecode(b"/a/\xff.jpg")])


def of_url(tmp_path: Path, url: str) -> list[Callable[[], Index]]:
    (tmp_path / "catalogue.csv").write_text(f"path,label\n/a.fits,1\n{url},2\n")
    Index(pa.table({"path": ["/a.fits", url]})).save(tmp_path / "index.parquet")
    return [
        lambda: Index.scan(["/a.fits", url]),
        lambda: Index.from_paths(["/a.fits", url]),
        lambda: Index.from_csv(tmp_path / "catalogue.csv"),
        lambda: Index.load(tmp_path / "index.parquet"),
    ]


@pytest.mark.parametrize(
    "url", ["s3://bucket/a b?#.fits", "gs://b/a@b.fits", "https://host:8080/a%20b.fits"]
)
def test_urls_stay_as_they_are(tmp_path: Path, url: str) -> None:
    for make in of_url(tmp_path, url)[1:]:  # the first requests the object
        assert make().path(1) == url


SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("file:///a.fits", "file:// .*s3, gs, http, https, or a path"),
        ("s3:///a.fits", "s3:///a.fits.*s3://bucket/key"),
        ("s3://", "s3://.*s3://bucket/key"),
        (f"https://me:{SECRET}@host/a.fits", "https://host/a.fits.*password"),
        (f"https://host/a.fits?X-Amz-Signature={SECRET}", "password or a signature"),
        ("https://host/a.fits?b=c", "https://host/path"),
        (f"s3://{SECRET}@bucket/a.fits", "s3://bucket/key"),
        ("s3://bucket/" + 20_000 * "a", r"aaa\.\.\..* 20012 bytes.*16384"),
        (f"https://me:{20_000 * SECRET}@host/a", r"https://host/a\.\.\..* 120018 bytes"),
    ],
)
def test_other_urls_are_refused(tmp_path: Path, url: str, words: str) -> None:
    ways: list[Callable[[], object]] = [*of_url(tmp_path, url), lambda: Index.scan(url)]
    ways += [lambda: Index.from_tar(url), lambda: Index.from_tar([url])]
    for way in ways:
        with pytest.raises(ValueError, match=words) as caught:
            way()
        assert SECRET not in str(caught.value)


def test_a_name_with_a_colon_is_not_a_url(tmp_path: Path) -> None:
    (tmp_path / "a:b").touch()
    assert Index.scan([f"{tmp_path}/a:b"]).path(0) == f"{tmp_path}/a:b"


def test_extras_that_messages_name_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    files = [*ROOT.glob("dali_pipelines/**/*.py"), *ROOT.glob("readers/**/*.py")]
    sources = [file.read_text() for file in files]
    named = {name for text in sources for name in re.findall(r"install\(['\"](.+?)['\"]\)", text)}
    assert {"cli", "remote"} <= named <= set(project["optional-dependencies"])
    assert not [text for text in sources if "'dali-pipelines[" in text]
