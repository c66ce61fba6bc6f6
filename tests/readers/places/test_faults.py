"""What Readers say of objects that cannot be read, and that they get over what passes.

The store is real, and a proxy before it does the harm.
"""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import npy
from servers.proxy import AUTHORITY, Fault, Proxy
from servers.weed import ACCESS_KEY, OPEN, SECRET_KEY, Weed

from readers import NpyReader, ReadError, Row, Window
from readers.places.cache.disk import DiskCache
from readers.places.opener import Places
from readers.places.storage import Storage

IMAGE = np.random.default_rng(0).normal(size=(300, 400)).astype(np.float32)  # 480 kB
WINDOW = Window(height=20, width=30, y=0.9, x=0.5)
"""It is read by a range of its own, far from the header."""
TRIES = 2
NUMBERS = count()


def encoded(image: np.ndarray = IMAGE) -> bytes:
    return npy(image)


@dataclass
class Remote:
    """A bucket behind a proxy."""

    weed: Weed
    proxy: Proxy
    is_s3: bool
    settings: dict[str, Any] = field(default_factory=lambda: {"retries": TRIES - 1, "timeout": 20})

    def row(self, content: bytes | None = encoded(), bucket: str = "archive") -> Row:
        """Return a row of a new object."""
        key = f"{next(NUMBERS)}/image.npy"
        if content is not None:
            self.weed.put(bucket, key, content)
        server = f"http://127.0.0.1:{self.proxy.port}"
        url = f"s3://{bucket}/{key}" if self.is_s3 else f"{server}/buckets/{bucket}/{key}"
        return Row(17, url, places=Places(Storage(endpoint=server, **self.settings)))

    def write(self, row: Row, content: bytes) -> None:
        """Write other bytes."""
        self.weed.put("archive", row.path.partition("/archive/")[2], content)


@pytest.fixture(params=["s3", "http"])
def remote(request: pytest.FixtureRequest, weed: Weed, s3_keys: None) -> Iterator[Remote]:
    is_s3 = request.param == "s3"
    with Proxy(weed.s3_port if is_s3 else weed.http_port) as proxy:
        yield Remote(weed, proxy, is_s3)


@pytest.fixture
def s3(weed: Weed, s3_proxy: Proxy) -> Remote:
    return Remote(weed, s3_proxy, is_s3=True)


def read(row: Row, window: Window | None = WINDOW) -> np.ndarray:
    return NpyReader().read(row, window)["image"][..., 0]


def crop(image: np.ndarray = IMAGE) -> np.ndarray:
    y, x = WINDOW.place(*image.shape)
    return image[y : y + WINDOW.height, x : x + WINDOW.width]


def rejected(row: Row, reason: str) -> str:
    """Check that the row is rejected for a reason, in one line without secrets."""
    with pytest.raises(ReadError, match=reason) as caught:
        read(row)
    text = str(caught.value)
    assert text.startswith(f"{row.path} (row 17): ")
    assert text.count(row.path) == 1
    assert "\n" not in text
    assert SECRET_KEY not in text
    assert ACCESS_KEY not in text
    return text


# What passes.

