"""Commands on objects of S3 and of a web server; the store is real."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from astropy.io import fits
from astropy.wcs import WCS
from PIL import Image
from servers.proxy import Fault, Proxy
from servers.weed import OPEN, SECRET_KEY, Weed

from dali_pipelines import Index

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
COUNT = 6
"""Frames in the bucket."""
Remote = Callable[..., tuple[str, str]]


def frame(number: int) -> bytes:
    pixels = np.random.default_rng(number).poisson(100, (64, 80)).astype(np.int16)
    image = fits.CompImageHDU(pixels, compression_type="RICE_1", tile_shape=(16, 16))
    image.header["EXPTIME"] = float(number)
    file = io.BytesIO()
    image.writeto(file)
    return file.getvalue()


@pytest.fixture(scope="module")
def bucket(weed: Weed) -> str:
    """URL of a bucket with some frames and a photograph."""
    for number in range(COUNT):
        weed.put(OPEN, f"frames/{number}.fits", frame(number))
    photo = io.BytesIO()
    Image.new("RGB", (48, 32), (9, 90, 200)).save(photo, "JPEG")
    weed.put(OPEN, "photos/a.jpg", photo.getvalue())
    return f"s3://{OPEN}"


@pytest.fixture
def remote(weed: Weed, command: Callable[..., tuple[str, str]]) -> Remote:
    """Run a command on the bucket and check that it prints no secret; give stdout and stderr."""

    def remote(
        name: str, *flags: object, status: int = 0, port: int = weed.s3_port
    ) -> tuple[str, str]:
        storage = ["--anonymous", f"--endpoint=http://127.0.0.1:{port}", "--retries=1"]
        out, err = command(name, *flags, *storage, "--request_timeout=20", status=status)
        assert SECRET_KEY not in out + err
        return out, err

    return remote


@pytest.fixture
def index(bucket: str, remote: Remote, tmp_path: Path) -> Path:
    """Index of the frames, with notes of their tiles."""
    path = tmp_path / "index.parquet"
    flags = ("--keys=EXPTIME", "--fits_tiles", "--num_processes=1", "-o", path)
    remote("index", f"{bucket}/frames/", *flags)
    return path


class TestIndex:
    def test_headers_notes_and_versions(self, index: Path, bucket: str) -> None:
        table = Index.load(index).table
        assert table["path"].to_pylist() == [f"{bucket}/frames/{n}.fits" for n in range(COUNT)]
        assert table["exptime"].to_pylist() == list(range(COUNT))
        assert table["file_bytes"].to_pylist() == [len(frame(n)) for n in range(COUNT)]
        assert table["etag"].null_count == table["fits_tiles"].null_count == 0
        assert set(table["width"].to_pylist()) == {80}
        assert table.column_names.count("file_bytes") == 1

    def test_the_scan_takes_few_requests(
        self,
        weed: Weed,
        remote: Remote,
        tmp_path: Path,
        s3_proxy: Proxy,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """One of the listing and one of each object, several at the same time."""
        for number in range(COUNT):
            weed.put(OPEN, f"scanned/{number}.fits", frame(number))
        weed.put(OPEN, "scanned/notes.txt", b"of no use")
        s3_proxy.delay = 0.05
        flags = ("--num_processes=1", "-o", tmp_path / "a.parquet")
        out, _ = remote("index", f"s3://{OPEN}/scanned/", *flags, port=s3_proxy.port)
        assert f"{COUNT} rows kept, 0 rejected" in out
        assert "1 .txt" in caplog.text
        assert len(s3_proxy.requests) == 1 + COUNT
        assert s3_proxy.most_at_once > 1

    def test_damage_is_found(self, weed: Weed, remote: Remote, tmp_path: Path) -> None:
        weed.put(OPEN, "damaged/a.fits", frame(0)[:-2880])
        weed.put(OPEN, "damaged/b.fits", frame(0))
        flags = ("--verify", "--num_processes=1", "-o", tmp_path / "a.parquet")
        out, err = remote("index", f"s3://{OPEN}/damaged/", *flags)
        assert "1 rows kept, 1 rejected" in out
        assert f"s3://{OPEN}/damaged/a.fits: " in err

    def test_an_object_that_changes_between_a_part_and_the_join(
        self, weed: Weed, remote: Remote, tmp_path: Path
    ) -> None:
        """Else its row would have the facts of one version and the ETag of another."""
        flags = (f"s3://{OPEN}/parts/", "--num_shards=1", "-o", tmp_path / "a.parquet")
        for number in (0, 1):
            weed.put(OPEN, f"parts/{number}.fits", frame(number))
        remote("index", *flags, "--shard_id=0", "--num_processes=1")
        weed.put(OPEN, "parts/1.fits", frame(2))
        _, err = remote("index", *flags, "--join", status=1)
        assert f"s3://{OPEN}/parts/1.fits" in err
        assert "--shard_id=0" in err
        assert not (tmp_path / "a.parquet").exists()


def test_a_run_with_cache_delivers_each_once(index: Path, remote: Remote, tmp_path: Path) -> None:
    cache, audit, report = (tmp_path / name for name in ("cache", "audit.csv", "report.json"))
    config = tmp_path / "run.toml"
    config.write_text(f'cache = "{cache}"\ncache_bytes = "1GB"\nread_threads = 4\n')
    flags = ("--device=cpu", "--batch_size=4", "--num_read_processes=1", "--crop=16")
    out, _ = remote(
        *("run", f"--data={index}", f"--config={config}", *flags, "--window=random"),
        *("--epochs=2", f"--audit={audit}", f"--report={report}"),
    )
    assert re.search(r"[1-9]\d* requests for [\d.]+ MB.* [\d.]+ MB from the cache", out)
    with audit.open(newline="") as file:
        rows = sorted(int(line["row"]) for line in csv.DictReader(file))
    assert rows == sorted([*range(COUNT)] * 2)
    assert any(path.is_file() and path.stat().st_size > 4096 for path in cache.rglob("*"))
    assert SECRET_KEY not in report.read_text()


def test_verify_and_show_read_objects(
    index: Path, bucket: str, remote: Remote, tmp_path: Path
) -> None:
    """Objects of an Index, and a JPEG by its URL."""
    out, err = remote("verify", index, f"{bucket}/photos/a.jpg", "--device=cpu")
    assert f"{COUNT + 1} OK, 0 DIFFERS, 0 REJECTED" in err
    assert f"{bucket}/photos/a.jpg  JPEG  32x48x3" in out
    _, err = remote("show", index, "-o", tmp_path / "sheet.png", "--count=2", "--size=64")
    assert "2 images, 0 rejected" in err


@pytest.mark.parametrize("flags", ["verify --device=cpu", "show --size=64 -o sheet.png"])
def test_a_store_that_fails_later_ends_the_command(
    bucket: str,
    remote: Remote,
    s3_proxy: Proxy,
    flags: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Its objects would each take as long, and each have a line of its own."""
    monkeypatch.chdir(tmp_path)
    for number in range(1, COUNT):
        s3_proxy.fault(Fault(status=503), f"/{number}.fits")
    urls = [f"{bucket}/frames/{number}.fits" for number in range(COUNT)]
    Index.from_paths(urls).save("index.parquet")
    name, *more = flags.split()
    _, err = remote(name, "index.parquet", *more, status=1, port=s3_proxy.port)
    (line,) = [line for line in err.splitlines() if line.startswith("dali-pipelines ")]
    for fact in ("stopped after 3 ", urls[3], "503"):
        assert fact in line


