"""Samples in containers are those of the same files, loose, by every way of reading them."""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import psutil
import pytest
from astropy.io import fits
from image_files import pillow
from numpy.typing import NDArray
from tfrecord import TFRecordWriter

from dali_pipelines import (
    Index,
    Loader,
    Mask,
    fits_pipeline,
    jpeg_pipeline,
    npy_pipeline,
    with_mcu_rows,
)
from readers import NpyReader, ReadError

COUNT, SHAPE = 7, (96, 120)
Images = dict[str, NDArray[np.float32]]


def encoded(suffix: str, number: int) -> bytes:
    """Return a file: JPEG, FITS of both kinds that are read without astropy and one by it, .npy."""
    rng = np.random.default_rng(number)
    pixels = rng.integers(0, 3000, SHAPE, np.int16)
    if suffix == "jpg":
        return pillow(rng.integers(0, 256, (12, 15, 3), np.uint8).repeat(8, 0).repeat(8, 1))
    file = io.BytesIO()
    if suffix == "npy":
        np.save(file, pixels[..., None].astype(np.float32))
    elif number % 3 == 0:
        fits.PrimaryHDU(pixels).writeto(file)
    else:
        codec = "RICE_1" if number % 3 == 1 else "GZIP_1"
        fits.CompImageHDU(pixels, compression_type=codec, tile_shape=(8, 120)).writeto(file)
    return file.getvalue()


def tars(folder: Path, contents: Iterable[tuple[str, bytes]]) -> Index:
    for number, (name, content) in enumerate(contents):
        with tarfile.open(folder / f"{number * 2 // COUNT}.tar", "a") as tar:
            add(tar, name, content)
            add(tar, f"{number}.cls", b"%d" % number)
    return Index.scan(folder)


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def tfrecords(folder: Path, contents: Iterable[tuple[str, bytes]]) -> Index:
    writer = TFRecordWriter(str(folder / "a.tfrecord"))
    for number, (_, content) in enumerate(contents):
        writer.write({"cls": (number, "int"), "image/encoded": (content, "byte")})
    writer.close()
    return Index.from_tfrecord(folder)


def recordio(folder: Path, contents: Iterable[tuple[str, bytes]]) -> Index:
    with open(folder / "a.rec", "wb") as file:
        for number, (_, content) in enumerate(contents):
            record = struct.pack("<IfQQ", 0, number, number, 0) + content
            file.write(struct.pack("<II", 0xCED7230A, len(record)) + record)
            file.write(bytes(-len(record) % 4))
    index = Index.from_recordio(folder)
    return index.with_column("cls", index.table["label"])


def lmdbs(folder: Path, contents: Iterable[tuple[str, bytes]]) -> Index:
    with lmdb.open(str(folder), map_size=1 << 24) as env, env.begin(write=True) as txn:
        for name, content in contents:
            txn.put(name.encode(), content)
    return Index.from_lmdb(folder).with_column("cls", range(COUNT))


KINDS = (tars, tfrecords, recordio, lmdbs)


def delivered(factory: Any, index: Index, **options: Any) -> Images:
    """Return the samples of two epochs by epoch and label; each must come once."""
    found: Images = {}
    options |= {"devices": [None], "seed": 2, "tail": "partial", "columns": ("cls",)}
    with Loader(factory, index, batch_size=3, num_read_processes=1, **options) as loader:
        for epoch in range(2):
            for (batch,) in loader:
                for image, label in zip(batch["image"].numpy(), batch["cls"].tolist(), strict=True):
                    assert f"{epoch}.{label}" not in found
                    found[f"{epoch}.{label}"] = image.copy()
    assert len(found) == 2 * len(index)
    return found


def equal(first: Images, second: Images) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(first[key], second[key]) for key in first
    )