PASSING = {
    "503": Fault(status=503),
    "500": Fault(status=500),
    "429": Fault(status=429, headers={"Retry-After": "1"}),
    "dropped": Fault(drop=True),
    "cut": Fault(cut=1000),
    "cut at once": Fault(cut=0),
    "short": Fault(short=1000),
    "late": Fault(delay=0.1),
    "slow": Fault(rate=5e6),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_temporary_faults_are_retried(remote: Remote, fault: Fault) -> None:
    row = remote.row()
    remote.proxy.fault(fault, times=TRIES - 1)
    np.testing.assert_array_equal(read(row), crop())
    np.testing.assert_array_equal(read(row, None), IMAGE)


@pytest.mark.parametrize("fault", [Fault(hang=True), Fault(stall=1000)], ids=["hang", "stall"])
def test_a_request_without_an_answer_is_made_again(s3: Remote, fault: Fault) -> None:
    s3.settings["timeout"] = 1.0
    row = s3.row()
    s3.proxy.fault(fault, times=1)
    np.testing.assert_array_equal(read(row), crop())


def test_a_server_that_is_away_for_a_while(s3: Remote) -> None:
    s3.settings["retries"] = 100
    row = s3.row()
    s3.proxy.stop()
    back = threading.Timer(0.5, s3.proxy.restart)
    back.start()
    np.testing.assert_array_equal(read(row), crop())
    back.join()


# What lasts.


def partial_answer(**headers: str) -> Fault:
    return Fault(status=206, body=b"0" * 9, headers=dict(headers))


LASTING = {
    "503": (Fault(status=503), "503 Service Unavailable.*concurrency"),
    "500": (Fault(status=500), "500 Internal Server Error"),
    "429": (Fault(status=429), "429 Too Many Requests"),
    "403": (
        Fault(status=403, body=b"<Error><Code>AccessDenied</Code></Error>"),
        r"denied \(AccessDenied\).*credentials.*anonymous=True",
    ),
    "401": (Fault(status=401, body=b""), "denied.*credentials"),
    "400": (Fault(status=400), r"400 Bad Request \(Fault\)$"),
    "dropped": (Fault(drop=True), "cannot be reached.*network.*endpoint"),
    "cut": (Fault(cut=1000), "cut off"),
    "short": (Fault(short=1000), "1000 bytes, expected 131072 from 0"),
    "all": (Fault(status=200, body=encoded()), "ranges of bytes: copy"),
    "page": (Fault(status=200, body=b"<html>log in</html>"), "ranges of bytes: copy"),
    "other range": (
        partial_answer(**{"Content-Range": "bytes 1-9/999999"}),
        "1 to 10, expected 0 to 131072: copy",
    ),
    "less of it": (
        partial_answer(**{"Content-Range": "bytes 0-8/999999"}),
        "0 to 9, expected 0 to 131072: copy",
    ),
    "no length": (partial_answer(**{"Content-Range": "bytes 0-8/*"}), "Content-Range.*copy"),
    "no range": (partial_answer(), "Content-Range.*copy"),
    "no date": (
        partial_answer(**{"Content-Range": "bytes 0-8/9", "Last-Modified": "yesterday"}),
        "Last-Modified.*copy",
    ),
    "no text": (
        partial_answer(**{"Content-Range": "bytes 0-8/9", "ETag": "\xe9"}),
        "not ASCII: copy",
    ),
    "chunks": (
        Fault(
            status=206,
            body=b"9\r\n000000000\r\n0\r\n\r\n",
            headers={"Content-Range": "bytes 0-8/9", "Transfer-Encoding": "chunked"},
        ),
        "Content-Length.*copy",
    ),
}


@pytest.mark.parametrize(("fault", "reason"), LASTING.values(), ids=LASTING)
def test_lasting_faults_are_named(remote: Remote, fault: Fault, reason: str) -> None:
    row = remote.row()
    remote.proxy.fault(fault)
    rejected(row, reason)
    assert len(remote.proxy.requests) in (1, TRIES)


@pytest.mark.parametrize("location", ["/again", "ftp://host/file", None])
def test_redirects_that_end_nowhere(remote: Remote, location: str | None) -> None:
    row = remote.row()
    headers = {} if location is None else {"Location": location}
    remote.proxy.fault(Fault(status=302, headers=headers))
    if remote.is_s3 and location is None:
        rejected(row, "another region")
    elif not remote.is_s3:
        rejected(row, "redirects")


@pytest.mark.parametrize("fault", [Fault(hang=True), Fault(stall=1000)], ids=["hang", "stall"])
def test_there_is_an_answer_within_the_time(s3: Remote, fault: Fault) -> None:
    s3.settings |= {"timeout": 1.0, "retries": 100}
    row = s3.row()
    s3.proxy.fault(fault)
    begun = time.monotonic()
    rejected(row, "no answer within 1 s")
    assert time.monotonic() - begun < 30  # it would be 100 tries of half a second


def test_no_server(remote: Remote) -> None:
    row = remote.row()
    remote.proxy.stop()
    text = rejected(row, "cannot be reached.*network.*endpoint")
    assert f"127.0.0.1:{remote.proxy.port}" in text


def test_encrypted(weed: Weed, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a certificate that is not trusted, and then is."""
    weed.put("archive", "encrypted.npy", encoded())
    with Proxy(weed.http_port, encrypted=True) as proxy:
        url = f"https://localhost:{proxy.port}/buckets/archive/encrypted.npy"
        row = Row(17, url, places=Places(Storage(retries=1, timeout=20)))
        rejected(row, r"certificate.*UnknownIssuer.*SSL_CERT_FILE")
        monkeypatch.setenv("SSL_CERT_FILE", str(AUTHORITY))
        np.testing.assert_array_equal(read(row), crop())


def test_no_object(remote: Remote) -> None:
    rejected(remote.row(None), "no such object")
    assert len(remote.proxy.requests) == 1


def test_no_bucket(s3: Remote) -> None:
    rejected(s3.row(None, "nowhere"), "no such bucket")


def test_empty_object(remote: Remote) -> None:
    rejected(remote.row(b""), "object is empty")


# Versions.


def test_an_object_that_changed_since_it_was_indexed(remote: Remote) -> None:
    row = remote.row()
    with row.place as place:
        place.read(0, 1)
        assert isinstance(place.stamp, tuple)
        *_, etag, nbytes = place.stamp
    noted = replace(row, etag=etag, file_bytes=nbytes)
    np.testing.assert_array_equal(read(noted), crop())
    remote.write(row, encoded(IMAGE + 1))
    rejected(noted, "changed since it was indexed.*make the Index")
    np.testing.assert_array_equal(read(row), crop(IMAGE + 1))


def test_an_object_that_was_replaced_does_not_come_from_the_cache(
    remote: Remote, tmp_path: Path
) -> None:
    row = remote.row()
    assert row.places is not None
    row = replace(row, places=replace(row.places, cache=DiskCache(str(tmp_path), 1 << 26)))
    for image in (IMAGE, IMAGE, IMAGE + 1, IMAGE + 1):
        remote.write(row, encoded(image))
        np.testing.assert_array_equal(read(row), crop(image))


@pytest.mark.parametrize("is_checked", [True, False])
def test_an_object_that_changes_while_it_is_read(remote: Remote, is_checked: bool) -> None:
    if remote.is_s3 and not is_checked:
        pytest.skip("a signature covers If-Match")
    row = remote.row()
    remote.proxy.fault(Fault(), times=1)
    change = Fault(
        before=lambda: remote.write(row, encoded(IMAGE + 1)),
        without=() if is_checked else ("if-match",),
    )
    remote.proxy.fault(change)
    rejected(row, "changed")
    assert len(remote.proxy.requests) == 2


def test_an_object_that_changes_while_an_answer_is_cut(remote: Remote) -> None:
    row = remote.row()
    remote.proxy.fault(Fault(), times=1)
    remote.proxy.fault(Fault(cut=100), times=1)
    remote.proxy.fault(Fault(before=lambda: remote.write(row, encoded(IMAGE + 1))))
    rejected(row, "changed")


def test_an_object_that_became_shorter(remote: Remote) -> None:
    row = replace(remote.row(encoded()[:1000]), file_bytes=len(encoded()))
    rejected(row, "changed")


# Credentials.


def test_wrong_secret(s3: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    rejected(s3.row(), "SignatureDoesNotMatch.*credentials")


def test_unknown_key(s3: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    rejected(s3.row(), "InvalidAccessKeyId")


def test_anonymous(s3: Remote) -> None:
    s3.settings["anonymous"] = True
    np.testing.assert_array_equal(read(s3.row(bucket=OPEN)), crop())
    rejected(s3.row(), "AccessDenied")
    assert all("authorization" not in request.headers for request in s3.proxy.requests)


def test_no_credentials(s3: Remote, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    with Proxy(1) as metadata:  # a machine that is no instance of AWS
        metadata.fault(Fault(status=404))
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{metadata.port}")
        rejected(s3.row(), "no credentials.*AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    assert not s3.proxy.requests


@pytest.mark.parametrize("variable", [None, "other"])
def test_profile(
    s3: Remote, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str | None
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(
        "[default]\naws_access_key_id = nobody\naws_secret_access_key = nothing\n"
        f"[other]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
    )
    if variable is None:
        s3.settings["profile"] = "other"
    else:
        monkeypatch.setenv("AWS_PROFILE", variable)
    np.testing.assert_array_equal(read(s3.row()), crop())


def test_profile_that_is_missing(
    s3: Remote, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    s3.settings["profile"] = "missing"
    rejected(s3.row(), "profile 'missing'.*aws_access_key_id")
    assert not s3.proxy.requests


def write_config(home: Path, text: str) -> None:
    (home / ".aws").mkdir()
    (home / ".aws/config").write_text(f"[profile other]\n{text}")


def test_profile_with_a_program(
    s3: Remote, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One of the ways of botocore."""
    monkeypatch.setenv("HOME", str(tmp_path))
    found = {"Version": 1, "AccessKeyId": ACCESS_KEY, "SecretAccessKey": SECRET_KEY}
    (tmp_path / "found.json").write_text(json.dumps(found))
    write_config(tmp_path, f"credential_process = cat {tmp_path}/found.json\n")
    s3.settings["profile"] = "other"
    np.testing.assert_array_equal(read(s3.row()), crop())


def test_profile_whose_sign_on_has_ended(
    s3: Remote, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_PROFILE", "other")
    write_config(
        tmp_path,
        "sso_session = lab\nsso_account_id = 1\nsso_role_name = reader\n"
        "[sso-session lab]\nsso_region = us-east-1\nsso_start_url = https://a.awsapps.com/start\n",
    )
    rejected(s3.row(), "profile 'other' of ~/.aws: .*SSO")
    assert not s3.proxy.requests


def test_region_and_endpoint_of_a_profile(
    s3: Remote, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    endpoint = f"http://127.0.0.1:{s3.proxy.port}"
    write_config(tmp_path, f"region = eu-north-1\nendpoint_url = {endpoint}\n")
    monkeypatch.setenv("AWS_PROFILE", "other")
    row = replace(s3.row(), places=Places(Storage()))
    np.testing.assert_array_equal(read(row), crop())
    assert "/eu-north-1/s3/" in s3.proxy.requests[0].headers["authorization"]


# Many at once, and what is sent to other processes.


def test_threads_share_what_opens_places(s3: Remote) -> None:
    rows = [s3.row(encoded(IMAGE + number)) for number in range(8)]
    s3.proxy.fault(Fault(status=503), times=2)
    s3.proxy.fault(Fault(cut=100), times=2)
    with ThreadPoolExecutor(8) as threads:
        found = threads.map(read, rows * 4)
        for number, image in enumerate(found):
            np.testing.assert_array_equal(image, crop(IMAGE + number % 8))


def test_no_secret_is_sent_to_reader_processes(s3: Remote) -> None:
    row = s3.row()
    read(row)
    for text in (pickle.dumps(row), pickle.dumps(NpyReader()), repr(row).encode()):
        assert SECRET_KEY.encode() not in text
        assert ACCESS_KEY.encode() not in text
    np.testing.assert_array_equal(read(pickle.loads(pickle.dumps(row))), crop())