def test_cutouts_of_objects(weed: Weed, remote: Remote, tmp_path: Path) -> None:
    """On the sky: their headers are read from the store."""
    wcs = WCS(naxis=2)
    wcs.wcs.ctype, wcs.wcs.crval = ("RA---TAN", "DEC--TAN"), (150, 2)
    wcs.wcs.cdelt, wcs.wcs.crpix = (-1e-4, 1e-4), (20.5, 20.5)
    file = io.BytesIO()
    fits.PrimaryHDU(np.ones((40, 40), np.float32), wcs.to_header()).writeto(file)
    weed.put(OPEN, "survey/0.fits", file.getvalue())
    (tmp_path / "stars.csv").write_text("ra,dec\n150,2\n10,10\n")
    cutouts = (f"--cutouts={tmp_path / 'stars.csv'}", "--size=8", "-o", tmp_path / "a.parquet")
    remote("index", f"s3://{OPEN}/survey/", *cutouts)
    (row,) = Index.load(tmp_path / "a.parquet").table.to_pylist()
    assert (row["path"], row["y"], row["x"]) == (f"s3://{OPEN}/survey/0.fits", 16, 16)
    flags = ("--window=row", "--crop=8", "--size=64", "-o", tmp_path / "sheet.png")
    assert "1 images, 0 rejected" in remote("show", tmp_path / "a.parquet", *flags)[1]


@pytest.mark.parametrize(
    "flags", ["index {}", "verify {} --device=cpu", "show {} -o sheet.png", "run --data={}"]
)
def test_missing_objects_are_one_line(remote: Remote, bucket: str, flags: str) -> None:
    name, *words = flags.format(f"{bucket}/nothing/").split()
    _, err = remote(name, *words, status=2)
    (line,) = err.splitlines()
    assert line.startswith(f"dali-pipelines {name}: ")
    assert f"{bucket}/nothing/" in line