@pytest.mark.parametrize(
    ("suffix", "factory", "kinds"),
    [
        ("jpg", jpeg_pipeline, KINDS),
        ("fits", fits_pipeline, KINDS[:1]),
        ("npy", npy_pipeline, KINDS[2:]),
    ],
)
def test_samples_are_those_of_loose_files(
    suffix: str, factory: Any, kinds: tuple[Callable[..., Index], ...], tmp_path: Path
) -> None:
    contents = [(f"{n}.{suffix}", encoded(suffix, n)) for n in range(COUNT)]
    for name, content in contents:
        (tmp_path / name).write_bytes(content)
    loose = Index.scan(tmp_path).with_column("cls", range(COUNT))
    options: list[dict[str, Any]] = [{}, {"crop": (48, 64), "window": "random", "flip": "hv"}]
    expected = [delivered(factory, loose, **each) for each in options]
    for kind in kinds:
        folder = tmp_path / kind.__name__
        folder.mkdir()
        index = kind(folder, contents)
        for each, images in zip(options, expected, strict=True):
            assert equal(delivered(factory, index, **each), images)
        if suffix == "jpg":
            assert equal(delivered(factory, with_mcu_rows(index), **options[1]), expected[1])


def test_resume_in_reader_processes(tmp_path: Path) -> None:
    index = tars(tmp_path, ((f"{n}.npy", encoded("npy", n)) for n in range(COUNT)))
    index.save(tmp_path / "index.arrow")
    index = Index.load(tmp_path / "index.arrow")
    settings: dict[str, Any] = {"devices": [None], "seed": 1, "num_read_processes": 2}
    seen = []
    with Loader(npy_pipeline, index, batch_size=2, **settings) as first:
        for (batch,) in first:
            seen += batch["row"].tolist()
            if len(seen) == 4:
                state = first.state_dict()
                break
    with Loader(npy_pipeline, index, batch_size=1, **settings) as second:
        second.load_state_dict(state)
        for (batch,) in second:
            seen += batch["row"].tolist()
            expected = np.load(io.BytesIO(encoded("npy", seen[-1])))
            np.testing.assert_array_equal(batch["image"][0, 0].numpy(), expected[..., 0])
    assert sorted(seen) == list(range(COUNT))


def test_masks_in_a_tar(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number in range(3):
            mask = np.full(SHAPE, number, np.uint8)
            add(tar, f"{number}.jpg", encoded("jpg", number))
            add(tar, f"{number}.seg.png", pillow(mask, "PNG"))
    index = Index.scan(tmp_path)
    targets = {"mask": Mask("seg_png_path")}
    settings: dict[str, Any] = {"devices": [None], "num_read_processes": 1, "targets": targets}
    with Loader(jpeg_pipeline, index, batch_size=3, crop=32, **settings) as loader:
        (batch,) = next(iter(loader))
    for mask, row in zip(batch["mask"].numpy(), batch["row"].tolist(), strict=True):
        assert (mask == row).all()


def test_a_container_that_was_changed_is_rejected(tmp_path: Path) -> None:
    contents = [(f"{n}.npy", encoded("npy", n)) for n in range(COUNT)]
    index = tars(tmp_path, contents)
    path = tmp_path / "1.tar"
    whole = path.read_bytes()
    for changed in (b"x" + whole[1:], whole + bytes(512)):
        path.write_bytes(changed)
        assert len(rejected(index)) == 3
        path.write_bytes(whole)  # by any other program, too: what counts are the bytes
        assert not rejected(index)
    path.unlink()
    assert len(rejected(index)) == 3
    folder = tmp_path / "lmdb"
    folder.mkdir()
    index = lmdbs(folder, contents)
    with lmdb.open(str(folder)) as env, env.begin(write=True) as txn:
        txn.put(b"another", b"value")
    reasons = rejected(index)
    assert len(reasons) == COUNT
    assert "the file has changed since it was indexed" in reasons[0]


def test_a_container_that_was_changed_is_closed(tmp_path: Path) -> None:
    index = tars(tmp_path, [(f"{n}.npy", encoded("npy", n)) for n in range(COUNT)])
    path = tmp_path / "1.tar"
    path.write_bytes(path.read_bytes() + bytes(512))
    assert len(rejected(index)) == 3
    assert str(path) not in [file.path for file in psutil.Process().open_files()]


def rejected(index: Index) -> list[str]:
    """Return why rows are rejected."""
    reasons, columns, reader = [], index.columns(), NpyReader()
    for row in range(len(index)):
        try:
            reader.read(columns.row(row), None)
        except ReadError as error:
            reasons.append(str(error))
    return reasons
