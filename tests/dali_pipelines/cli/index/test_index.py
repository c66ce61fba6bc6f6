"""The command index: rows and columns of a scan, against the headers that astropy wrote."""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits
from PIL import Image

from readers import Index

Run = Callable[..., Any]
FIXED = ["path", "hdu", "planes", "height", "width", "bitpix", "codec", "file_bytes"]
KEYS = {
    "date_obs": "timestamp[ns]",
    "t_obs": "timestamp[ns]",
    "wavelnth": "int64",
    "exptime": "double",
    "quality": "int64",
}


def rejected(path: str = "bad.csv") -> dict[str, str]:
    """Return the reason of each file that a list of rejected files names."""
    with open(path, newline="") as file:
        return {os.path.basename(row["path"]): row["reason"] for row in csv.DictReader(file)}


class TestScan:
    def test_columns_and_rows(self, archive: Path, index: Run) -> None:
        found = index(archive, "--rejected=bad.csv")
        assert found.table.column_names == [*FIXED, *KEYS]
        names = "a.fits", "b.fits", "c.fits", "sub/d.fits"
        columns = found.table.to_pydict()
        assert columns["path"] == [str(archive / name) for name in names]
        same = {"hdu": 0, "height": 4, "width": 5, "bitpix": 16, "codec": "", "file_bytes": 5760}
        assert {name: columns[name] for name in same} == {
            name: [value] * 4 for name, value in same.items()
        }
        assert columns["wavelnth"] == [171, 171, 193, 171]
        assert columns["exptime"] == [2.0, 1.0, None, 2.9]
        assert columns["quality"] == [0, 0xFFFFFFFF, 5, 0]
        times = np.array(["2015-01-01T00:00:00.5", "2014-12-31T23:59:59", "NaT", "NaT"], "M8[ns]")
        np.testing.assert_array_equal(found.table["date_obs"].to_numpy(), times)
        assert {name: str(found.table[name].type) for name in KEYS} == KEYS
        assert "6 files found: 4 rows kept, 2 rejected" in found.out
        assert f"{Path.cwd()}/index.parquet" in found.out
        truncated, text, time = found.err.splitlines()
        assert f"{archive}/e_truncated.fits: the file is truncated" in truncated
        assert f"{archive}/f_text.fits: not a FITS file" in text
        assert time.startswith("date_obs: 1 of 4 ")
        assert "'2016-02-30'" in time
        assert {*rejected()} == {"e_truncated.fits", "f_text.fits"}

    def test_an_index_that_readers_can_use(self, archive: Path, index: Run) -> None:
        columns = index(archive).made.columns(["wavelnth", "exptime"])
        row = columns.row(1)
        assert (row.path, row.hdu) == (str(archive / "b.fits"), 0)
        np.testing.assert_array_equal(columns.array("exptime"), [2.0, 1.0, np.nan, 2.9])

    def test_processes_give_the_same(
        self, archive: Path, index: Run, write: Callable[..., None]
    ) -> None:
        for number in range(100):  # several chunks
            write(archive / f"many/{number:03d}.fits", {"WAVELNTH": number, "QUALITY": 0})
        one, more = index(archive), index(archive, num_processes=3)
        assert "106 files found: 104 rows kept, 2 rejected" in more.out
        assert more.table.equals(one.table)

    def test_real_files(self, shared_data: Path, tmp_path: Path, index: Run) -> None:
        found = index(shared_data, out=str(tmp_path / "index.parquet"))
        assert found.err == ""
        rows = found.table.to_pylist()
        assert len(rows) == 37
        assert found.names[0] == "aia_171_cutout.fits"
        assert (rows[0]["hdu"], rows[0]["codec"], rows[0]["wavelnth"]) == (1, "RICE_1", 171)
        assert np.datetime64(rows[0]["t_obs"]) == np.datetime64("2013-03-10T12:00:12.341")
        assert (rows[-1]["hdu"], rows[-1]["codec"]) == (None, "JPEG")

    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            ("{archive}/[ab].fits", ["a.fits", "b.fits"]),
            ("../archive/c.fits", ["c.fits"]),
            ("{archive}/sub", ["d.fits"]),
        ],
    )
    def test_globs_files_and_folders(
        self, archive: Path, index: Run, data: str, expected: list[str]
    ) -> None:
        found = index(data.format(archive=archive))
        assert found.names == expected
        assert all(map(os.path.isabs, found.table["path"].to_pylist()))

    def test_notes_of_tiles(self, archive: Path, index: Run) -> None:
        (archive / "z.fits.gz").write_bytes(gzip.compress((archive / "a.fits").read_bytes()))
        found = index(archive, "--fits_tiles")
        assert [note is None for note in found.table["fits_tiles"].to_pylist()] == [False] * 4 + [
            True
        ]

    def test_twenty_rejected_files_are_named_and_all_listed(
        self, archive: Path, index: Run
    ) -> None:
        for number in range(23):
            (archive / f"g{number:02d}.fits").write_bytes(b"")
        err = index(archive, "--rejected=bad.csv").err
        assert sum(line.startswith("rejected ") for line in err.splitlines()) == 20
        assert "5 more" in err
        assert len(rejected()) == 25
        assert all(reason and "\n" not in reason for reason in rejected().values())

    def test_nothing_readable(self, archive: Path, index: Run) -> None:
        found = index(archive / "f_text.fits", "--rejected=bad.csv", status=1)
        assert found.out == ""
        assert f"{archive}/f_text.fits: not a FITS" in found.err
        assert os.listdir() == ["bad.csv"]


