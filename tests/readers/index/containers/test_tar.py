"""Tables of tars against tarfile and webdataset, which also write them."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from image_files import pillow
from tar_files import packed
from webdataset import TarWriter
from webdataset.tariterators import group_by_keys, tar_file_expander

from readers import Index
from readers.index.containers.forward import ForwardReader
from readers.index.containers.kinds import Tar
from readers.index.containers.tables import container_paths, containers_table
from readers.index.containers.tar import members
from readers.index.skipped import Skipped
from readers.places.opener import LOCAL


def jpeg(seed: int, side: int = 16) -> bytes:
    return pillow(np.random.default_rng(seed).integers(0, 256, (side, side, 3), np.uint8))


def pack(path: Path, named: Iterable[tuple[str, bytes]], format: int = tarfile.GNU_FORMAT) -> str:
    path.write_bytes(packed(named, format))
    return str(path)


def rows(path: str | Path, **settings: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = containers_table(Tar(**settings), str(path)).to_pylist()
    return found


def listed(path: str) -> list[tuple[str, int, int]]:
    """Return the members of a tar as tarfile finds them."""
    with tarfile.open(path) as tar:
        return [
            (os.fsencode(each.name).decode(errors="backslashreplace"), each.offset_data, each.size)
            for each in tar
            if each.isreg()
        ]


def found(path: str) -> list[tuple[str, int, int]]:
    with LOCAL.at(path) as place:
        return [(*member,) for member in members(ForwardReader(place))]


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@settings(max_examples=40)
@given(data=st.data())
def test_members_are_those_of_tarfile(
    format: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = st.text("ab.é/ ", min_size=1, max_size=20).map(lambda name: f"x{name}x")
    if format != tarfile.USTAR_FORMAT:
        text |= st.integers(80, 300).map("y".__mul__)
    named = data.draw(st.lists(st.tuples(text, st.binary(max_size=2000)), max_size=8))
    path = pack(tmp_path_factory.mktemp("tar") / "a.tar", named, format)
    assert found(path) == listed(path)


def test_long_names_links_folders_and_global_records(tmp_path: Path) -> None:
    path, of_all = tmp_path / "a.tar", {"comment": "of all"}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT, pax_headers=of_all) as tar:
        for kind, name in (
            (tarfile.DIRTYPE, "folder"),
            (tarfile.SYMTYPE, "link"),
            (tarfile.LNKTYPE, "hard"),
            (tarfile.REGTYPE, "folder/" + "n" * 150 + "é.jpg"),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "l" * 150
            info.size = 700 if kind == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(bytes(700)))
    assert found(str(path)) == listed(str(path))
    assert len(found(str(path))) == 1


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_of_over_8_gib(format: Literal[1, 2], tmp_path: Path) -> None:
    path = tmp_path / "large.tar"
    with path.open("wb") as file:  # a file with a hole, which takes no room
        for name, nbytes in (("a.fits", (8 << 30) + 5), ("b.fits", 3)):
            info = tarfile.TarInfo(name)
            info.size = nbytes
            file.write(info.tobuf(format))
            file.seek(-(-nbytes // 512) * 512, 1)
        file.write(bytes(1024))
    assert found(str(path)) == listed(str(path))
    assert [row["nbytes"] for row in rows(path)] == [(8 << 30) + 5, 3]


def sample(number: int) -> dict[str, Any]:
    return {
        "__key__": f"sub/{number:04}",
        "jpg": jpeg(number),
        "seg.png": b"png of " + bytes([number]),
        "cls": number * 7,
        "txt": f"number {number}",
        "json": {"width": number, "ratio": number / 4, "name": f"é{number}", "boxes": [[1, 2]]},
    }


def test_samples_are_those_of_webdataset(tmp_path: Path, content: Callable[..., bytes]) -> None:
    for shard in range(2):
        with TarWriter(str(tmp_path / f"{shard:02}.tar")) as writer:
            for number in range(shard * 5, shard * 5 + 5):
                writer.write(sample(number))
    expected = []
    for shard in range(2):
        with open(tmp_path / f"{shard:02}.tar", "rb") as file:
            expanded = tar_file_expander([{"url": "", "stream": file}])
            expected += list(group_by_keys(expanded))
    made = rows(f"{tmp_path}/{{00..01}}.tar")
    assert made == rows(tmp_path) == rows(tmp_path / "*.tar")
    assert len(made) == len(expected) == 10
    for number, (row, other) in enumerate(zip(made, expected, strict=True)):
        assert row["key"] == other["__key__"]
        assert content(row) == other["jpg"]
        assert content(row, "seg_png_") == other["seg.png"]
        assert row["cls"] == int(other["cls"]) == number * 7
        assert row["txt"] == other["txt"].decode()
        fields = json.loads(other["json"])
        assert [row[f"json_{name}"] for name in ("width", "ratio", "name")] == [
            fields[name] for name in ("width", "ratio", "name")
        ]
        assert json.loads(row["json_boxes"]) == [[1, 2]]
        assert row["file_bytes"] == Path(row["path"]).stat().st_size


def test_members_of_a_sample_need_not_be_neighbours(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    named = [("a.JPG", b"1"), ("b.jpg", b"22"), ("b.cls", b"5\n"), ("a.cls", b"x"), ("c.cls", b"3")]
    named += [("__info__/a.json", b"{"), ("._a.jpg", b""), ("none", b""), ("a.mp4", b"")]
    named += [("._a.cls", b"\0\5\x16\7\xff")]  # not UTF-8, which is nobody's fault
    path = pack(tmp_path / "a.tar", named)
    assert [(row["key"], row["nbytes"], row["cls"]) for row in rows(path)] == [
        ("a", 1, "x"),
        ("b", 2, "5"),
    ]
    for words in (
        r"1 samples .*without an image.*: c with \.cls",
        "3 members .*dot",
        "neither images nor texts.*.mp4",
    ):
        assert re.search(words, caplog.text)


def test_a_key_with_a_dot_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = pack(tmp_path / "a.tar", [("a.jpg", b"1"), ("b.v2.jpg", b"22")])
    assert [row["key"] for row in rows(path)] == ["a"]
    assert re.search(r"first: b with \.v2\.jpg: .*first dot", caplog.text)


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_links_have_the_bytes_of_their_target(
    format: int, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: Callable[..., bytes]
) -> None:
    """As ``tarfile`` extracts them; a label is not lost with its image."""
    long = "n" * 120
    with tarfile.open(tmp_path / "a.tar", "w", format=format) as tar:
        for name, kind, is_of in (
            ("./x/1.jpg", tarfile.SYMTYPE, f"../y/{long}.jpg"),
            (f"./y/{long}.jpg", tarfile.REGTYPE, "one"),
            ("./y/0.cls", tarfile.REGTYPE, "7"),
            ("./x/1.cls", tarfile.LNKTYPE, "./y/0.cls"),
            ("./x/2.jpg", tarfile.LNKTYPE, f"./y/{long}.jpg"),
            ("./x/2.txt", tarfile.REGTYPE, "two"),
            ("./x/3.jpg", tarfile.SYMTYPE, "/elsewhere/3.jpg"),
        ):
            info = tarfile.TarInfo(name)
            info.type = kind
            data = is_of.encode() if kind == tarfile.REGTYPE else b""
            info.linkname, info.size = "" if data else is_of, len(data)
            tar.addfile(info, io.BytesIO(data))
    found = {row.pop("key"): row for row in rows(tmp_path / "a.tar")}
    assert found.keys() == {f"./y/{long}", "./x/1", "./x/2"}
    with tarfile.open(tmp_path / "a.tar") as tar:
        for key, row in found.items():
            image = tar.extractfile(f"{key}.jpg")
            assert image is not None
            assert content(row) == image.read() == b"one"
    labels = [(found[f"./x/{number}"]["cls"], found[f"./x/{number}"]["txt"]) for number in (1, 2)]
    assert labels == [(7, None), (None, "two")]
    assert "1 links" in caplog.text
    assert "./x/3.jpg" in caplog.text


def test_which_member_is_the_image(tmp_path: Path) -> None:
    path = pack(tmp_path / "a.tar", [("a.png", b"p"), ("a.jpg", b"jj"), ("a.left.jpg", b"lll")])
    [row] = rows(path)
    assert (row["nbytes"], row["png_nbytes"], row["left_jpg_nbytes"]) == (2, 1, 3)
    [row] = rows(path, image="left.jpg")
    assert (row["nbytes"], row["png_nbytes"], row["jpg_nbytes"]) == (3, 1, 2)


def test_names_with_dots_are_samples_of_their_own(tmp_path: Path) -> None:
    names = [f"aia.lev1.171A_2014-01-01T00_{n:02}_11.34Z.image_lev1.fits" for n in range(3)]
    path = pack(tmp_path / "a.tar", [(name, b"x") for name in names])
    assert [row["key"] for row in rows(path)] == [name.removesuffix(".fits") for name in names]


def test_columns_of_several_tars(tmp_path: Path) -> None:
    pack(tmp_path / "0.tar", [("a.jpg", b"1"), ("a.cls", b"1"), ("a.json", b'{"x": 1, "y": "t"}')])
    pack(tmp_path / "1.tar", [("b.jpg", b"1"), ("b.cls", b"w"), ("b.json", b'{"x": 1.5, "y": 2}')])
    pack(tmp_path / "2.tar", [("c.jpg", b"1"), ("c.seg.png", b"2"), ("c.json", b'{"x": null}')])
    made = rows(tmp_path)
    assert [row["cls"] for row in made] == ["1", "w", None]
    assert [row["json_x"] for row in made] == [1.0, 1.5, None]
    assert [row["json_y"] for row in made] == ["t", "2", None]
    assert [row["seg_png_path"] for row in made] == [None, None, str(tmp_path / "2.tar")]


def wds2idx(path: Path, named: Iterable[tuple[str, int, int]]) -> None:
    """Write what NVIDIA's wds2idx writes, version 1.2."""
    samples: dict[str, list[str]] = {}
    for name, offset, nbytes in named:
        key, _, ext = name.partition(".")
        samples.setdefault(key, []).append(f"{ext} {offset} {nbytes} {name}")
    lines = [f"v1.2 {len(samples)}", *map(" ".join, samples.values())]
    path.write_text("\n".join(lines) + "\n")


