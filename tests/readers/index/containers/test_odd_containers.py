"""Containers as other tools write them."""

import io
import logging
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from readers.index.table import Index

tfrecord = pytest.importorskip("tfrecord")


def _png() -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(file, "PNG")
    return file.getvalue()


def test_a_volume_label_without_a_size_and_links_to_elsewhere_are_no_members(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, kind in (("label", b"V"), ("a.png", tarfile.REGTYPE), ("b.png", tarfile.LNKTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "c.png" * (kind == tarfile.LNKTYPE)
            member.size = len(_png()) * (kind == tarfile.REGTYPE)
            tar.addfile(member, io.BytesIO(_png()))
    header = bytearray(content.getvalue())
    header[124:136] = bytes(12)  # as GNU tar writes it
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    (tmp_path / "a.tar").write_bytes(header)
    with caplog.at_level(logging.WARNING):
        index = Index.from_tar(tmp_path / "a.tar")
    assert index.table["key"].to_pylist() == ["a"]
    assert "1 links" in caplog.text
    assert "b.png" in caplog.text


@pytest.mark.parametrize(
    "columns",
    [{"a": "x", "b": "x"}, {"mask": "m", "b": "m_offset"}, {"b": "m_offset", "mask": "m"}],
)
def test_features_that_make_one_column_are_an_error(
    tmp_path: Path, columns: dict[str, str]
) -> None:
    writer = tfrecord.TFRecordWriter(str(tmp_path / "a.tfrecord"))
    image = {"image/encoded": (_png(), "byte"), "mask": (_png(), "byte")}
    writer.write({**image, "a": (1, "int"), "b": (2, "int")})
    writer.close()
    with pytest.raises(ValueError, match=r"features make two columns '(x|m_offset)'"):
        Index.from_tfrecord(tmp_path / "a.tfrecord", columns=columns)
