"""Commands on objects of S3 and of a web server; the store is real."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from astropy.wcs import WCS
from PIL import Image
from servers.proxy import Fault, Proxy
from servers.weed import ACCESS_KEY, OPEN, SECRET_KEY, Weed

from dali_pipelines import Index, Storage
from dali_pipelines.cli.doctor.finding import Job
from dali_pipelines.cli.doctor.remote import credentials
from dali_pipelines.cli.main import main
from dali_pipelines.cli.options import number_of_bytes
from dali_pipelines.cli.run_config import RunConfig
from readers.places.stores import credentials_of

COUNT = 6
"""Frames in the bucket."""
Command = Callable[..., tuple[str, str]]


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
def command(weed: Weed, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command on the bucket; give what it prints, in which there is no secret."""

    def run(
        name: str, *flags: object, status: int = 0, port: int = weed.s3_port
    ) -> tuple[str, str]:
        storage = ["--anonymous", f"--endpoint=http://127.0.0.1:{port}", "--retries=1"]
        words = [name, *map(str, flags), *storage, "--request_timeout=20"]
        found = main(words)
        out, err = capsys.readouterr()
        assert found == status, err
        assert SECRET_KEY not in out + err
        return out, err

    return run


@pytest.fixture
def index(bucket: str, command: Command, tmp_path: Path) -> Path:
    """Index of the frames, with notes of their tiles."""
    path = tmp_path / "index.parquet"
    flags = ("--keys=EXPTIME", "--fits_tiles", "--num_processes=1", "-o", path)
    command("index", f"{bucket}/frames/", *flags)
    return path


def test_an_index_has_headers_notes_and_versions(index: Path, bucket: str) -> None:
    table = Index.load(index).table
    assert table["path"].to_pylist() == [f"{bucket}/frames/{n}.fits" for n in range(COUNT)]
    assert table["exptime"].to_pylist() == list(range(COUNT))
    assert table["file_bytes"].to_pylist() == [len(frame(n)) for n in range(COUNT)]
    assert table["etag"].null_count == table["fits_tiles"].null_count == 0
    assert set(table["width"].to_pylist()) == {80}
    assert table.column_names.count("file_bytes") == 1


