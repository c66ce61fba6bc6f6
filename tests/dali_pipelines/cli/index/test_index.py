from __future__ import annotations

import csv
import gzip
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import fits
from jobs import ROOT, Job
from PIL import Image
from solar_files import changed, frame, save

from dali_pipelines.cli.index import main as script
from dali_pipelines.cli.index.scan import CHUNK_FILES
from dali_pipelines.parallel.process_pool import Crash
from readers import HeaderRules, Index
from readers.aia.rules import KEYS as KEYS_OF_RULES

FIXED = ["path", "hdu", "planes", "height", "width", "bitpix", "codec", "file_bytes"]
KEYS = ["date_obs", "t_obs", "wavelnth", "exptime", "quality"]

HEADERS = {
    "a.fits": {"DATE-OBS": "2015-01-01T00:00:00.5", "WAVELNTH": 171, "EXPTIME": 2.0, "QUALITY": 0},
    "b.fits": {"DATE-OBS": "2014-12-31T23:59:59Z", "WAVELNTH": 171, "EXPTIME": 1, "QUALITY": -1},
    "c.fits": {"DATE-OBS": "nan", "WAVELNTH": 193, "QUALITY": 5},
    "sub/d.fits": {"DATE-OBS": "2016-02-30", "WAVELNTH": 171, "EXPTIME": 2.9, "QUALITY": 0},
}
TRUNCATED, TEXT = "e_truncated.fits", "f_text.fits"


Run = Callable[..., tuple[int, str, str]]
Result = TypeVar("Result")