def test_index_file_of_wds2idx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = [(f"{n}.{ext}", bytes(n + 9)) for n in range(50) for ext in ("jpg", "cls")]
    path = pack(tmp_path / "a.tar", named)
    expected = rows(path)
    wds2idx(tmp_path / "a.idx", listed(path))
    assert rows(path) == expected
    wds2idx(tmp_path / "a.idx", listed(path)[:-2])
    with pytest.raises(ValueError, match=r"a\.idx: .*out of date.*'49\.jpg'.*delete"):
        rows(path)
    pack(tmp_path / "b.tar", named[10:])
    wds2idx(tmp_path / "a.idx", listed(str(tmp_path / "b.tar")))
    with pytest.raises(ValueError, match=r"out of date.*'5\.jpg'.*512"):
        rows(path)
    for damaged in ("", "v1.2 7\n", "v1.2 1\njpg x 5 a.jpg\n"):
        (tmp_path / "a.idx").write_text(damaged)
        if damaged:
            with pytest.raises(ValueError, match="out of date or damaged"):
                rows(path)
        else:
            assert rows(path) == expected
    (tmp_path / "a.idx").write_text("v1.1 1\njpg 512 9\n")  # has no names
    assert rows(path) == expected


TWO = [("a.jpg", bytes(1000)), ("b.jpg", bytes(1000))]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda whole: whole[:0], "cut off"),
        (lambda whole: whole[:100], "cut off"),
        (lambda whole: whole[:1000], "cut off.*'a.jpg' ends at 1512, the file at 1000"),
        (lambda _: b"x" * 2000, "not a tar"),
        (lambda whole: whole + whole, "end mark.*--concatenate"),
        (lambda _: b"\x1f\x8b" + bytes(600), "gzip.*gunzip"),
    ],
)
def test_wrong_tars(tmp_path: Path, change: Callable[[bytes], bytes], words: str) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(change(Path(pack(path, TWO)).read_bytes()))
    with pytest.raises(ValueError, match=rf"a\.tar: .*{words}"):
        rows(path)


