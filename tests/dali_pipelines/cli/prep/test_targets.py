"""Where files go that are made of others, and folders that may be written to."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from dali_pipelines.cli.errors import CommandError
from dali_pipelines.cli.prep.targets import Conversion, claim, targets_of, unfinished_folder
from readers import Index
from readers.contract import Row

SUFFIXES = (".fits", ".fits.gz", ".fz")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "archive"
    for name in "a.fits", "2011/b.fits", "2011/02/c.fits.gz", "2012/d.fits.fz", "2012/e.fz":
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def made(*files: object, out: Path) -> dict[str, str]:
    """Return the names of the files that are made below `out`, each with its source."""
    targets = targets_of([*map(str, files)], str(out), SUFFIXES)
    assert [row.number for row, _ in targets] == [*range(len(targets))]
    return {os.path.relpath(path, out): os.path.basename(row.path) for row, path in targets}


class TestNames:
    def test_subfolders_and_suffixes(self, archive: Path, tmp_path: Path) -> None:
        assert made(archive, out=tmp_path / "out") == {
            "a.fits": "a.fits",
            "2011/b.fits": "b.fits",
            "2011/02/c.fits": "c.fits.gz",
            "2012/d.fits": "d.fits.fz",
            "2012/e.fits": "e.fz",
        }

    def test_of_files_globs_and_indexes(self, archive: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        assert [*made(archive / "2011/02/c.fits.gz", out=out)] == ["c.fits"]
        assert [*made(archive / "201*/**/*.fits*", out=out)] == [
            "2011/02/c.fits",
            "2011/b.fits",
            "2012/d.fits",
        ]
        index = tmp_path / "index.parquet"
        Index.from_paths(archive / "2011" / name for name in ("b.fits", "02/c.fits.gz")).save(index)
        assert [*made(index, out=out)] == ["b.fits", "02/c.fits"]

    def test_every_hdu_of_a_file(self, archive: Path, tmp_path: Path) -> None:
        table = pa.table({"path": [str(archive / "a.fits")] * 2, "hdu": [1, 2]})
        Index(table).save(tmp_path / "index.parquet")
        arguments = [str(tmp_path / "index.parquet")], str(tmp_path / "out"), SUFFIXES
        with pytest.raises(CommandError, match="would be written to"):
            targets_of(*arguments)
        with pytest.raises(CommandError, match="the Index names HDUs 1 to 2, but hdu=1"):
            targets_of(*arguments, hdu=1)
        ((row, path),) = targets_of(*arguments, every_hdu=True)
        assert (row.hdu, path) == (None, str(tmp_path / "out/a.fits"))

    @pytest.mark.parametrize(
        ("columns", "reason"),
        [
            ({"path": ["https://a.org/b.fits"]}, "https://a.org/b.fits: prep reads local files"),
            ({"path": ["/a.tar"], "offset": [512], "nbytes": [9]}, "its rows are parts of files"),
        ],
    )
    def test_files_that_are_not_local(
        self, tmp_path: Path, columns: dict[str, list[object]], reason: str
    ) -> None:
        Index(pa.table(columns)).save(tmp_path / "index.parquet")
        with pytest.raises(CommandError, match=reason):
            targets_of([str(tmp_path / "index.parquet")], str(tmp_path / "out"), SUFFIXES)

    def test_each_once(self, archive: Path, tmp_path: Path) -> None:
        found = made(archive / "2011", archive, out=tmp_path / "out")
        assert len(found) == 5
        assert {"b.fits", "02/c.fits", "2012/d.fits"} < {*found}

    def test_two_of_one_name(self, archive: Path, tmp_path: Path) -> None:
        (archive / "a.fits.gz").touch()
        with pytest.raises(
            CommandError, match=r"both .*/a\.fits and .*/a\.fits\.gz would be written"
        ):
            made(archive, out=tmp_path / "out")
        (archive / "a.fits.gz").unlink()
        (archive / "2011/a.fits").touch()
        with pytest.raises(
            CommandError, match=r"both .*2011/a\.fits and .*archive/a\.fits would be"
        ):
            made(archive / "2011/a.fits", archive, out=tmp_path / "out")

    def test_what_was_written_is_not_read(self, archive: Path) -> None:
        assert len(made(archive, out=archive / "2011")) == 3
        with pytest.raises(CommandError, match=r"all files are in .*archive, .*output folder"):
            made(archive, out=archive)

    def test_nothing_there(self, tmp_path: Path) -> None:
        with pytest.raises(CommandError, match="no such folder or file"):
            made(tmp_path / "none", out=tmp_path / "out")


class TestClaim:
    def test_the_same_settings_again(self, archive: Path, tmp_path: Path) -> None:
        out = tmp_path / "a/new/folder"
        targets = targets_of([str(archive)], str(out), SUFFIXES)
        claim(str(out), "made.json", {"order": 3, "pair": (1, 2)}, targets)
        (out / "a.fits").touch()
        claim(str(out), "made.json", {"order": 3, "pair": (1, 2)}, targets)
        assert json.loads((out / "made.json").read_text()) == {"order": 3, "pair": [1, 2]}
        assert sorted(os.listdir(out)) == ["a.fits", "made.json"]
        with pytest.raises(CommandError, match=r"made\.json: .* made with order 3, not 1: .* -o"):
            claim(str(out), "made.json", {"order": 1, "pair": (1, 2)}, targets)

    def test_files_of_others(self, archive: Path, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out/a.fits").touch()
        targets = targets_of([str(archive)], str(tmp_path / "out"), SUFFIXES)
        with pytest.raises(CommandError, match=r"a\.fits exists, and there is no .*made\.json"):
            claim(str(tmp_path / "out"), "made.json", {}, targets)

    @pytest.mark.parametrize("text", ["", "[]", "{"])
    def test_a_damaged_record(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "made.json").write_text(text)
        with pytest.raises(CommandError, match=r"made\.json is damaged"):
            claim(str(tmp_path), "made.json", {}, [])

    @pytest.mark.parametrize("scale", [1, 2])
    def test_another_process_of_a_job_array_may_begin_meanwhile(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: int
    ) -> None:
        def begun(path: str) -> bool:
            (tmp_path / "made.json").write_text('{"scale": 1}')
            return True

        monkeypatch.setattr(os.path, "lexists", begun)
        targets = [Conversion(Row(0, "a.fits"), str(tmp_path / "a.fits"))]
        if scale == 1:
            claim(str(tmp_path), "made.json", {"scale": scale}, targets)
        else:
            with pytest.raises(CommandError, match="made with scale 1, not 2"):
                claim(str(tmp_path), "made.json", {"scale": scale}, targets)

    def test_no_folder(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(CommandError, match=r"file cannot be written: "):
            claim(str(tmp_path / "file"), "made.json", {}, [])


class TestParts:
    def test_it_goes_and_takes_what_was_left(self, tmp_path: Path) -> None:
        (tmp_path / ".part-left").mkdir()
        (tmp_path / ".part-left/half.fits").touch()
        with unfinished_folder(str(tmp_path)) as folder:
            assert os.listdir(tmp_path) == [os.path.basename(folder)]
            (Path(folder) / "half.fits").touch()
        assert os.listdir(tmp_path) == []

    def test_two_runs_at_once_leave_each_other_alone(self, tmp_path: Path) -> None:
        with unfinished_folder(str(tmp_path)) as one, unfinished_folder(str(tmp_path)) as other:
            assert one != other
            assert {*os.listdir(tmp_path)} == {os.path.basename(path) for path in (one, other)}