class TestDoctor:
    FLAGS = ("--device=cpu", "--batch_size=2", "--num_read_processes=2", "--crop=16")

    def levels(self, out: str) -> dict[str, str]:
        """Return the level of each check by the first word of its line."""
        lines = (line.split() for line in out.splitlines())
        return {name.rstrip(":"): level for level, name, *_ in lines}

    def test_of_a_store(self, index: Path, remote: Remote) -> None:
        out, _ = remote("doctor", f"--data={index}", *self.FLAGS)
        levels = self.levels(out)
        for name in ("credentials", "requests", "throughput", "read", "rows"):
            assert levels[name] == "OK", out
        assert "data" not in levels
        lines = {line.split()[1].rstrip(":"): line for line in out.splitlines()}
        assert "anonymous" in lines["credentials"]
        assert f"{COUNT} objects" in lines["requests"]
        assert re.search(r"[\d.]+ MB/s", lines["throughput"])
        assert re.search(r"[\d.]+ ms .*--read_threads=\d+", lines["read"])

    def test_of_a_web_server(self, weed: Weed, bucket: str, remote: Remote) -> None:
        url = f"http://127.0.0.1:{weed.http_port}/buckets/{OPEN}/frames/0.fits"
        out, _ = remote("doctor", f"--data={url}", *self.FLAGS)
        levels = self.levels(out)
        assert (levels["credentials"], levels["requests"]) == ("OK", "OK")

    def test_objects_that_cannot_be_read(self, weed: Weed, remote: Remote) -> None:
        """One of two."""
        weed.put(OPEN, "mixed/a.fits", frame(0))
        weed.put(OPEN, "mixed/b.fits", b"text")
        out, _ = remote("doctor", f"--data=s3://{OPEN}/mixed/", *self.FLAGS, status=1)
        assert re.search(rf"BAD  rows: 1 of 2 .*s3://{OPEN}/mixed/b.fits: not a FITS file", out)

    @pytest.mark.parametrize(
        ("fault", "data", "bad"),
        [
            (Fault(status=403), "s3://{}/frames/", "data: .*denied"),
            (Fault(without=("range",)), "{index}", "requests: .*ranges"),
        ],
    )
    def test_faults_of_the_server(
        self, index: Path, remote: Remote, s3_proxy: Proxy, fault: Fault, data: str, bad: str
    ) -> None:
        s3_proxy.fault(fault)
        flags = (f"--data={data.format(OPEN, index=index)}", *self.FLAGS)
        out, _ = remote("doctor", *flags, status=1, port=s3_proxy.port)
        assert re.search(f"^BAD  {bad}", out, re.MULTILINE), out

    def test_a_cause_is_printed_and_waited_for_once(
        self, bucket: str, tmp_path: Path, command: Callable[..., Any]
    ) -> None:
        index = Index.from_paths([f"{bucket}/frames/{number}.fits" for number in range(COUNT)])
        index.save(tmp_path / "a.parquet")
        nowhere = ("--endpoint=http://127.0.0.1:9", "--anonymous", "--request_timeout=0.3")
        flags = (f"--data={tmp_path}/a.parquet", *nowhere, *self.FLAGS)
        out, _ = command("doctor", *flags, status=1)
        assert out.count("BAD ") == 1
        levels = self.levels(out)
        assert (levels["settings"], levels["throughput"]) == ("NOTE", "NOTE")
        assert "http://127.0.0.1:9" in command("run", *flags, status=1)[1]


@pytest.fixture(scope="module")
def arrays(weed: Weed, tmp_path_factory: pytest.TempPathFactory) -> str:
    """URL of a bucket with a Zarr store and a netCDF4 file."""
    folder = tmp_path_factory.mktemp("arrays")
    pixels = np.random.default_rng(0).normal(size=(3, 64, 80)).astype(np.float32)
    dataset = xr.Dataset({"a": (("time", "y", "x"), pixels)})
    dataset.to_zarr(folder / "a.zarr", zarr_format=2, encoding={"a": {"chunks": (2, 32, 32)}})
    dataset.to_netcdf(folder / "b.nc", engine="h5netcdf")
    for file in folder.rglob("*"):
        if file.is_file():
            weed.put(OPEN, f"arrays/{file.relative_to(folder)}", file.read_bytes())
    return f"s3://{OPEN}/arrays"


@pytest.mark.parametrize(("name", "dim"), [("a.zarr", ()), ("b.nc", ("--dim=time",))])
def test_arrays(remote: Remote, arrays: str, tmp_path: Path, name: str, dim: tuple[str]) -> None:
    index = tmp_path / "index.parquet"
    remote("index", f"{arrays}/{name}", "--variables=a", *dim, "-o", index)
    assert len(Index.load(index)) == 3
    out, _ = remote("verify", index, "--device=cpu", "--window=3,4,40,50")
    assert [line.split("  ")[-1] for line in out.splitlines()] == ["OK"] * 3
    settings = ("--pipeline=chunked", f"--data={index}", "--batch_size=2", "--crop=32")
    out, _ = remote("doctor", *settings, "--device=cpu", "--num_read_processes=1")
    assert "BAD" not in out
    assert "chunks: a" in out