def test_wrong_members(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    pack(path, [("a.jpg", b"1"), ("A.jpg", b"2"), ("a.jpg", b"3")])
    with pytest.raises(ValueError, match=r"'a\.jpg', at byte 512 and 2560"):
        rows(path)
    pack(path, [("a.cls", b"1")])
    with pytest.raises(ValueError, match=r"1 tar files .*no image"):
        rows(path)
    pack(path, [("a.jpg", b"1"), ("b.jpg", b"2")])
    with pytest.raises(ValueError, match=r"2 .*jpeg_pipeline.*first: a with \.jpg; .*\.fits$"):
        Index.scan(path, suffixes=(".fits",))
    pack(path, [("a.jpg", b"1"), ("a.x.png", b"2"), ("a.x_png", b"3"), ("a.x-png", b"3")])
    assert rows(path)[0]["x_png_nbytes"] == 1
    with pytest.raises(FileNotFoundError):
        container_paths(Tar(), str(tmp_path / "none.tar"))


@pytest.mark.parametrize("shards", [1, 2])
def test_long_integers_among_floats_keep_their_value(shards: int, tmp_path: Path) -> None:
    fields = [b'{"id": %d, "z": 2, "n": [1]}' % (2**53 + 1), b'{"id": 0.5, "z": 0.5, "n": 0.5}']
    for shard in range(shards):
        chosen = fields[shard::shards]
        named = (
            (f"{n}.{e}", t)
            for n, text in enumerate(chosen)
            for e, t in (("jpg", b"1"), ("json", text))
        )
        pack(tmp_path / f"{shard}.tar", named)
    made = rows(tmp_path)
    assert [row["json_id"] for row in made] == [str(2**53 + 1), "0.5"]
    assert [row["json_z"] for row in made] == [2.0, 0.5]


@pytest.mark.parametrize(
    ("ext", "bad"),
    [
        ("json", b'{"label": 1'),
        ("json", b"\xff"),
        ("json", b'{"label": "\\ud800"}'),
        ("json", b"[" * 20_000),
        ("txt", b"\xff\xfe"),
        ("cls", b"\xff"),
    ],
)
def test_a_sample_of_bad_text_is_left_out_and_named(
    ext: str, bad: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = b'{"label": 1}' if ext == "json" else b"1"
    texts = [good, bad, good]
    for shard in "01":
        named = ((f"{n}.{e}", t) for n in range(3) for e, t in (("jpg", b"1"), (ext, texts[n])))
        pack(tmp_path / f"{shard}.tar", named)
    skipped = Skipped()
    made = containers_table(Tar(), str(tmp_path), skipped=skipped).to_pylist()
    assert [row["key"] for row in made] == ["0", "2"] * 2
    assert all(str(row["json_label" if ext == "json" else ext]) == "1" for row in made)
    assert [name for name, _ in skipped.rejected] == [f"{tmp_path}/{n}.tar: 1" for n in "01"]
    assert all(f"1.{ext}" in reason for _, reason in skipped.rejected)
    assert f"{tmp_path}/0.tar: 1: '1.{ext}'" in caplog.text


@pytest.mark.parametrize("cut", [True, False])
def test_samples_before_a_damage_are_kept(
    cut: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    named = [(f"{n}.{ext}", b"1") for n in range(5) for ext in ("jpg", "cls")]
    whole = Path(pack(tmp_path / "0.tar", named)).read_bytes()
    pack(tmp_path / "1.tar", named)
    third_text = 512 * 2 * 5  # the header of 2.cls
    damaged = whole[:third_text] + (b"" if cut else b"x" + whole[third_text + 1 :])
    (tmp_path / "0.tar").write_bytes(damaged)
    made = rows(tmp_path)
    # Of 2, whose text is lost, nothing is made.
    assert [(row["key"], row["cls"]) for row in made] == [(k, 1) for k in "01" + "01234"]
    assert re.search(f"{tmp_path}/0.tar: .*at {third_text}", caplog.text)


@pytest.mark.parametrize("pax", [False, True])
def test_sparse_members(pax: bool, tmp_path: Path) -> None:
    info = tarfile.TarInfo("a.fits")
    if pax:
        info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
    else:
        info.type = tarfile.GNUTYPE_SPARSE
    format: Literal[1, 2] = tarfile.PAX_FORMAT if pax else tarfile.GNU_FORMAT
    (tmp_path / "a.tar").write_bytes(info.tobuf(format) + bytes(1024))
    with pytest.raises(ValueError, match=r"'a\.fits' is sparse"):
        rows(tmp_path / "a.tar")


def test_damaged_pax_records(tmp_path: Path) -> None:
    for records in (b"99 path=x\n", b"x path=y\n", b"8 path=x", b"12 size=-3\n\n", b"11 pathxyz\n"):
        header = tarfile.TarInfo("x")
        header.type, header.size = tarfile.XHDTYPE, len(records)
        data = header.tobuf(tarfile.USTAR_FORMAT) + records.ljust(512, b"\0")
        data += tarfile.TarInfo("a.jpg").tobuf(tarfile.USTAR_FORMAT) + bytes(1024)
        (tmp_path / "a.tar").write_bytes(data)
        with pytest.raises(ValueError, match="damaged"):
            rows(tmp_path / "a.tar")


@settings(max_examples=40)
@given(damage=st.tuples(st.integers(0, 4000), st.integers(0, 255)))
def test_damage_is_an_error_or_seen_by_tarfile_alike(
    damage: tuple[int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("damage") / "a.tar"
    named = [("a" * 120 + ".jpg", bytes(700)), ("b.jpg", bytes(9)), ("b.cls", b"4")]
    whole = bytearray(Path(pack(path, named)).read_bytes())
    at, byte = damage
    whole[at] = byte
    path.write_bytes(whole)
    try:
        mine = found(str(path))
    except ValueError:
        return
    assert mine == listed(str(path))


def test_a_volume_label_without_a_size_is_not_a_member(tmp_path: Path) -> None:
    """As GNU tar writes it."""
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        for name, kind in (("label", b"V"), ("a.png", tarfile.REGTYPE)):
            info = tarfile.TarInfo(name)
            info.type = kind
            info.size = 3 * (kind == tarfile.REGTYPE)
            tar.addfile(info, io.BytesIO(b"png"))
    content = bytearray((tmp_path / "a.tar").read_bytes())
    content[124:136] = bytes(12)
    content[148:156] = b" " * 8
    content[148:156] = b"%06o\0 " % sum(content[:512])
    (tmp_path / "a.tar").write_bytes(content)
    assert [row["key"] for row in rows(tmp_path / "a.tar")] == ["a"]