def test_the_scan_takes_few_requests(
    weed: Weed,
    command: Command,
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
    out, _ = command("index", f"s3://{OPEN}/scanned/", *flags, port=s3_proxy.port)
    assert f"{COUNT} files found: {COUNT} rows kept, 0 rejected" in out
    assert "1 file left out: 1 .txt" in caplog.text
    assert len(s3_proxy.requests) == 1 + COUNT
    assert s3_proxy.most_at_once > 1


def test_a_run_with_cache_delivers_each_once(index: Path, command: Command, tmp_path: Path) -> None:
    cache, audit, report = (tmp_path / name for name in ("cache", "audit.csv", "report.json"))
    config = tmp_path / "run.toml"
    config.write_text(f'cache = "{cache}"\ncache_bytes = "1GB"\nread_threads = 4\n')
    flags = ("--device=cpu", "--batch_size=4", "--num_read_processes=1", "--crop=16")
    out, _ = command(
        *("run", f"--data={index}", f"--config={config}", *flags, "--window=random"),
        *("--epochs=2", f"--audit={audit}", f"--report={report}"),
    )
    assert re.search(r"\nOf remote storage: \d+ requests for [\d.]+ MB, and [\d.]+ MB of the", out)
    with audit.open(newline="") as file:
        rows = sorted(int(line["row"]) for line in csv.DictReader(file))
    assert rows == sorted([*range(COUNT)] * 2)
    assert any(path.is_file() and path.stat().st_size > 4096 for path in cache.rglob("*"))
    assert SECRET_KEY not in report.read_text()


def test_verify_compares_objects(index: Path, bucket: str, command: Command) -> None:
    """Those of an Index, and those of a URL, JPEG as well."""
    out, err = command("verify", index, f"{bucket}/photos/a.jpg", "--device=cpu")
    assert f"{COUNT + 1} files on the CPU: {COUNT + 1} OK" in err
    assert f"{bucket}/photos/a.jpg  JPEG  32x48x3" in out


def test_damage_is_found_by_the_index(weed: Weed, command: Command, tmp_path: Path) -> None:
    weed.put(OPEN, "damaged/a.fits", frame(0)[:-2880])
    weed.put(OPEN, "damaged/b.fits", frame(0))
    flags = ("--verify", "--num_processes=1", "-o", tmp_path / "a.parquet")
    out, err = command("index", f"s3://{OPEN}/damaged/", *flags)
    assert "1 rows kept, 1 rejected" in out
    assert f"rejected s3://{OPEN}/damaged/a.fits: " in err


def test_an_object_that_changes_between_a_part_and_the_join(
    weed: Weed, command: Command, tmp_path: Path
) -> None:
    """Else its row would have the facts of one version and the ETag of another."""
    flags = (f"s3://{OPEN}/parts/", "--num_shards=1", "-o", tmp_path / "a.parquet")
    for number in (0, 1):
        weed.put(OPEN, f"parts/{number}.fits", frame(number))
    command("index", *flags, "--shard_id=0", "--num_processes=1")
    weed.put(OPEN, "parts/1.fits", frame(2))
    _, err = command("index", *flags, "--join", status=1)
    changed = f"s3://{OPEN}/parts/1.fits has come, gone or changed since --shard_id=0 listed the"
    assert changed in err
    assert not (tmp_path / "a.parquet").exists()


def test_a_sheet_of_objects(index: Path, command: Command, tmp_path: Path) -> None:
    _, err = command("show", index, "-o", tmp_path / "sheet.png", "--count=2", "--size=64")
    assert "2 images, 0 rejected" in err


@pytest.mark.parametrize(
    ("name", "flags"), [("verify", ("--device=cpu",)), ("show", ("--size=64", "-o", "sheet.png"))]
)
def test_a_store_that_fails_later_ends_the_command(
    bucket: str,
    command: Command,
    s3_proxy: Proxy,
    name: str,
    flags: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Its objects would each take as long, and each have a line of its own."""
    monkeypatch.chdir(tmp_path)
    for number in range(1, COUNT):
        s3_proxy.fault(Fault(status=503), f"/{number}.fits")
    urls = [f"{bucket}/frames/{number}.fits" for number in range(COUNT)]
    Index.from_paths(urls).save("index.parquet")
    _, err = command(name, "index.parquet", *flags, status=1, port=s3_proxy.port)
    assert f"stopped after 3 {'files' if name == 'verify' else 'images'}: {urls[3]}: " in err
    assert "the server answers 503 Service Unavailable, each time: ask later" in err


def test_cutouts_of_objects(weed: Weed, command: Command, tmp_path: Path) -> None:
    """On the sky: their headers are read where they lie."""
    wcs = WCS(naxis=2)
    wcs.wcs.ctype, wcs.wcs.crval = ("RA---TAN", "DEC--TAN"), (150, 2)
    wcs.wcs.cdelt, wcs.wcs.crpix = (-1e-4, 1e-4), (20.5, 20.5)
    file = io.BytesIO()
    fits.PrimaryHDU(np.ones((40, 40), np.float32), wcs.to_header()).writeto(file)
    weed.put(OPEN, "survey/0.fits", file.getvalue())
    (tmp_path / "stars.csv").write_text("ra,dec\n150,2\n10,10\n")
    cutouts = (f"--cutouts={tmp_path / 'stars.csv'}", "--size=8", "-o", tmp_path / "a.parquet")
    command("index", f"s3://{OPEN}/survey/", *cutouts)
    (row,) = Index.load(tmp_path / "a.parquet").table.to_pylist()
    assert (row["path"], row["y"], row["x"]) == (f"s3://{OPEN}/survey/0.fits", 16, 16)
    flags = ("--window=row", "--crop=8", "--size=64", "-o", tmp_path / "sheet.png")
    _, err = command("show", tmp_path / "a.parquet", *flags)
    assert "1 images, 0 rejected" in err


class TestDoctor:
    FLAGS = ("--device=cpu", "--batch_size=2", "--num_read_processes=2", "--crop=16")

    def lines(self, out: str, *names: str) -> list[str]:
        found = [line for line in out.splitlines() if line.split()[1].rstrip(":") in names]
        return [re.sub(r"[\d.]+(e[+-]\d+)?", "N", line) for line in found]

    def test_of_a_store(self, index: Path, command: Command) -> None:
        out, _ = command("doctor", f"--data={index}", *self.FLAGS)
        credentials, requests, throughput, read_ahead = self.lines(
            out, "data", "credentials", "requests", "throughput", "read"
        )
        assert credentials == "OK   credentials: none are sent, requests are anonymous"
        assert requests == (
            "OK   requests: N objects; an answer takes N ms (median of N), ranges work, ETags and "
            "If-Match too"
        )
        assert throughput == "OK   throughput: N MB/s, of N requests for N MB, N at once"
        assert read_ahead == (
            "OK   read ahead: a sample takes N ms and N MB, N ms of it computing; --read_threads=N "
            "keeps a reader busy, N readers then ask for N MB/s"
        )

    def test_of_a_web_server(self, weed: Weed, bucket: str, command: Command) -> None:
        url = f"http://127.0.0.1:{weed.http_port}/buckets/{OPEN}/frames/0.fits"
        out, _ = command("doctor", f"--data={url}", *self.FLAGS)
        credentials, requests = self.lines(out, "credentials", "requests")
        assert credentials == "OK   credentials: none are needed"
        assert requests.startswith("OK   requests: N object; an answer takes N ms (median of N)")

    def test_objects_that_cannot_be_read(self, weed: Weed, command: Command) -> None:
        """One of two."""
        weed.put(OPEN, "mixed/a.fits", frame(0))
        weed.put(OPEN, "mixed/b.fits", b"text")
        out, _ = command("doctor", f"--data=s3://{OPEN}/mixed/", *self.FLAGS, status=1)
        first = f"s3://{OPEN}/mixed/b.fits: not a FITS file"
        assert f"BAD  rows: 1 of 2 tried cannot be read (the first: {first}" in out

    def test_of_a_server_that_denies(self, bucket: str, command: Command, s3_proxy: Proxy) -> None:
        s3_proxy.fault(Fault(status=403))
        flags = (f"--data={bucket}/frames/", *self.FLAGS)
        out, _ = command("doctor", *flags, status=1, port=s3_proxy.port)
        assert "BAD  data: access is denied (Fault): check the credentials" in out
        assert "read ahead" not in out

    def test_of_a_server_without_ranges(
        self, index: Path, command: Command, s3_proxy: Proxy
    ) -> None:
        s3_proxy.fault(Fault(without=("range",)))
        out, _ = command("doctor", f"--data={index}", *self.FLAGS, status=1, port=s3_proxy.port)
        assert "BAD  requests: the server does not send ranges of bytes" in out

    def test_a_cause_is_printed_once(self, bucket: str, tmp_path: Path, capsys: Any) -> None:
        """And waited for once."""
        index = Index.from_paths([f"{bucket}/frames/{number}.fits" for number in range(COUNT)])
        index.save(tmp_path / "a.parquet")
        nowhere = ("--endpoint=http://127.0.0.1:9", "--anonymous", "--request_timeout=0.3")
        assert main(["doctor", f"--data={tmp_path}/a.parquet", *nowhere, *self.FLAGS]) == 1
        out = capsys.readouterr().out
        assert out.count("the server cannot be reached") == out.count("BAD ") == 1
        assert "NOTE settings: not checked, the objects cannot be asked" in out
        assert "NOTE throughput: not checked, the objects cannot be asked" in out
        assert main(["run", f"--data={tmp_path}/a.parquet", *nowhere, *self.FLAGS]) == 1
        assert capsys.readouterr().err.endswith("the endpoint, http://127.0.0.1:9\n")

    @pytest.mark.parametrize(
        ("url", "variable"),
        [("s3://a/b/", "AWS_ACCESS_KEY_ID"), ("gs://a/b/", "GOOGLE_APPLICATION_CREDENTIALS")],
    )
    def test_without_credentials(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str, variable: str
    ) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_"))]:
            monkeypatch.delenv(name)
        finding = credentials(Job(RunConfig(data=url)))
        assert finding is not None
        assert finding.level == "NOTE"
        assert f"set {variable}" in finding.text


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("index", ()),
        ("verify", ("--device=cpu",)),
        ("show", ("-o", "sheet.png")),
        ("run", ("--device=cpu",)),
    ],
)
class TestOneLine:
    """Each command says in one line what failed, and ends with the status that it has for that."""

    def said(self, command: Command, name: str, flags: tuple[str, ...], url: str) -> str:
        data = f"--data={url}" if name == "run" else url
        _, err = command(name, data, *flags, status=2)
        (line,) = err.splitlines()
        assert line.startswith(f"dali-pipelines {name}: ")
        return line

    def test_missing_objects(
        self, command: Command, name: str, flags: tuple[str, ...], bucket: str
    ) -> None:
        line = self.said(command, name, flags, f"{bucket}/nothing/")
        assert "there is no such object" in line

    def test_secrets_in_urls(self, command: Command, name: str, flags: tuple[str, ...]) -> None:
        secret = SECRET_KEY.replace("/", "")
        for url in (
            f"https://user:{secret}@127.0.0.1/a.fits",
            f"https://127.0.0.1/a.fits?X-Amz-Signature={secret}",
            f"ftp://user:{secret}@127.0.0.1/a.fits?token={secret}",
        ):
            assert secret not in self.said(command, name, flags, url)


def test_local_files_alone_are_prepared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = "s3://open/frames/0.fits"
    Index.from_paths([url]).save(tmp_path / "a.parquet")
    for data in (url, tmp_path / "a.parquet"):
        assert main(["prep", str(data), "--tiles=16", "-o", str(tmp_path / "out")]) == 2
        expected = f"dali-pipelines prep: {url}: prep reads local files, copy the archive first\n"
        assert capsys.readouterr().err == expected


def test_credentials_are_named_not_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, s3_keys: None
) -> None:
    home = tmp_path / ".aws"
    home.mkdir()
    keys = f"aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
    (home / "credentials").write_text(f"[default]\n{keys}[lab]\n{keys}")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert credentials_of("s3://a", Storage()) == "AWS_ACCESS_KEY_ID of the environment"
    assert credentials_of("s3://a", Storage(profile="lab")) == "profile 'lab' of ~/.aws"
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert credentials_of("s3://a", Storage()) == "profile 'default' of ~/.aws"
    (home / "credentials").unlink()
    assert credentials_of("s3://a", Storage()) is None
    assert credentials_of("gs://a", Storage()) is None
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", SECRET_KEY)
    assert credentials_of("gs://a", Storage()) == "GOOGLE_SERVICE_ACCOUNT_KEY of the environment"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--endpoint=localhost:9000"], "--endpoint must be a URL, http:// or https://"),
        (["--request_timeout=0"], "--request_timeout must be a positive number"),
        (["--cache=a"], "--cache=a and cache_bytes=None: give both"),
        (["--cache_bytes=many"], "expected bytes, as 200GB or 1.5TB, got 'many'"),
        (["--read_threads=0"], "--read_threads must be at least 1, got 0"),
    ],
)
def test_wrong_flags(
    flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "0.fits").write_bytes(frame(0))
    assert main(["run", f"--data={tmp_path}", "--device=cpu", *flags]) == 2
    assert message in capsys.readouterr().err


def test_endpoints_with_passwords(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", "s3://a/b", f"--endpoint=http://user:{SECRET_KEY}@host"]) == 2
    assert SECRET_KEY not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "number"), [("4096", 4096), ("200GB", 200 * 10**9), ("1.5 TB", 15 * 10**11)]
)
def test_numbers_of_bytes(text: str, number: int) -> None:
    assert number_of_bytes(text) == number