class TestKeys:
    def test_missing_and_none(self, archive: Path, index: Run) -> None:
        found = index(archive, "--keys", "wavelnth, NO-SUCH")
        last = found.err.splitlines()[-1]
        assert last.startswith("key NO-SUCH")
        assert "WAVELNTH" not in found.err
        assert found.table.column_names == [*FIXED, "wavelnth", "no_such"]
        assert found.table["no_such"].type == pa.float64()
        assert index(archive, "--keys", "").table.column_names == FIXED

    def test_names_of_columns_of_other_indexes(self, archive: Path, index: Run) -> None:
        for value, path in enumerate(sorted(archive.rglob("[a-d].fits"))):
            fits.setval(path, "LABEL", value=value)
            fits.setval(path, "OFFSET", value=-value)
        table = index(archive, "--keys=LABEL,OFFSET").table
        assert table["label"].to_pylist() == [0, 1, 2, 3]
        assert table["offset"].to_pylist() == [0, -1, -2, -3]

    def test_of_the_primary_header(self, archive: Path, index: Run) -> None:
        primary = fits.PrimaryHDU(header=fits.Header({"DATE-OBS": "2024-05-10T23:50:00"}))
        image = fits.ImageHDU(np.zeros((2, 3), np.float32), fits.Header({"GAIN": 2.0}))
        fits.HDUList([primary, image]).writeto(archive / "two.fits")
        data = archive / "two.fits", "--keys=DATE-OBS,GAIN,FOO"
        err = index(*data).err
        assert [line.split()[1] for line in err.splitlines()] == ["DATE-OBS", "FOO"]
        assert err.count("--inherit") == 2
        found = index(*data, "--inherit", "--where=gain = 2")
        assert [line.split()[1] for line in found.err.splitlines()] == ["FOO"]
        assert found.table["date_obs"].to_numpy()[0] == np.datetime64("2024-05-10T23:50")

    def test_no_word_of_what_is_told_already_or_was_not_asked_for(
        self, archive: Path, index: Run
    ) -> None:
        err = index(archive / "sub", "--keys=DATE-OBS").err
        assert [line.split()[0] for line in err.splitlines()] == ["date_obs:"]
        assert index(archive / "a.fits").err == ""  # it has no T_OBS
        Image.new("RGB", (6, 4)).save(archive / "a.jpg")  # it has no header
        assert index(archive / "a.jpg", "--keys=FOO").err == ""


