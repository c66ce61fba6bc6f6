"""Wrong usage of each command: the flag, its value and the remedy are named, no file changes."""

from __future__ import annotations

import shlex
import struct
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits
from image_files import pillow, rgb

from dali_pipelines import Preprocessor, fits_pipeline, jpeg_pipeline
from readers import Index

ALWAYS = {
    "run": "--device=cpu --batch_size=4 --num_read_processes=1 ",
    "doctor": "--device=cpu ",
    "prep": "-o=out ",
    "show": "-o=sheet.png ",
    "verify": "--device=cpu ",
    "export": "-o=models ",
}
"""Flags before those of the table."""

INDEX = [
    ("", "DATA", "", "required"),
    ("archive extra", "", "extra", "--help"),
    ("archive --frobnicate", "--frobnicate", "", "--help"),
    ("archive --num_proc=2", "--num_proc", "2", "--num_processes"),
    ("archive --num_processes=0", "--num_processes", "'0'", "from 1"),
    ("archive --num_processes=two", "--num_processes", "'two'", "from 1"),
    ("archive --hdu=-1", "--hdu", "'-1'", "EXTNAME"),
    ("archive --hdu=", "--hdu", "''", "EXTNAME"),
    ("archive --hdus=", "--hdus", "''", "'SCI*'"),
    ("archive --hdus=1,", "--hdus", "'1,'", "'SCI*'"),
    ("archive --hdus=1 --hdu=1", "--hdus", "--hdu", "exclude"),
    ("archive --planes=-1", "--planes", "'-1'", "0,2,3"),
    ("archive --planes=x", "--planes", "'x'", "all"),
    ("archive --keys=DATE-OBS,DATE_OBS", "--keys", "date_obs", "two"),
    ("archive --keys=HEIGHT", "--keys", "height", "two"),
    ("archive --keys=ETAG", "--keys", "etag", ""),
    ("archive --keys=LABEL --class_folders", "--keys", "label", "leave"),
    ("archive --keys=OFFSET,NBYTES", "--keys", "OFFSET", "leave out"),
    ("archive --rules=eit", "--rules", "'eit'", "aia"),
    ("archive --classes=rows.parquet", "--classes", "", "--class_folders"),
    ("'photos/*' --class_folders", "--class_folders", "photos/*", "folder"),
    ("photos --class_folders", "photos", "a.png", "subfolder"),
    ("/no/such/folder", "", "/no/such/folder", "no such folder"),
    ("models", "", "models", ".fits"),
    ("'*.fits'", "", "*.fits", "no file matches"),
    ("a.csv", "", "a.csv", "no such"),
    ("names.csv", "'path'", "names.csv", "['name']"),
    ("archive -o=index.csv", "-o", "index.csv", ".parquet or .arrow"),
    ("archive -o=missing/a.parquet", "", "missing/a.parquet", "writable folder"),
    ("archive -o=folder.parquet", "", "folder.parquet", "writable folder"),
    ("archive --rejected=missing/bad.csv", "", "missing/bad.csv", "writable folder"),
    ("archive -o=x.parquet --rejected=x.parquet", "--out", "x.parquet", "--rejected"),
    ("archive --rejected=archive/z.fits", "", "archive/z.fits", "another name"),
    ("rows.parquet --rules=aia --rejected=archive/a.fits", "", "archive/a.fits", "another name"),
    ("--config=index.toml --rejected=index.toml", "--config", "index.toml", "--rejected"),
    ("rows.parquet -o=rows.parquet --group=171 --overwrite", "--data", "rows.parquet", "--out"),
    # Flags for files, and not for the rows of an Index.
    ("rows.parquet --verify", "--verify", "rows.parquet", "scan of files"),
    ("rows.parquet --keys=WAVELNTH", "--keys", "rows.parquet", "scan of files"),
    ("rows.parquet --hdu=0", "--hdu", "rows.parquet", "scan of files"),
    ("rows.parquet --hdus=1", "--hdus", "rows.parquet", "scan of files"),
    ("rows.parquet --class_folders", "--class_folders", "rows.parquet", "scan of files"),
    ("rows.parquet --num_shards=3 --shard_id=0", "--num_shards", "rows.parquet", "scan of files"),
    ("archive --moved /data /scratch", "--moved", "archive", "Index"),
    ("rows.parquet --moved /date /scratch", "", "/date", "archive/a.fits"),
    ("rows.parquet --moved /data", "--moved", "", "2 arguments"),
    ("rows.parquet --moved /data ftp://x/y", "--moved", "ftp", ""),
    # Samples.
    ("archive --tolerance=3", "--tolerance", "", "--group or --offsets"),
    ("archive --missing=keep", "--missing", "", "--group"),
    ("archive --group=", "--group", "()", "at least one"),
    ("archive --group=171,171", "--group", "171", "twice"),
    ("archive --group=171 --tolerance=far", "tolerance", "'far'", "seconds"),
    ("archive --group=171 --missing=nan", "--missing", "'nan'", "keep"),
    ("archive --offsets=", "--offsets", "", "durations"),
    ("archive --offsets=0,soon", "--offsets", "'soon'", "seconds"),
    ("archive --offsets=-12s,0", "--offsets", "tolerance", "twice"),
    ("archive --offsets=0 --time=t_rec", "--offsets", "'t_rec'", "column"),
    ("archive --group=171 --by=channel", "--group", "'channel'", "column"),
    ("archive --group=171 --keys=WAVELNTH", "--group", "'t_obs'", "column"),
    # Cutouts.
    ("archive --size=8", "--size", "", "--cutouts"),
    ("archive --subpixel", "--subpixel", "", "--cutouts"),
    ("archive --cutouts=stars.csv", "--cutouts", "", "--size"),
    ("archive --cutouts=stars.csv --size=0", "--size", "'0'", "64,48"),
    ("archive --cutouts=stars.csv --size=1,2,3", "--size", "'1,2,3'", "64,48"),
    ("archive --cutouts=stars.csv --size=8 --columns=mag,mag", "--columns", "'mag,mag'", "once"),
    ("archive --cutouts=stars.csv --size=8 --columns=,", "--columns", "','", "once"),
    ("archive --cutouts=stars.csv --size=8 --columns=Mag", "stars.csv", "'Mag'", "mag?"),
    ("archive --cutouts=stars.csv --size=8 --ra=RA", "stars.csv", "'RA'", "ra?"),
    ("archive --cutouts=stars.csv --size=8 --group=1,2", "--cutouts", "", "--group"),
    ("archive --cutouts=none.csv --size=8", "--cutouts", "none.csv", "No such file"),
    ("archive --cutouts=archive/a.fits --size=8", "--cutouts", "archive/a.fits", "CSV"),
    (
        "archive --cutouts=rows.parquet --size=8 -o=rows.parquet --overwrite",
        "--cutouts",
        "rows.parquet",
        "--out",
    ),
    # Splits: their shares and columns are checked without a scan.
    ("rows.parquet --split_by=night", "--split_by", "", "--split"),
    ("rows.parquet --split_seed=1", "--split_seed", "", "--split"),
    ("rows.parquet --block=1d", "--block", "", "--split"),
    ("rows.parquet --split=a=1 --gap=1d", "--gap", "", "--block"),
    ("rows.parquet --split=a=1 --block=1d", "--block", "", "--split_by"),
    ("rows.parquet --split=a=1 --time_order", "--time_order", "", "--split_by"),
    ("rows.parquet --time_order", "--time_order", "", "--split"),
    ("rows.parquet --split=a=1 --split_by=t --time_order --block=1d", "--block", "", "exclude"),
    ("rows.parquet --split=a=1 --split_by=night --block=1d --gap=2d", "gap", "", "shorter"),
    ("rows.parquet --split=a=1 --split_seed=-1", "seed", "-1", "from 0"),
    ("rows.parquet --split=a=0.5", "--split", "0.5", "add up to 1"),
    ("rows.parquet --split=a=0.5,a=0.5", "--split", "'a=0.5,a=0.5'", "train=0.9,val=0.1"),
    ("rows.parquet --split=a/b=1", "--split", "'a/b=1'", "train=0.9,val=0.1"),
    ("rows.parquet --split=a=half", "--split", "'a=half'", "train=0.9,val=0.1"),
    ("rows.parquet --split=a=1 --split_by=nigth", "--split", "'nigth'", "night?"),
    # Containers.
    ("a.tar --class_folders", "--class_folders", "a.tar", "scan of files"),
    ("a.tar --keys=OFFSET", "--keys", "offset", "leave out"),
    ("a.tar --container=recordio", "", "a.tar", "RecordIO"),
    ("rows.parquet --container=tar", "--container", "rows.parquet", "containers"),
    ("a.rec --image=x", "--image", "", "tar"),
    ("cut.tar", "", "cut.tar", "cut off"),
    ("none.tar", "", "none.tar", "no such"),
    # Executors.
    ("archive --executor=nothing", "--executor", "nothing", "MODULE:FUNCTION"),
    ("archive --executor=no_such_module:f", "--executor", "'no_such_module'", "module"),
    ("archive --executor=my_cluster:start", "--executor", "my_cluster:start", "'QUEUE'"),
    ("archive --executor=my_broken:start", "--executor", "my_broken:start", "ZeroDivisionError"),
    ("archive --executor=os:getcwd", "--executor", "os:getcwd", "concurrent.futures.Executor"),
    # Job arrays.
    ("archive --join", "--join", "", "--num_shards"),
    ("archive --join --num_shards=3 --shard_id=0", "--join", "", "--shard_id"),
]
SHARDS = [
    ("archive --num_shards=3", "--shard_id", "", "--num_shards"),
    ("archive --shard_id=0", "--num_shards", "", "--shard_id"),
    ("archive --num_shards=3 --shard_id=3", "--shard_id", "3", "[0, --num_shards=3)"),
    ("archive --num_shards=3 --shard_id=-1", "--shard_id", "'-1'", "from 0"),
    ("archive --num_shards=0 --shard_id=0", "--num_shards", "'0'", "from 1"),
]
RUN = [
    ("--pipeline=aia --registered_size=64", "--registered_size", "64", "--size"),
    ("--batch=4", "--batch", "4", "--batch_size"),
    ("--batch_size=0", "--batch_size", "0", "at least 1"),
    ("--num_threads=0", "--num_threads", "0", "at least 1"),
    ("--num_read_processes=0", "--num_read_processes", "0", "at least 1"),
    ("--num_read_processes=all", "--num_read_processes", "'all'", "int"),
    ("--read_threads=0", "--read_threads", "0", "at least 1"),
    ("--data=/nowhere", "", "/nowhere", "no such folder"),
    ("--data=/nowhere/*.fits", "", "/nowhere/*.fits", "no file matches"),
    ("--data=models", "", "models", ".fits"),
    ("--pipeline=jpeg", "", "archive", ".jpg"),
    ("--mean=inf", "--mean", "inf", "finite"),
    ("--std 1 nan", "--std", "nan", "positive"),
    ("--std=0", "std", "", "positive"),
    ("--seed=-1", "seed", "-1", "at least 0"),
    ("--crop=21", "crop", "21x21", "20x24"),
    ("--crop 1 2 3", "--crop", "1, 2, 3", "height"),
    ("--rotate=inf", "--rotate", "inf", "180"),
    ("--rotate=5", "rotate", "", "crop"),
    ("--random_area 0.1 1", "random_area", "", "resize"),
    ("--random_area 0.1 nan", "--random_area", "nan", "to 1"),
    ("--random_aspect_ratio 1 2", "random_aspect_ratio", "", "random_area"),
    ("--resize_shorter=9", "resize_shorter", "", "crop"),
    ("--outside=fill", "--outside", "fill", "window"),
    ("--missing=nan", "missing", "nan", "--outside=fill"),
    ("--missing=3", "--missing", "", "--outside=fill"),
    ("--mode=test", "--mode", "'test'", "eval"),
    ("--mode=eval --resume=state.json", "--resume", "eval", "--mode=train"),
    ("--block_rows=2 --no-shuffle", "block", "", "shuffle"),
    ("--weights=paths", "column", "paths", "path?"),
    ("--columns=path,path", "column", "path,path", "path and path"),
    ("--batch_size=24 --tail=drop", "tail", "'drop'", "24 rows"),
    ("--batch_size=12 --num_gpus=2 --tail=drop", "tail", "'drop'", "24 rows"),
    ("--tail=pad", "--tail", "'pad'", "partial"),
    ("--data=photos --pipeline=jpeg --hdu=1", "--hdu", "jpeg", "--pipeline=fits"),
    ("--planes all 1", "--planes", "all", "not both"),
    ("--mask=seg_path=", "--mask", "''", "EXTNAME"),
    ("--crop=8 --crop=9", "--crop", "", "twice"),
    ("--shuffle=rows", "--shuffle", "'rows'", "buckets"),
    ("--shuffle=buckets", "buckets", "", "block_rows"),
    ("--hdus image", "--hdus", "'image'", "dq=DQ"),
    ("--hdus dq=1", "hdus", "", "'image'"),
    ("--hdus image=1 image=2", "--hdus", "image image", "once"),
    ("--hdus image=1 row=2", "hdus", "'row'", "another output"),
    ("--augment 'Blur(4)'", "--augment", "4", "odd"),
    ("--state=/nowhere/state.json", "", "/nowhere/state.json", "writable folder"),
    ("--report=/", "", "/", "writable folder"),
    ("--audit=q --state=./q", "--audit", "./q", "--state"),
    ("--report=archive/z.fits", "", "archive/z.fits", "another name"),
    ("--config=run.toml --report=run.toml", "--config", "run.toml", "--report"),
    ("--resume=empty", "--resume", "empty", "--state"),
    ("--resume=names.json", "--resume", "names.json", "lacks"),
    ("--resume=number.json", "--resume", "number.json", "state_dict()"),
    ("--endpoint=localhost:9000", "--endpoint", "localhost:9000", "http://"),
    ("--request_timeout=0", "--request_timeout", "0", "positive"),
    ("--cache=a", "--cache", "a", "cache_bytes"),
    ("--cache_bytes=many", "--cache_bytes", "'many'", "200GB"),
    ("--max_bad=0.5", "max_bad", "", "--bad_sample=skip"),
    # AIA.
    ("--preset=iti", "--preset", "fits", "--pipeline=aia"),
    ("--no-exposure", "--exposure", "fits", "--pipeline=aia"),
    ("--pipeline=aia --missing=3", "--missing", "", "--outside=fill"),
    ("--pipeline=aia --preset=sdo", "preset", "'sdo'", "iti"),
    ("--pipeline=aia --preset=sdoml", "preset", "", "correction_table"),
    ("--pipeline=aia --correction_table=/no.txt", "", "/no.txt", "No such file"),
    ("--pipeline=aia --psf 1600", "PSF", "1600", "EUV"),
    ("--pipeline=aia --order=2", "--order", "2", "3"),
    ("--pipeline=aia --resize=64", "resize", "", "size"),
    ("--pipeline=aia --rotate=5", "rotate", "", "crop"),
]
DOCTOR = [
    ("--bogus=1", "--bogus", "1", "--help"),
    ("--batch_size=0", "--batch_size", "0", "at least 1"),
    ("--device=tpu", "--device", "'tpu'", "cpu"),
]
VERIFY = [
    ("", "FILE", "", "required"),
    ("/nowhere", "", "/nowhere", "no such folder"),
    ("archive --window=1,2,3", "--window", "'1,2,3'", "0,0,512,512"),
    ("archive --window=1,2,0,4", "--window", "'1,2,0,4'", "0,0,512,512"),
    ("archive --window=1,2,-3,4", "--window", "'1,2,-3,4'", "0,0,512,512"),
    ("archive --hdu=-1", "--hdu", "'-1'", "EXTNAME"),
    ("hdus.parquet --hdu=3", "hdu", "3", ""),
    ("hdus.parquet --hdu=SCI", "hdu", "SCI", ""),
    ("archive --device=tpu", "--device", "'tpu'", "cpu"),
    ("archive --device=gpu", "", "GPU", "visible"),
    ("archive --json=/nowhere/out.json", "", "/nowhere/out.json", "writable folder"),
    ("archive --json=archive/z.fits", "", "archive/z.fits", "another name"),
    ("archive --bogus", "--bogus", "", "--help"),
    ("--config=verify.toml --json=verify.toml", "--config", "verify.toml", "--json"),
]
SHOW = [
    ("", "FILE", "", "required"),
    ("nowhere", "", "nowhere", "no such folder"),
    ("archive --columns=0", "--columns", "'0'", "from 1"),
    ("archive --captions none", "", "'none'", "path"),
    ("archive --pipeline=aia --preset=itti", "preset", "'itti'", "iti"),
    ("archive --pipeline=aia --preset=iti", "degradation", "", "correction_table"),
    ("archive --pipeline=aia --psf 1600", "PSF", "1600", "EUV"),
    ("archive --preset=iti", "--preset", "fits", "--pipeline=aia"),
    ("archive --pipeline=jpeg --before_after", "--before_after", "jpeg", "--pipeline=aia"),
    ("archive --registered_size=64", "--registered_size", "fits", "--pipeline=aia"),
    ("archive --pipeline=aia --registered_size 1 2 3", "--registered_size", "1, 2, 3", "height"),
    ("archive --pipeline=aia --before_after", "--before_after", "3", "one file"),
    (
        "archive --pipeline=aia --before_after --captions a",
        "--captions",
        "--before_after",
        "leave out",
    ),
    ("archive -o=no/sheet.png", "", "no/sheet.png", "writable folder"),
    ("archive -o=sheet.jpg", "-o", "sheet.jpg", ".png"),
    ("photos --pipeline=jpeg -o=photos/a.png", "", "photos/a.png", "another name"),
    ("photos/a.png --pipeline=jpeg -o=photos/a.png", "--files", "photos/a.png", "--output"),
    ("--config=sead.toml", "sead.toml", "sead", "seed"),
    ("--config=planes.toml", "planes.toml", "planes", "--hdu"),
]
PREP = [
    ("none.fits", "", "none.fits", "no such folder"),
    ("archive --ord=1", "--ord", "1", "--order"),
    ("archive --order=2", "--order", "2", "3"),
    ("archive --size=0", "--size", "0", "at least 1"),
    ("archive --scale=inf", "--scale", "inf", "positive"),
    ("archive --scale=x", "--scale", "'x'", "float"),
    ("archive --dtype=int8", "--dtype", "'int8'", "int16"),
    ("archive --tiles=64 --exposure", "--exposure", "", "--tiles"),
    ("archive --pointing-table=table.csv", "", "table.csv", "master pointing"),
    ("archive --correction-table=table.csv", "", "table.csv", "response table"),
    ("archive --correction-table=none.csv", "", "none.csv", "No such file"),
    ("archive/sub/a.fits archive", "", "a.fits", "written to"),
    ("s3://open/a.fits --tiles=16", "", "s3://open/a.fits", "copy"),
    ("urls.parquet --tiles=16", "", "s3://open/a.fits", "copy"),
]
EXPORT = [
    ("", "name", "", "required"),
    ("torchserve preprocess.toml --name=a", "", "'torchserve'", "triton"),
    ("triton preprocess.toml --name=a/b", "", "a/b", ""),
    ("triton preprocess.toml --name=..", "name", "..", ""),
    ("triton preprocess.toml --name=a --max_batch=0", "--max_batch", "'0'", "from 1"),
    ("triton preprocess.toml --name=taken", "", "taken", ""),
    ("triton ragged.toml --name=a", "ragged", "", ""),
    ("triton missing.toml --name=a", "", "missing.toml", ""),
]
WARM = [("--pipeline=png", "--pipeline", "'png'", "jpeg"), ("a.fits", "", "a.fits", "--help")]
BENCH = [("--suite=none", "suite", "'none'", "serving")]
TABLES = {
    "index": [*INDEX, *SHARDS],
    "run": RUN,
    "doctor": DOCTOR,
    "verify": [*VERIFY, *SHARDS],
    "show": SHOW,
    "prep": [*PREP, *SHARDS],
    "export": EXPORT,
    "warm": WARM,
    "bench": BENCH,
}
"""Of each command: arguments, and words of the message: the flag, its value, the remedy."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with a file that is none, photographs, and files that flags name."""
    folder = tmp_path_factory.mktemp("refused")
    for name in ("archive/sub", "photos", "models/taken", "folder.parquet"):
        (folder / name).mkdir(parents=True)
    for name in ("a.fits", "sub/a.fits"):
        fits.writeto(folder / "archive" / name, np.zeros((20, 24), np.int16))
    (folder / "archive/z.fits").write_text("no FITS")  # a scan would name it
    (folder / "photos/a.png").write_bytes(pillow(rgb(8), "PNG"))
    with tarfile.open(folder / "a.tar", "w") as tar:
        tar.add(folder / "photos/a.png", "a.png")
    (folder / "cut.tar").write_bytes((folder / "a.tar").read_bytes()[:600])
    record = struct.pack("<IfQQ", 0, 5, 8, 0) + b"\xff\xd8\xff\xe0"
    (folder / "a.rec").write_bytes(struct.pack("<II", 0xCED7230A, len(record)) + record)
    texts = {
        "names.csv": "name\na.fits\n",
        "stars.csv": "ra,dec,mag\n150,2,18\n",
        "table.csv": "T_START,T_STOP\n2011-01-01,2012-01-01\n",
        "index.toml": 'data = "archive"\n',
        "run.toml": 'data = "archive"\n',
        "verify.toml": 'files = ["archive"]\n',
        "sead.toml": "batch_size = 4\nsead = 3\n",
        "planes.toml": "batch_size = 4\nplanes = [2]\n",
        "empty": "",
        "names.json": "{}",
        "number.json": "1",
        "my_cluster.py": "def start():\n    raise KeyError('QUEUE')\n",
        "my_broken.py": "1 / 0\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    paths = [str(folder / "archive/a.fits")]
    times = pa.array([0], pa.timestamp("s"))
    Index(pa.table({"path": paths, "night": [1], "t_obs": times})).save(folder / "rows.parquet")
    Index(pa.table({"path": paths, "hdu": [2]})).save(folder / "hdus.parquet")
    Index.from_paths(["s3://open/a.fits"]).save(folder / "urls.parquet")
    Preprocessor(jpeg_pipeline, crop=(24, 16)).save(folder / "preprocess.toml")
    Preprocessor(fits_pipeline, ragged="list").save(folder / "ragged.toml")
    return folder


@pytest.mark.parametrize(
    ("name", "flags", "named"),
    [
        pytest.param(name, flags, named, id=f"{name} {flags}")
        for name, table in TABLES.items()
        for flags, *named in table
    ],
)
def test_wrong_usage(
    name: str,
    flags: str,
    named: list[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Callable[..., tuple[str, str]],
    contents: Callable[[Path], Any],
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    # An import of my_cluster would leave a __pycache__ among the contents.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr("dali_pipelines.runtime.devices.visible_gpus", lambda: 0)
    before = contents(folder)
    data = "--data=archive " if name in ("run", "doctor") and "--data" not in flags else ""
    out, err = command(name, *shlex.split(ALWAYS.get(name, "") + data + flags), status=2)
    assert out == ""
    assert err.startswith(f"dali-pipelines {name}: ")
    assert err.count("\n") == 1
    assert [word for word in named if word not in err] == [], err
    assert contents(folder) == before