def write(path: Path, header: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fits.PrimaryHDU(np.zeros((4, 5), np.int16), fits.Header(header)).writeto(path)


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four readable files, a truncated one and a text; the current folder is beside them."""
    folder = tmp_path / "archive"
    for name, header in HEADERS.items():
        write(folder / name, header)
    whole = (folder / "a.fits").read_bytes()
    (folder / TRUNCATED).write_bytes(whole[:-2880])
    (folder / TEXT).write_text("no FITS file\n")
    (folder / "README.md").write_text("not looked at")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process; give its status, stdout and stderr."""

    def run(*arguments: object, num_processes: int = 1) -> tuple[int, str, str]:
        status = script.main([*map(str, arguments), f"--num_processes={num_processes}"])
        return status, *capsys.readouterr()

    return run


def saved(path: Path | str = "index.parquet") -> pa.Table:
    return pq.read_table(path)


def names(path: Path | str = "index.parquet") -> list[str]:
    return [os.path.basename(path) for path in saved(path)["path"].to_pylist()]


class TestScan:
    def test_tiles(self, archive: Path, run: Run) -> None:
        (archive / "z.fits.gz").write_bytes(gzip.compress((archive / "a.fits").read_bytes()))
        status, out, _ = run(archive, "--fits_tiles")
        assert status == 0
        assert "Tiles noted of 4 images, 1 are not stored so." in out
        assert [note is None for note in saved()["fits_tiles"].to_pylist()] == [False] * 4 + [True]

    def test_columns_and_rows(self, archive: Path, run: Run) -> None:
        status, out, err = run(archive)
        assert status == 0
        table = saved()
        assert table.column_names == FIXED + KEYS
        assert table["path"].to_pylist() == [str(archive / name) for name in HEADERS]
        assert table["hdu"].to_pylist() == [0] * 4
        assert table["height"].to_pylist() == [4] * 4
        assert table["width"].to_pylist() == [5] * 4
        assert table["bitpix"].to_pylist() == [16] * 4
        assert table["codec"].to_pylist() == [""] * 4
        assert table["file_bytes"].to_pylist() == [5760] * 4
        assert table["wavelnth"].to_pylist() == [171, 171, 193, 171]
        assert table["exptime"].to_pylist() == [2.0, 1.0, None, 2.9]
        assert table["quality"].to_pylist() == [0, 0xFFFFFFFF, 5, 0]
        times = np.array(["2015-01-01T00:00:00.5", "2014-12-31T23:59:59", "NaT", "NaT"], "M8[ns]")
        assert np.array_equal(table["date_obs"].to_numpy(), times, equal_nan=True)
        assert [str(table[name].type) for name in KEYS] == [
            "timestamp[ns]",
            "timestamp[ns]",
            "int64",
            "double",
            "int64",
        ]
        assert out.startswith("6 files found: 4 rows kept, 2 rejected, 0 dropped by --where.\n")
        assert out.endswith(f" files/s. Written to {Path.cwd()}/index.parquet\n")
        assert err.splitlines()[0].startswith(
            f"rejected {archive / TRUNCATED}: File may have been truncated"
        )
        assert err.splitlines()[1].startswith(f"rejected {archive / TEXT}: not a FITS file: ")
        assert err.splitlines()[2] == (
            "date_obs: 1 of 4 values are no ISO 8601 times in UTC, or from 1972 on in TAI, TT, "
            "TDB or GPS, and are left empty, the first: '2016-02-30'"
        )
        assert len(err.splitlines()) == 3

    def test_an_index_that_readers_can_use(self, archive: Path, run: Run) -> None:
        run(archive)
        columns = Index.scan("index.parquet").columns(["wavelnth", "exptime", "quality"])
        assert columns.row(1).path == str(archive / "b.fits")
        assert columns.row(1).hdu == 0
        assert np.array_equal(columns.array("exptime"), [2.0, 1.0, np.nan, 2.9], equal_nan=True)

    @pytest.mark.parametrize("num_processes", [2, 3])
    def test_processes_give_the_same(
        self, tmp_path: Path, archive: Path, run: Run, num_processes: int
    ) -> None:
        for number in range(100):
            write(archive / f"many/{number:03d}.fits", {"WAVELNTH": number, "QUALITY": 0})
        assert run(archive, "-o", "one.parquet")[0] == 0
        status, out, _ = run(archive, "-o", "more.parquet", num_processes=num_processes)
        assert status == 0
        assert out.startswith("106 files found: 104 rows kept, 2 rejected, ")
        assert saved("more.parquet").equals(saved("one.parquet"))

    def test_real_files(
        self, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
    ) -> None:
        monkeypatch.chdir(tmp_path)
        status, out, err = run(shared_data)
        assert status == 0
        assert " 0 rejected" in out
        assert err == ""
        rows = saved().to_pylist()
        assert len(rows) == 37
        aia = rows[0]
        assert aia["path"].endswith("fits/aia_171_cutout.fits")
        assert (aia["hdu"], aia["codec"], aia["wavelnth"]) == (1, "RICE_1", 171)
        assert np.datetime64(aia["t_obs"]) == np.datetime64("2013-03-10T12:00:12.341")
        assert rows[-1]["codec"] == "JPEG"
        assert rows[-1]["hdu"] is None

    def test_keys(self, archive: Path, run: Run) -> None:
        status, _, err = run(archive, "--keys", "wavelnth, NO-SUCH")
        assert status == 0
        last = err.splitlines()[-1]
        assert last.startswith("key NO-SUCH is in none of 4 headers of images, or has no value")
        assert "WAVELNTH" not in err
        assert saved().column_names == [*FIXED, "wavelnth", "no_such"]
        assert saved()["no_such"].type == pa.float64()
        assert run(archive, "--keys", "")[0] == 0
        assert saved().column_names == FIXED

    def test_keys_that_are_columns_elsewhere(self, archive: Path, run: Run) -> None:
        for value, name in enumerate(HEADERS):
            fits.setval(archive / name, "LABEL", value=value)
            fits.setval(archive / name, "OFFSET", value=-value)
        assert run(archive, "--keys=LABEL,OFFSET")[0] == 0
        assert saved()["label"].to_pylist() == [0, 1, 2, 3]
        assert saved()["offset"].to_pylist() == [0, -1, -2, -3]

    def test_keys_of_the_primary_header(
        self, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        primary = fits.PrimaryHDU(header=fits.Header({"DATE-OBS": "2024-05-10T23:50:00"}))
        image = fits.ImageHDU(np.zeros((2, 3), np.float32), fits.Header({"GAIN": 2.0}))
        fits.HDUList([primary, image]).writeto(tmp_path / "two.fits")
        keys = "--keys=DATE-OBS,GAIN,FOO"
        _, _, err = run(tmp_path / "two.fits", keys)
        assert [line.split()[1] for line in err.splitlines()] == ["DATE-OBS", "FOO"]
        assert err.endswith("no value there; if it is in that of HDU 0, give --inherit\n")
        _, _, err = run(tmp_path / "two.fits", keys, "--inherit", "--where=gain = 2")
        assert err == "key FOO is in none of 1 headers of images, or has no value there\n"
        assert saved()["date_obs"].to_numpy()[0] == np.datetime64("2024-05-10T23:50")

    def test_keys_that_are_there_in_vain(self, archive: Path, run: Run) -> None:
        """Told already, not asked for, or of images that have no headers."""
        _, _, err = run(archive / "sub", "--keys=DATE-OBS")
        assert [line.split()[0] for line in err.splitlines()] == ["date_obs:"]
        assert run(archive / "a.fits")[2] == ""  # it has no T_OBS
        Image.new("RGB", (6, 4)).save(archive / "a.jpg")
        assert run(archive / "a.jpg", "--keys=FOO")[2] == ""

    def test_hdu(self, tmp_path: Path, archive: Path, run: Run) -> None:
        image = fits.ImageHDU(np.zeros((2, 3), np.float32))
        fits.HDUList([fits.PrimaryHDU(np.zeros((4, 5))), image]).writeto(archive / "two.fits")
        status, out, _ = run(archive, "--hdu", 1)
        assert status == 0
        assert " 1 rows kept, 6 rejected" in out
        assert saved()["hdu"].to_pylist() == [1]
        assert saved()["height"].to_pylist() == [2]

    def test_glob_and_one_file(
        self, archive: Path, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert run(f"{archive}/[ab].fits")[0] == 0
        assert names() == ["a.fits", "b.fits"]
        monkeypatch.chdir(archive)
        assert run("c.fits", "-o", archive.parent / "c.parquet")[0] == 0
        assert saved("../c.parquet")["path"].to_pylist() == [str(archive / "c.fits")]


class TestRejected:
    def test_first_twenty_and_a_list_of_all(self, archive: Path, run: Run) -> None:
        for number in range(23):
            (archive / f"g{number:02d}.fits").write_bytes(b"")
        status, _, err = run(archive, "--rejected", "rejected.csv")
        assert status == 0
        lines = err.splitlines()
        assert sum(line.startswith("rejected ") for line in lines) == 20
        assert lines[20] == "and 5 more (--rejected lists all)"
        with open("rejected.csv", newline="") as file:
            rows = list(csv.reader(file))
        assert rows[0] == ["path", "reason"]
        assert [row[0] for row in rows[1:3]] == [str(archive / TRUNCATED), str(archive / TEXT)]
        assert len(rows) == 26
        assert all(reason and "\n" not in reason for _, reason in rows)

    def test_nothing_readable(self, archive: Path, run: Run) -> None:
        status, out, err = run(archive / TEXT, "--rejected", "rejected.csv")
        assert (status, out) == (1, "")
        assert err.startswith(
            "dali-pipelines index: none of 1 files can be read, the first: "
            f"{archive / TEXT}: not a FITS"
        )
        assert err.count("\n") == 1
        assert os.listdir() == ["rejected.csv"]


def overwritten(content: bytes, place: int, replacement: bytes) -> bytes:
    return content[:place] + replacement + content[place + len(replacement) :]


def damaged_files(folder: Path) -> dict[str, str]:
    """Write files that are sound up to their pixels; give the reason of each that is not."""
    noise = np.random.default_rng(0).integers(0, 255, (60, 80, 3), np.uint8)
    sound = {}
    codings: dict[str, dict[str, Any]] = {
        "sound.jpg": {},
        "progressive.jpg": {"progressive": True},
        "early_end.jpg": {},
        "extra.jpg": {},
        "photo.png": {},
    }
    for name, options in codings.items():
        Image.fromarray(noise).save(folder / name, **options)
        sound[name] = (folder / name).read_bytes()
    for name, options in {
        "sums.fits": {"checksum": True},
        "changed.fits": {"checksum": True},
    }.items():
        fits.PrimaryHDU(noise[..., 0]).writeto(folder / name, **options)
    rice = fits.CompImageHDU(noise[..., 0].astype(np.int16), compression_type="GZIP_1")
    rice.writeto(folder / "tiles.fits")
    jpeg, changed = sound["early_end.jpg"], (folder / "changed.fits").read_bytes()
    tiles = (folder / "tiles.fits").read_bytes()
    contents = {
        "early_end.jpg": jpeg[: len(jpeg) // 2] + b"\xff\xd9",
        "extra.jpg": jpeg[:-2] + b"a" + jpeg[-2:],  # libjpeg-turbo does not notice
        "photo.png": overwritten(sound["photo.png"], 900, b"damaged"),
        "changed.fits": overwritten(changed, 3000, b"damaged"),
        "tiles.fits": overwritten(tiles, tiles.index(b"\x1f\x8b") + 20, b"damaged"),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {
        "changed.fits": "DATASUM is not that of the data",
        "early_end.jpg": "Corrupt JPEG data: premature end of data segment",
        "extra.jpg": "the file is damaged: the entropy-coded bytes do not add up",
        "photo.png": "the checksum of the PNG chunk",
        "tiles.fits": "",
    }


class TestVerify:
    def test_damage_that_no_header_shows(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
    ) -> None:
        folder = tmp_path / "archive"
        folder.mkdir()
        monkeypatch.chdir(tmp_path)
        reasons = damaged_files(folder)
        assert "7 rows kept, 1 rejected" in run(folder)[1]  # the PNG has checksums
        status, out, _ = run(folder, "--verify", "--rejected=bad.csv", num_processes=2)
        assert status == 0
        assert "8 files found: 3 rows kept, 5 rejected" in out
        assert names() == ["progressive.jpg", "sound.jpg", "sums.fits"]
        with open("bad.csv", newline="") as file:
            rejected = {
                os.path.basename(path): reason for path, reason in list(csv.reader(file))[1:]
            }
        assert list(rejected) == list(reasons)
        for name, reason in reasons.items():
            assert reason in rejected[name]

    def test_what_only_the_reader_rejects(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
    ) -> None:
        """astropy decodes damaged streams, and stored values whatever their scale."""
        monkeypatch.chdir(tmp_path)
        stored = np.random.default_rng(0).integers(0, 255, (20, 23), np.int16)
        fits.PrimaryHDU(stored, fits.Header({"OBJECT": "2.0"})).writeto("scale.fits")
        content = Path("scale.fits").read_bytes()
        Path("scale.fits").write_bytes(content.replace(b"OBJECT  =", b"BSCALE  ="))
        fits.CompImageHDU(stored, compression_type="HCOMPRESS_1").writeto("tiles.fits")
        with fits.open("tiles.fits", disable_image_compression=True) as hdus:
            at = hdus[1].fileinfo()["datLoc"]
        content = Path("tiles.fits").read_bytes()
        length = int.from_bytes(content[at : at + 4], "big")
        Path("tiles.fits").write_bytes(overwritten(content, at, (length - 1).to_bytes(4, "big")))
        fits.getdata("tiles.fits")
        cube = np.stack((stored, stored))
        tiled = fits.CompImageHDU(cube, compression_type="PLIO_1", tile_shape=(1, 20, 23))
        tiled.writeto("words.fits")
        content = Path("words.fits").read_bytes()
        at = len(content.rstrip(b"\0")) - 300
        Path("words.fits").write_bytes(overwritten(content, at, b"\xff" * 16))
        assert fits.getdata("words.fits").shape == cube.shape
        assert "3 rows kept, 0 rejected" in run("*.fits")[1]
        status, _, err = run("*.fits", "--verify")
        assert status == 1
        assert f"none of 3 files can be read, the first: {tmp_path}/scale.fits: BSCALE" in err

    @pytest.mark.parametrize("suffix", ["", ".gz"])
    def test_a_last_block_that_is_not_filled(
        self, tmp_path: Path, run: Run, suffix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its DATASUM is that of the whole block."""
        monkeypatch.chdir(tmp_path)
        pixels = np.random.default_rng(0).integers(0, 255, (20, 23), np.int16)
        for number, hdu in enumerate((fits.ImageHDU(pixels), fits.CompImageHDU(pixels))):
            path = tmp_path / "whole"
            fits.HDUList([fits.PrimaryHDU(), hdu]).writeto(path, checksum=True, overwrite=True)
            with fits.open(path, disable_image_compression=True) as hdus:
                end = hdus[1].fileinfo()["datLoc"] + hdus[1].size
            content = path.read_bytes()[:end]
            for name, part in {"good": content, "cut": content[:-1]}.items():
                packed = gzip.compress(part) if suffix else part
                (tmp_path / f"{name}{number}.fits{suffix}").write_bytes(packed)
        assert "2 rows kept, 2 rejected" in run(f"{tmp_path}/*.fits*", "--verify")[1]

    def test_a_file_that_kills_its_process(
        self, archive: Path, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def deadly(function: Callable[..., Any], tasks: Iterable[Any], *_: object) -> Iterator[Any]:
            for task in tasks:
                yield Crash() if task[0][0].path.endswith("b.fits") else function(*task)

        monkeypatch.setattr("dali_pipelines.cli.index.scan.isolated_map", deadly)
        status, out, err = run(archive, "--verify")
        assert status == 0
        assert "6 files found: 3 rows kept, 3 rejected" in out
        assert f"rejected {archive / 'b.fits'}: it kills the process that decodes it" in err
        assert names() == ["a.fits", "c.fits", "d.fits"]

    def test_real_files(
        self, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert " 0 rejected" in run(shared_data / "fits", "--verify")[1]

    def test_not_of_a_table(self, archive: Path, run: Run) -> None:
        run(archive)
        status, _, err = run("index.parquet", "--verify", "-o", "other.parquet")
        assert status == 2
        assert "--verify is for a scan of files" in err


class TestWhere:
    @pytest.mark.parametrize(
        ("where", "expected"),
        [
            ("wavelnth = 171", ["a.fits", "b.fits", "d.fits"]),
            (
                "wavelnth = 171 AND quality = 0 AND exptime > 1.5 AND date_obs >= '2015-01-01'",
                ["a.fits"],
            ),
            ("\"DATE-OBS\" < '2015-01-01' or EXPTIME > 2.5", ["b.fits", "d.fits"]),
            ("(quality & 2147483648) > 0", ["b.fits"]),
            ("exptime IS NULL", ["c.fits"]),
            ("year(date_obs) = 2014", ["b.fits"]),
            ("path LIKE '%/sub/%'", ["d.fits"]),
            ("height = 4 and codec = '' and path like '%a.fits' -- why", ["a.fits"]),
            ("path IN (SELECT max(path) FROM archive)", ["d.fits"]),
        ],
    )
    def test_rows(self, archive: Path, run: Run, where: str, expected: list[str]) -> None:
        status, out, _ = run(archive, "--where", where)
        assert status == 0
        assert names() == expected
        assert f" {4 - len(expected)} dropped by --where." in out
        assert saved().column_names == FIXED + KEYS

    def test_nothing_left(self, archive: Path, run: Run) -> None:
        status, out, err = run(archive, "--where", "wavelnth = 304")
        assert (status, out) == (1, "")
        assert (
            err.splitlines()[-1]
            == "dali-pipelines index: nothing was written: --where dropped all rows"
        )
        assert os.listdir() == []

    def test_a_text_that_no_file_has(self, archive: Path, run: Run) -> None:
        status, _, err = run(archive, "--keys", "INSTRUME", "--where", "instrume = 'AIA_3'")
        assert status == 1
        assert "dropped all rows" in err

    @pytest.mark.parametrize(
        "where",
        [
            "1=1; DROP TABLE x",
            "1=1; SELECT 1",
            "path IN (SELECT * FROM read_csv('/etc/passwd'))",
            "EXISTS (FROM '/etc/passwd')",
            "path IN (FROM glob('/etc/*'))",
            "path = (SELECT content FROM read_text('/etc/hostname'))",
            "COPY archive TO 'stolen.csv'",
            "1=1) TO 'stolen.csv' --",
            "true) OR (true",
            "1=1 UNION SELECT true",
            "true LIMIT 1",
            "true, false",
            "INSTALL httpfs",
            "(SET enable_external_access = true)",
            "getenv('HOME') = ''",
            "path IN (SELECT * FROM table)",
            "path IN (SELECT * FROM options)",
            "?",
            "",
            "wavelnth =",
            "nosuch = 1",
            "height",
            "date_obs > 'yesterday'",
            "(quality & (1 << 31)) > 0",
            "count(*) > 1",
            "wavelnth = 171\nAND nosuch = 1",
        ],
    )
    def test_wrong_or_hostile_before_the_scan(
        self, archive: Path, run: Run, monkeypatch: pytest.MonkeyPatch, where: str
    ) -> None:
        monkeypatch.setattr(script, "scan", None)
        status, out, err = run(archive, "--where", where)
        assert (status, out) == (2, "")
        assert err.startswith("dali-pipelines index: --where ")
        assert err.count("\n") == 1
        assert "LINE" not in err
        assert os.listdir() == []

    def test_columns_are_proposed(self, archive: Path, run: Run) -> None:
        err = run(archive, "--where", "quality == 0 AND wavelength = 171")[2]
        assert '"wavelength" not found in FROM clause! Candidate bindings: "wavelnth"' in err
        assert (
            "add that of a header keyword by with_keys(index, keys) or dali-pipelines index --keys"
            in err
        )

    @pytest.mark.parametrize(
        ("where", "reason"),
        [
            ("year(wavelnth) = 3", "No function matches"),
            ("wavelnth = 'EUV'", "Could not convert string 'EUV'"),
            ("wavelnth", "must be true or false"),
        ],
    )
    def test_wrong_for_what_the_headers_hold(
        self, archive: Path, run: Run, where: str, reason: str
    ) -> None:
        status, out, err = run(archive, "--where", where)
        assert (status, out) == (2, "")
        last = err.splitlines()[-1]
        assert last.startswith("dali-pipelines index: --where ")
        assert where in last
        assert reason in last
        assert os.listdir() == []


class TestRules:
    @pytest.fixture
    def solar(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Four frames, two of them unfit, and a file of another kind."""
        words: dict[str, dict[str, Any]]
        words = {"a": {}, "b": {"QUALITY": 1 << 17}, "c": {"LVL_NUM": 1.5}, "d": {"WAVELNTH": 193}}
        (tmp_path / "solar").mkdir()
        pixels, header = frame()
        for name, change in words.items():
            save(tmp_path / "solar" / f"{name}.fits", pixels, changed(header, **change))
        write(tmp_path / "solar" / "e.fits", {"WAVELNTH": 171, "QUALITY": 0})
        monkeypatch.chdir(tmp_path)
        return tmp_path / "solar"

    def test_rows_are_dropped_and_told(self, solar: Path, run: Run) -> None:
        status, out, err = run(solar, "--rules=aia")
        assert status == 0
        assert names() == ["a.fits", "d.fits"]
        assert (
            "5 files found: 2 rows kept, 0 rejected, 3 dropped by --rules "
            "(1 for QUALITY, 1 for LVL_NUM, 1 for INSTRUME), 0 dropped by --where." in out
        )
        assert f"dropped {solar / 'b.fits'}: QUALITY is 0x00020000" in err
        assert f"dropped {solar / 'c.fits'}: LVL_NUM is 1.5, expected 1: it is registered" in err
        assert f"dropped {solar / 'e.fits'}: INSTRUME is missing" in err

    def test_the_keys_that_they_need_are_kept(self, solar: Path, run: Run) -> None:
        run(solar, "--rules=aia", "--keys=CROTA2,HGLT_OBS")
        columns = saved().column_names
        assert columns[len(FIXED) : len(FIXED) + 2] == ["crota2", "hglt_obs"]
        assert set(columns[len(FIXED) + 2 :]) == {key.lower() for key in KEYS_OF_RULES} - {"crota2"}
        again = HeaderRules().select(Index.load("index.parquet").table)
        assert list(again.rows) == [0, 1]

    def test_with_a_condition(self, solar: Path, run: Run) -> None:
        status, out, _ = run(solar, "--rules=aia", "--where=wavelnth = 193 AND lvl_num = 1")
        assert (status, names()) == (0, ["d.fits"])
        assert (
            "3 dropped by --rules (1 for QUALITY, 1 for LVL_NUM, 1 for INSTRUME), 1 dropped" in out
        )

    def test_nothing_is_left(self, archive: Path, run: Run) -> None:
        status, _, err = run(archive, "--rules=aia")
        assert status == 1
        assert (
            err.splitlines()[-1]
            == "dali-pipelines index: nothing was written: --rules dropped all rows"
        )

    def test_only_some_are_named(
        self, solar: Path, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(script, "LISTED", 1)
        _, _, err = run(solar, "--rules=aia")
        assert err.splitlines()[-1] == "and 2 more (--rejected lists all)"

    def test_all_are_listed(self, solar: Path, run: Run) -> None:
        """After the files that cannot be read, with or without a row that is left."""
        (solar / "f.fits").write_text("text")
        run(solar, "--rules=aia", "--rejected=bad.csv")
        with open("bad.csv", newline="") as file:
            rows = list(csv.reader(file))
        assert [Path(path).name for path, _ in rows[1:]] == ["f.fits", "b.fits", "c.fits", "e.fits"]
        assert rows[2][1].startswith("QUALITY is 0x00020000")
        status, *_ = run(solar / "b.fits", "--rules=aia", "--rejected=bad.csv", "--overwrite")
        assert status == 1
        assert "b.fits,QUALITY is" in Path("bad.csv").read_text()

    def test_of_an_index(self, solar: Path, run: Run) -> None:
        run(solar, "--rules=aia", "--where=wavelnth > 0", "-o", "all.parquet")
        table = saved("all.parquet")
        table = table.set_column(table.column_names.index("quality"), "quality", [[0, 1 << 17]])
        Index(table).save("other.parquet")
        status, out, _ = run("other.parquet", "--rules=aia", "--rejected=bad.csv")
        assert (status, names()) == (0, ["a.fits"])
        assert Path("bad.csv").read_text().splitlines()[1].startswith(f"{solar / 'd.fits'},QUALITY")
        assert "2 rows found: 1 rows kept, 1 dropped by --rules (1 for QUALITY), 0 dropped" in out

    def test_of_an_index_that_does_not_tell(self, solar: Path, run: Run) -> None:
        run(solar, "-o", "all.parquet")
        status, _, err = run("all.parquet", "--rules=aia")
        assert status == 2
        assert "--rules: the Index has no column 'instrume', which the rules need: scan" in err

    def test_other_rules(self, solar: Path, run: Run) -> None:
        status, _, err = run(solar, "--rules=eit")
        assert status == 2
        assert "invalid choice: 'eit'" in err


class TestOut:
    def test_our_own_is_replaced(self, archive: Path, run: Run) -> None:
        run(archive)
        assert run(archive, "--where", "wavelnth = 193")[0] == 0
        assert names() == ["c.fits"]
        assert os.listdir() == ["index.parquet"]

    @pytest.mark.parametrize("kind", ["text", "parquet", "index with a column added"])
    def test_all_else_is_not(self, archive: Path, run: Run, kind: str) -> None:
        if kind == "text":
            Path("index.parquet").write_text("precious")
        elif kind == "parquet":
            Index.from_paths(["/a.fits"]).save("index.parquet")
        else:
            run(archive)
            table = saved()
            mine = table.append_column("mine", pa.array(range(table.num_rows)))
            Index(mine).save("index.parquet")
        before = Path("index.parquet").read_bytes()
        assert run(archive) == (
            2,
            "",
            (
                "dali-pipelines index: index.parquet exists and is not an Index of this command; "
                "--overwrite replaces it\n"
            ),
        )
        assert Path("index.parquet").read_bytes() == before
        assert run(archive, "--overwrite")[0] == 0
        assert len(saved()) == 4

    def test_arrow(self, archive: Path, run: Run) -> None:
        run(archive)
        assert run(archive, "-o", "index.arrow", "--where=wavelnth = 193")[0] == 0
        assert run(archive, "-o", "index.arrow")[0] == 0  # replaced, as it is ours
        index, same = Index.scan("index.arrow"), Index.scan("index.parquet")
        assert (index.table, index.digest) == (same.table, same.digest)
        assert run("index.arrow", "-o", "few.arrow", "--where=wavelnth = 193")[0] == 0
        assert Index.scan("few.arrow").path(0) == str(archive / "c.fits")
        assert not same.table.equals(Index.scan("few.arrow").table)
        same.save("mine.arrow")
        mine = pa.ipc.open_file("mine.arrow").read_all().append_column("mine", [range(4)])
        Index(mine).save("mine.arrow")
        message = "mine.arrow exists and is not an Index of this command"
        assert message in run(archive, "-o", "mine.arrow")[2]

    @pytest.mark.parametrize("option", ["-o", "--rejected"])
    def test_where_nothing_can_be_written(self, archive: Path, run: Run, option: str) -> None:
        for path in "missing/index.parquet", "folder.parquet":
            Path("folder.parquet").mkdir(exist_ok=True)
            assert run(archive, option, path) == (
                2,
                "",
                (
                    f"dali-pipelines index: {path} cannot be written: "
                    "expected a file in a writable folder\n"
                ),
            )

    def test_one_file_for_two_outputs(self, archive: Path, run: Run) -> None:
        status, _, err = run(archive, "-o", "a.parquet", "--rejected", "a.parquet")
        assert status == 2
        assert "--out and --rejected both name a.parquet" in err

    def test_what_is_read_is_not_replaced(self, archive: Path, run: Run) -> None:
        Path("i.toml").write_text(f'data = "{archive}"\n')
        Index.from_paths([archive / TEXT]).save("rows.parquet")
        for data, rejected, message in (
            ("--config=i.toml", "i.toml", "--config and --rejected both name i.toml"),
            (archive, archive / TEXT, f"{archive / TEXT} is a file that is read"),
            ("rows.parquet", archive / TEXT, f"{archive / TEXT} is a file that is read"),
        ):
            rules = ["--rules=aia"] if data == "rows.parquet" else []
            before = Path(rejected).read_bytes()
            status, _, err = run(data, "-o", "a.parquet", "--rejected", rejected, *rules)
            assert (status, message in err) == (2, True), err
            assert Path(rejected).read_bytes() == before
            assert not Path("a.parquet").exists()

    def test_suffix(self, archive: Path, run: Run) -> None:
        assert run(archive, "-o", "index.csv") == (
            2,
            "",
            (
                "dali-pipelines index: -o must end in .parquet or .arrow, as each Index does, "
                "got index.csv\n"
            ),
        )

    def test_disk_error(self, archive: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Index, "save", full)
        status, out, err = run(archive)
        assert (status, out) == (1, "")
        assert err.splitlines()[-1].startswith(
            "dali-pipelines index: index.parquet could not be written: "
        )


class TestUsage:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--num_proc=2"], "unrecognized arguments: --num_proc=2"),
            (["--frobnicate"], "unrecognized arguments: --frobnicate"),
            (["--num_processes=0"], "expected an integer from 1 on, got '0'"),
            (["--num_processes=two"], "expected an integer from 1 on, got 'two'"),
            (["--hdu=-1"], "expected the number of an HDU, its EXTNAME, or EXTNAME,EXTVER, got"),
            (["--planes=-1"], "expected all, or numbers as 0,2,3, got '-1'"),
            (["--keys=DATE-OBS,DATE_OBS"], "there would be two columns date_obs"),
            (["--keys=HEIGHT"], "there would be two columns height"),
            (
                ["--keys=LABEL", "--class_folders"],
                "--keys: there would be two columns label: leave",
            ),
            (
                ["--keys=OFFSET,NBYTES"],
                "file a row is: leave out OFFSET or NBYTES, or add the values by Index.with_column",
            ),
            (["--keys=ETAG"], "--keys: etag would say which bytes or version of its file a row is"),
            (["extra"], "unrecognized arguments: extra"),
        ],
    )
    def test_wrong_options(
        self, archive: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
    ) -> None:
        assert script.main([str(archive), *arguments]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert message in err
        assert err.count("\n") == 1
        assert os.listdir() == []

    def test_no_data(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert script.main([]) == 2
        assert "arguments are required: DATA" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            ("/no/such/folder", "/no/such/folder: no such folder or file"),
            (".", ".: no file in this folder ends in .fits,"),
            ("*.fits", "*.fits: no file matches this pattern"),
            ("a.csv", "a.csv: no such folder or file"),
        ],
    )
    def test_no_files(self, archive: Path, run: Run, data: str, message: str) -> None:
        del archive
        status, out, err = run(data)
        assert (status, out) == (2, "")
        assert err.startswith(f"dali-pipelines index: {message}")
        assert err.count("\n") == 1

    def test_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            script.main(["--help"])
        assert caught.value.code == 0
        assert "lower case with underscores" in " ".join(capsys.readouterr().out.split())


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

    def test_labels(self, photographs: Path, run: Run) -> None:
        status, out, err = run(photographs, "--class_folders")
        assert status == 0
        assert "4 files found: 3 rows kept, 1 rejected" in out
        assert "rejected" in err
        table = saved()
        # A class keeps its number though none of its files can be read.
        assert table["label"].to_pylist() == [1, 1, 2]
        assert table["class_name"].to_pylist() == ["cat", "cat", "dog"]
        assert table["codec"].to_pylist() == ["JPEG", "PNG", "JPEG"]
        assert table["height"].to_pylist() == [4, 4, 4]
        assert Index.load("index.parquet").columns(["label"]).row(2).hdu is None

    @pytest.mark.parametrize("name", ["train.parquet", "train.arrow"])
    def test_names_of_classes_are_kept(self, photographs: Path, run: Run, name: str) -> None:
        assert run(photographs, "--class_folders", "-o", name)[0] == 0
        assert Index.load(name).classes == ("bad", "cat", "dog")
        assert run(name, "--where", "label = 2", "-o", "dogs.arrow")[0] == 0
        assert Index.load("dogs.arrow").classes == ("bad", "cat", "dog")
        assert run(name, "-o", name.replace("train", "again"))[0] == 0  # still one of this script's
        assert run(photographs, "--class_folders", "-o", name)[0] == 0

    def test_labels_of_the_training_files(self, photographs: Path, run: Run) -> None:
        assert run(photographs, "--class_folders", "-o", "train.arrow")[0] == 0
        (photographs / "cat").rename(photographs.parent / "cat")
        flags = "--class_folders", "--classes", "train.arrow"
        assert run(photographs, *flags)[0] == 0
        assert saved()["label"].to_pylist() == [2]
        (photographs / "dog").rename(photographs / "wolf")
        status, _, err = run(photographs, *flags)
        assert (status, "class folders 'wolf' are not among the 3 classes" in err) == (2, True)
        status, _, err = run(photographs, "--classes", "train.arrow")
        assert (status, "--classes needs --class_folders" in err) == (2, True)

    def test_where(self, photographs: Path, run: Run) -> None:
        assert run(photographs, "--class_folders", "--where", "class_name = 'dog'")[0] == 0
        assert names() == ["3.JPEG"]

    def test_rows_of_mcus(self, photographs: Path, run: Run) -> None:
        status, out, _ = run(photographs, "--mcu_rows")
        assert status == 0
        assert "Rows of MCUs noted of 2 files, 1 are not coded so." in out
        noted = saved()["mcu_rows"].to_pylist()
        assert [rows is not None for rows in noted] == [True, False, True]

    def test_without(self, photographs: Path, run: Run) -> None:
        assert run(photographs)[0] == 0
        assert saved().column_names == FIXED + KEYS
        status, _, err = run(photographs, "--where", "label = 1")
        assert status == 2
        assert '"label" not found' in err

    def test_a_file_beside_the_folders(self, photographs: Path, run: Run) -> None:
        (photographs / "5.jpg").touch()
        status, _, err = run(photographs, "--class_folders")
        assert status == 2
        assert "expected one subfolder for each class" in err

    def test_no_folder(self, photographs: Path, run: Run) -> None:
        status, _, err = run(f"{photographs}/*", "--class_folders")
        assert (status, err) == (
            2,
            f"dali-pipelines index: --class_folders needs a folder, got {photographs}/*\n",
        )


SUN = {
    "171_0.fits": (171, "2015-01-01T00:00:00.34"),
    "193_0.fits": (193, "2015-01-01T00:00:06.84"),
    "171_1.fits": (171, "2015-01-01T00:00:12.34"),
    "193_2.fits": (193, "2015-01-01T00:00:30.84"),
    "171_2.fits": (171, "2015-01-01T00:00:24.34"),
}


class TestGroup:
    @pytest.fixture
    def sun(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        for name, (wavelength, moment) in SUN.items():
            quality = 4 if name == "193_2.fits" else 0
            header = {"WAVELNTH": wavelength, "T_OBS": f"{moment}Z", "QUALITY": quality}
            write(tmp_path / "sun" / name, header)
        monkeypatch.chdir(tmp_path)
        return tmp_path / "sun"

    def test_of_a_scan(self, sun: Path, run: Run) -> None:
        status, out, err = run(sun, "--group", "171,193", "--tolerance=7")
        assert (status, err) == (0, "")
        assert "5 files found: 5 rows kept, 0 rejected, 0 dropped by --where.\n" in out
        dropped = "1 of 3 samples dropped: 193 is missing in 1"
        assert f"\n2 samples of 2 channels made of them; {dropped}.\n" in out
        assert out.endswith(f" files/s. Written to {Path.cwd()}/index.parquet\n")
        table = saved()
        assert names() == ["171_1.fits", "171_2.fits"]
        assert table["dt_193"].to_pylist() == [-5.5, 6.5]
        columns = Index.load("index.parquet").columns(parts=("193",))
        part = columns.row(0).part("193")
        assert part is not None
        assert part.path == str(sun / "193_0.fits")
        assert part.hdu == 0

    @pytest.mark.parametrize("suffix", ["parquet", "csv"])
    def test_of_an_index(self, sun: Path, run: Run, suffix: str) -> None:
        run(sun)
        data = f"index.{suffix}"
        if suffix == "csv":
            saved().to_pandas().to_csv(data)
        arguments = ("--group=171, 193", "--missing=keep", "--where=quality = 0", "--tolerance=7s")
        status, out, err = run(data, "-o", "samples.parquet", *arguments)
        assert (status, err) == (0, "")
        assert out == (
            "5 rows found: 4 rows kept, 1 dropped by --where.\n"
            "3 samples of 2 channels made of them, 193 is missing in 2.\n"
            f"Written to {Path.cwd()}/samples.parquet\n"
        )
        found = saved("samples.parquet")["path_193"].to_pylist()
        assert found == [None, str(sun / "193_0.fits"), None]
        assert run(sun, "-o", "again.parquet", *arguments)[0] == 0
        assert Index.load("again.parquet").digest == Index.load("samples.parquet").digest

    def test_an_index_is_filtered(self, sun: Path, run: Run) -> None:
        run(sun)
        assert (
            run("index.parquet", "-o", "few.parquet", "--where=\"T_OBS\" > '2015-01-01 00:00:20'")[
                0
            ]
            == 0
        )
        assert names("few.parquet") == ["171_2.fits", "193_2.fits"]
        assert saved("few.parquet").column_names == saved().column_names

    def test_cadence(self, sun: Path, run: Run) -> None:
        arguments = ("--by=wavelnth", "--time=t_obs", "--cadence=1min", "--tolerance=10")
        assert run(sun, "--group=193,171", *arguments)[0] == 0
        assert saved()["dt_171"].to_pylist() == [0.34]

    def test_rows_in_no_sample(self, sun: Path, caplog: pytest.LogCaptureFixture) -> None:
        for name in ("171_3.fits", "171_4.fits"):
            write(sun / name, {"WAVELNTH": 171, "T_OBS": f"{SUN['171_1.fits'][1]}Z"})
        assert script.main([str(sun), "--group=171"]) == 0
        [message] = caplog.messages
        assert message.startswith("2 of 5 rows are in no sample: they have the 't_obs' of another")
        assert message.endswith(f"first: {sun}/171_3.fits")

    def test_sequences(self, sun: Path, run: Run) -> None:
        arguments = ("--offsets", "-12s,0", "--tolerance=1", "--missing=keep")
        status, out, _ = run(sun, "--group=171,193", *arguments)
        assert status == 0
        assert "\n3 samples of 2 channels at 2 times made of them, 171-12s is missing" in out
        assert " in 1, 193-12s is missing in 3, 193+0 is missing in 3.\n" in out
        index = Index.load("index.parquet")
        assert (index.channels, index.offsets) == (("171", "193"), ("-12s", "0"))
        status, out, _ = run(sun, "--where=wavelnth = 171", "--overwrite", *arguments[:3])
        dropped = "1 of 3 samples dropped: -12s is missing in 1"
        assert f"\n2 samples of 2 frames made of them; {dropped}.\n" in out
        assert Index.load("index.parquet").parts == ("-12s", "0")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--tolerance=3"], "--tolerance needs --group or --offsets"),
            (["--missing=keep"], "--missing needs --group"),
            (["--group="], "--group: channels must be a sequence of at least one value, got ()"),
            (["--group=171,171"], "--group: channels must be given once each, got 171 again"),
            (["--group=171", "--tolerance=far"], "--group: tolerance must be seconds, or"),
            (["--group=171", "--missing=nan"], "invalid choice: 'nan'"),
            (["--offsets="], "--offsets: offsets must be a sequence of durations, such as"),
            (["--offsets=0,soon"], "--offsets: offsets must be seconds, or a duration such as"),
            (["--offsets=-12s,0"], "--offsets: offsets must be more than twice the tolerance"),
            (["--offsets=0", "--time=t_rec"], "--offsets: grouping needs a column 't_rec': the"),
            (["--group=171", "--by=channel"], "--group: grouping needs a column 'channel': the"),
            (["--group=171", "--keys=WAVELNTH"], "--group: grouping needs a column 't_obs': the"),
            (["--group=171", "--time=hdu"], "--group: column 'hdu' must hold times, it is int64"),
        ],
    )
    def test_wrong_usage(self, sun: Path, run: Run, arguments: list[str], message: str) -> None:
        status, out, err = run(sun, *arguments)
        assert (status, out) == (2, "")
        assert message in err
        assert err.count("\n") == 1
        assert os.listdir() == ["sun"]

    def test_a_column_that_is_missing_is_told_before_the_scan(
        self, sun: Path, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(script, "scan", None)
        assert "'channel'" in run(sun, "--group=171", "--by=channel")[2]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                ["--group=171,94"],
                "--group: column 'wavelnth' has no '94', it has 171 (3 rows), 193",
            ),
            (
                ["--group=171,193", "--tolerance=1"],
                "--group: no sample has all channels within 1 s",
            ),
            (["--group=171", "--where=wavelnth = 1"], "nothing was written: --where dropped all"),
        ],
    )
    def test_nothing_left(self, sun: Path, run: Run, arguments: list[str], message: str) -> None:
        status, out, err = run(sun, *arguments)
        assert (status, out) == (1, "")
        assert err.startswith(f"dali-pipelines index: {message}")
        assert os.listdir() == ["sun"]

    def test_nothing_left_is_told_with_flags(self, sun: Path, run: Run) -> None:
        _, _, err = run(sun, "--group=171,193", "--tolerance=1")
        assert err.endswith(
            ": of 3 times, 3 have '171', 0 have '193' (the nearest is 5.5 s off); use a larger "
            "--tolerance, fewer channels, or --missing keep\n"
        )

    @pytest.mark.parametrize(
        "option", ["--keys=WAVELNTH", "--hdu=0", "--hdus=1", "--class_folders"]
    )
    def test_options_of_a_scan(self, sun: Path, run: Run, option: str) -> None:
        run(sun)
        status, _, err = run("index.parquet", "-o", "samples.parquet", option)
        assert status == 2
        name = option.partition("=")[0]
        assert err.startswith(
            f"dali-pipelines index: {name} is for a scan of files, and index.parquet is a t"
        )

    def test_the_index_that_is_read_is_not_replaced(self, sun: Path, run: Run) -> None:
        run(sun)
        status, _, err = run("index.parquet", "--group=171", "--overwrite")
        assert status == 2
        assert "--data and --out both name" in err
        assert len(saved()) == 5

    def test_a_table_without_paths(self, sun: Path, run: Run) -> None:
        Path("facts.csv").write_text("name\na.fits\n")
        status, _, err = run("facts.csv")
        assert (status, err) == (
            2,
            "dali-pipelines index: facts.csv: expected a column 'path', got ['name']\n",
        )


COMMAND = [sys.executable, "-W", "error", str(ROOT / "scripts" / "index.py")]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def test_command(archive: Path) -> None:
    for number in range(40):
        write(archive / f"many/{number:03d}.fits", {})
    found = subprocess.run(
        [*COMMAND, str(archive), "--num_processes=2", "--where=wavelnth=171"],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(
        "46 files found: 3 rows kept, 2 rejected, 41 dropped by --where.\n"
    )
    assert [line.split()[0] for line in found.stderr.splitlines()] == [
        f"{archive}:",  # what is left out
        "rejected",
        "rejected",
        "date_obs:",
    ]
    assert len(saved()) == 3


DEAD_STORE = """
import os, warnings
warnings.simplefilter("error")

def open_slowly(path, *args, open=os.open, **kwargs):
    if str(path).endswith(".fits"):
        with os.fdopen(open(path, os.O_RDONLY), "rb") as pipe:
            pipe.read()
    return open(path, *args, **kwargs)

os.open = open_slowly
if __name__ == "__main__":
    from dali_pipelines.cli.index.main import main
    raise SystemExit(main())
"""
"""The command, in whose processes files that are pipes block, as on a dead server."""


class TestEnds:
    """What becomes of the processes while each is stuck in a file that never ends."""

    @pytest.fixture
    def stuck(
        self,
        tmp_path: Path,
        tmp_path_factory: pytest.TempPathFactory,
        request: pytest.FixtureRequest,
    ) -> Iterator[subprocess.Popen[str]]:
        """Start the command in a process group of its own, on two chunks of pipes."""
        dead_store = tmp_path_factory.mktemp("script") / "dead_store.py"
        dead_store.write_text(DEAD_STORE)
        (tmp_path / "archive").mkdir()
        for number in range(2 * CHUNK_FILES):
            os.mkfifo(tmp_path / f"archive/{number:02d}.fits")
        # Forks of a `Job` would hardly be found while they start.
        start = subprocess.Popen if "starting" in request.node.name else Job
        command = start(
            [sys.executable, str(dead_store), "archive", "--num_processes=2"],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
            start_new_session=True,
        )
        try:
            yield command
        finally:
            if command.poll() is None:
                os.killpg(command.pid, signal.SIGKILL)
            command.communicate()

    @pytest.fixture
    def reading(self, stuck: subprocess.Popen[str], tmp_path: Path) -> Iterator[list[int]]:
        """Wait until both child processes have opened a pipe; give their numbers."""
        found = children(stuck)
        pipes = []
        for number in 0, CHUNK_FILES:
            path = tmp_path / f"archive/{number:02d}.fits"
            # Without a reader at the other end, this fails.
            pipes.append(until(partial(os.open, path, os.O_WRONLY | os.O_NONBLOCK)))
        yield found
        for pipe in pipes:
            os.close(pipe)

    @pytest.mark.parametrize("moment", ["starting", "reading"])
    def test_interrupt(
        self,
        stuck: subprocess.Popen[str],
        tmp_path: Path,
        moment: str,
        request: pytest.FixtureRequest,
    ) -> None:
        pids = children(stuck) if moment == "starting" else request.getfixturevalue("reading")
        os.killpg(stuck.pid, signal.SIGINT)  # as a terminal does
        _, err = stuck.communicate(timeout=60)
        assert stuck.returncode == 130
        assert err == "dali-pipelines index: interrupted, nothing was written\n"
        assert_ended(pids)
        assert os.listdir(tmp_path) == ["archive"]

    def test_a_process_is_killed(
        self, stuck: subprocess.Popen[str], reading: list[int], tmp_path: Path
    ) -> None:
        os.kill(reading[0], signal.SIGKILL)
        _, err = stuck.communicate(timeout=60)
        assert stuck.returncode == 1
        assert (
            err == "dali-pipelines index: one of 2 processes was killed; if for memory, try fewer\n"
        )
        assert_ended(reading)
        assert os.listdir(tmp_path) == ["archive"]

    def test_the_parent_is_killed(self, stuck: subprocess.Popen[str], reading: list[int]) -> None:
        stuck.kill()
        stuck.communicate(timeout=60)
        assert_ended(reading)


def children(command: subprocess.Popen[str]) -> list[int]:
    """Wait for both child processes, and return their numbers."""
    first = int(isinstance(command, Job))  # what a `Job` forks before all else

    def find() -> list[int]:
        # By age: numbers begin again at the lowest.
        found = sorted(psutil.Process(command.pid).children(), key=psutil.Process.create_time)
        pids = [each.pid for each in found[first:] if "resource_tracker" not in str(each.cmdline())]
        if len(pids) != 2:
            raise OSError(f"expected two child processes, found {pids}")
        return pids

    return until(find)


def assert_ended(pids: list[int]) -> None:
    def find() -> None:
        if left := [pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists()]:
            raise OSError(f"still there: {left}")

    until(find)


def until(succeeds: Callable[[], Result], seconds: int = 30) -> Result:
    """Try again on OSError, for a while."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return succeeds()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


class TestHdusAndPlanes:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A mosaic of three HDUs, one of which is a cube, and a file with one image."""
        monkeypatch.chdir(tmp_path)
        header = fits.Header({"GAIN": 2.5})
        cube = fits.CompImageHDU(np.ones((3, 4, 5), np.int16), header, name="CUBE")
        hdus = [fits.PrimaryHDU(), fits.ImageHDU(np.zeros((4, 5)), name="SCI", ver=2), cube]
        fits.HDUList(hdus).writeto(tmp_path / "a.fits")
        fits.PrimaryHDU(np.zeros((4, 5), np.int16)).writeto(tmp_path / "b.fits")
        return tmp_path

    def test_all_hdus_and_planes(self, folder: Path, run: Run) -> None:
        keys = "--keys=GAIN,NAXIS3"
        assert run(folder, "--hdu=all", "--planes=all", keys, "--where=plane < 2")[0] == 0
        table = saved()
        assert names() == ["a.fits"] * 3 + ["b.fits"]
        assert table["hdu"].to_pylist() == [1, 2, 2, 0]
        assert table["plane"].to_pylist() == [0, 0, 1, 0]
        assert table["planes"].to_pylist() == [1, 3, 3, 1]
        assert table["gain"].to_pylist() == [None, 2.5, 2.5, None]
        assert table["naxis3"].to_pylist() == [None, 3, 3, None]

    def test_by_name(self, folder: Path, run: Run) -> None:
        for name in ("sci", "SCI,2"):
            status, _, err = run(folder, f"--hdu={name}")
            assert status == 0
            assert saved()["hdu"].to_pylist() == [1]
            assert "b.fits: there is no HDU " in err

    @pytest.mark.parametrize(
        ("hdus", "numbers"),
        [
            ("1,2", [1, 2]),
            ("CUBE,sci", [1, 2]),
            ("*", [1, 2, 0]),
            ("c*", [2]),
            ("0", [0]),
            (" 2, 1 ,2", [1, 2]),
        ],
    )
    def test_several_hdus(self, folder: Path, run: Run, hdus: str, numbers: list[int]) -> None:
        status, _, err = run(folder, f"--hdus={hdus}", "--rejected=bad.csv")
        assert status == 0
        assert saved()["hdu"].to_pylist() == numbers
        rejected = list(csv.reader(Path("bad.csv").read_text().splitlines()))[1:]
        assert len(rejected) == 2 - len(set(names()))
        assert err.count("no image in HDU ") == len(rejected)

    def test_a_file_lacks_one_of_several_hdus(self, folder: Path, run: Run) -> None:
        status, _, err = run(folder / "a.fits", "--hdus=SCI,ERR*")
        assert status == 1
        assert "no image in HDU 'ERR*', the file has images in 1 (SCI), 2 (CUBE)" in err
        status, _, err = run(folder / "a.fits", "--hdus=0,1")
        assert status == 1
        assert "no image in HDU 0, the file has images in 1 (SCI), 2 (CUBE)" in err
        status, _, err = run(folder, "--hdus=1", "--hdu=1")
        assert status == 2
        assert "--hdu and --hdus exclude each other" in err

    def test_several_hdus_of_a_configuration(self, folder: Path, run: Run) -> None:
        Path("index.toml").write_text('data = "a.fits"\nhdus = [1, "cu*"]')
        assert run("--config=index.toml")[0] == 0
        assert saved()["hdu"].to_pylist() == [1, 2]

    def test_a_plane_that_is_not_there(self, folder: Path, run: Run) -> None:
        status, _, err = run(folder, "--hdu=all", "--planes=0,2")
        assert status == 1
        assert "there is no plane 2, the image has 1" in err

    @pytest.mark.parametrize(
        "flag", ["--hdu=-1", "--hdu=", "--planes=-1", "--planes=x", "--hdus=", "--hdus=1,"]
    )
    def test_wrong_usage(self, folder: Path, run: Run, flag: str) -> None:
        assert run(folder, flag)[0] == 2


def test_an_index_of_a_moved_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    index = Index(pa.table({"path": ["/data/a", "/data/b"], "x": [1, 2]}))
    index.save("index.parquet")
    for new, there in (("/scratch", "/scratch"), ("~/a=b/", f"{tmp_path}/home/a=b")):
        assert script.main(["index.parquet", "-o", "new.arrow", "--moved", "/data", str(new)]) == 0
        made = Index.load("new.arrow")
        assert made.table["path"].to_pylist() == [f"{there}/a", f"{there}/b"]
        assert made.digest == index.digest
    for flags, reason in (
        (["index.parquet", "--moved", "/date", "/scratch"], "the first is /data/a"),
        (["index.parquet", "--moved", "/data"], "expected 2 arguments"),
        (["index.parquet", "--moved", "/data", "ftp://x/y"], "ftp"),
        (["folder", "--moved", "/data", "/scratch"], "--moved is for an Index"),
    ):
        assert script.main([*flags, "-o", "other.parquet"]) == 2
        assert reason in capsys.readouterr().err