class TestHdusAndPlanes:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A file of three HDUs, the last a cube, and a file with one image."""
        monkeypatch.chdir(tmp_path)
        header = fits.Header({"GAIN": 2.5})
        cube = fits.CompImageHDU(np.ones((3, 4, 5), np.int16), header, name="CUBE")
        hdus = [fits.PrimaryHDU(), fits.ImageHDU(np.zeros((6, 5)), name="SCI", ver=2), cube]
        fits.HDUList(hdus).writeto(tmp_path / "a.fits")
        fits.PrimaryHDU(np.zeros((4, 5), np.int16)).writeto(tmp_path / "b.fits")
        return tmp_path

    def test_all_hdus_and_planes(self, folder: Path, index: Run) -> None:
        flags = "--hdu=all", "--planes=all", "--keys=GAIN,NAXIS3", "--where=plane < 2"
        columns = index(folder, *flags).table.to_pydict()
        assert columns["hdu"] == [1, 2, 2, 0]
        assert columns["plane"] == [0, 0, 1, 0]
        assert columns["planes"] == [1, 3, 3, 1]
        assert columns["height"] == [6, 4, 4, 4]
        assert columns["gain"] == [None, 2.5, 2.5, None]
        assert columns["naxis3"] == [None, 3, 3, None]

    @pytest.mark.parametrize(
        ("flag", "hdus"),
        [
            ("--hdu=sci", [1]),
            ("--hdu=SCI,2", [1]),
            ("--hdu=2", [2]),
            ("--hdus=1,2", [1, 2]),
            ("--hdus=CUBE,sci", [1, 2]),
            ("--hdus=*", [1, 2, 0]),
            ("--hdus=c*", [2]),
            ("--hdus=0", [0]),
            ("--hdus= 2, 1 ,2", [1, 2]),
        ],
    )
    def test_chosen_hdus(self, folder: Path, index: Run, flag: str, hdus: list[int]) -> None:
        found = index(folder, flag, "--rejected=bad.csv")
        assert found.table["hdu"].to_pylist() == hdus
        assert {*rejected()} == {"a.fits", "b.fits"} - {*found.names}
        assert found.err.count(" HDU ") == len(rejected())

    def test_of_a_configuration(self, folder: Path, index: Run) -> None:
        Path("index.toml").write_text('data = "a.fits"\nhdus = [1, "cu*"]')
        assert index("--config=index.toml").table["hdu"].to_pylist() == [1, 2]

    @pytest.mark.parametrize(
        ("flags", "named"),
        [
            ("--hdus=SCI,ERR*", ["'ERR*'", "1 (SCI)", "2 (CUBE)"]),
            ("--hdus=0,1", ["HDU 0", "1 (SCI)", "2 (CUBE)"]),
            ("--hdu=all --planes=0,2", ["plane 2", "has 1"]),
        ],
    )
    def test_what_a_file_lacks_is_named(
        self, folder: Path, index: Run, flags: str, named: list[str]
    ) -> None:
        err = index(folder / "a.fits", *flags.split(), status=1).err
        assert [word for word in named if word not in err] == []


class TestClassFolders:
    @pytest.fixture
    def photographs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        for name in "cat/1.jpg", "cat/2.png", "dog/3.JPEG", "bad/4.jpg":
            path = tmp_path / "photographs" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (6, 4)).save(path, "PNG" if name.endswith("png") else "JPEG")
        path.write_text("no image")
        return tmp_path / "photographs"

    def test_labels(self, photographs: Path, index: Run) -> None:
        found = index(photographs, "--class_folders")
        assert "4 files found: 3 rows kept, 1 rejected" in found.out
        columns = found.table.to_pydict()
        # A class keeps its number though none of its files can be read.
        assert columns["label"] == [1, 1, 2]
        assert columns["class_name"] == ["cat", "cat", "dog"]
        assert columns["codec"] == ["JPEG", "PNG", "JPEG"]
        assert (columns["height"], columns["hdu"]) == ([4] * 3, [None] * 3)
        found = index(photographs, "--class_folders", "--where", "class_name = 'dog'")
        assert found.names == ["3.JPEG"]

    @pytest.mark.parametrize("name", ["train.parquet", "train.arrow"])
    def test_names_of_classes_are_kept(self, photographs: Path, index: Run, name: str) -> None:
        classes = ("bad", "cat", "dog")
        assert index(photographs, "--class_folders", out=name).made.classes == classes
        assert index(name, "--where", "label = 2", out="dogs.arrow").made.classes == classes
        index(photographs, "--class_folders", out=name)  # its own file, so that it is replaced

    def test_labels_of_the_training_files(self, photographs: Path, index: Run) -> None:
        index(photographs, "--class_folders", out="train.arrow")
        (photographs / "cat").rename(photographs.parent / "cat")
        flags = "--class_folders", "--classes", "train.arrow"
        assert index(photographs, *flags).table["label"].to_pylist() == [2]
        (photographs / "dog").rename(photographs / "wolf")
        assert "'wolf'" in index(photographs, *flags, status=2).err

    def test_notes_of_mcus(self, photographs: Path, index: Run) -> None:
        noted = index(photographs, "--mcu_rows").table["mcu_rows"].to_pylist()
        assert [rows is not None for rows in noted] == [True, False, True]

    def test_no_labels_without_the_flag(self, photographs: Path, index: Run) -> None:
        assert index(photographs).table.column_names == [*FIXED, *KEYS]
        assert '"label"' in index(photographs, "--where", "label = 1", status=2).err


def test_an_index_of_a_moved_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    there = Index(pa.table({"path": ["/data/a", "/data/b"], "x": [1, 2]}))
    there.save("there.parquet")
    for new, folder in (("/scratch", "/scratch"), ("~/a=b/", f"{tmp_path}/home/a=b")):
        found = index("there.parquet", "--moved", "/data", new)
        assert found.table["path"].to_pylist() == [f"{folder}/a", f"{folder}/b"]
        assert found.made.digest == there.digest
