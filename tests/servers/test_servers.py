"""The server and the proxy themselves, by a client that is not theirs: http.client."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import psutil
import pytest

from servers.proxy import Fault, Proxy
from servers.weed import OPEN, Weed, remove_sockets

pytestmark = pytest.mark.slow

CONTENT = bytes(range(256)) * 40


@pytest.fixture(scope="module")
def written(weed: Weed) -> Weed:
    weed.put("archive", "a b/1.fits", CONTENT)
    weed.put(OPEN, "1.fits", CONTENT)
    return weed


def get(
    port: int, path: str, *, timeout: float = 30, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(
            "GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def test_server_checks_what_it_is_asked(written: Weed) -> None:
    assert get(written.s3_port, f"/{OPEN}/1.fits")[::2] == (200, CONTENT)
    assert get(written.s3_port, "/archive/a%20b/1.fits")[0] == 403
    status, headers, found = get(written.s3_port, f"/{OPEN}/1.fits", Range="bytes=10-19")
    assert (status, found) == (206, CONTENT[10:20])
    assert get(written.s3_port, f"/{OPEN}/1.fits", If_Match=headers["etag"])[0] == 200
    assert get(written.s3_port, f"/{OPEN}/1.fits", If_Match='"other"')[0] == 412
    assert get(written.s3_port, f"/{OPEN}/1.fits", Range="bytes=99999-99999")[0] == 416
    written.delete(OPEN, "1.fits")
    assert get(written.s3_port, f"/{OPEN}/1.fits")[0] == 404


def test_objects_outlive_a_kill(written: Weed) -> None:
    written.kill()
    with pytest.raises(ConnectionRefusedError):
        get(written.http_port, "/")
    written.start()
    assert get(written.http_port, "/buckets/archive/a%20b/1.fits")[2] == CONTENT


def test_server_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import signal, sys; from pathlib import Path; from servers.weed import Weed; "
        "print(*Weed(Path(sys.argv[1])).ports, flush=True); signal.pause()"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", code, str(tmp_path / "weed")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        ports = [int(port) for port in process.stdout.readline().split()]
        (server,) = psutil.Process(process.pid).children()
        process.kill()
    gone, _ = psutil.wait_procs([server], timeout=60)
    remove_sockets(ports)
    assert gone


def test_proxy_passes_on_and_counts(written: Weed) -> None:
    with Proxy(written.http_port) as proxy:
        path = "/buckets/archive/a%20b/1.fits"
        assert get(proxy.port, path, Range="bytes=10-19")[::2] == (206, CONTENT[10:20])
        assert get(proxy.port, path)[::2] == (200, CONTENT)
        assert get(proxy.port, "/buckets/archive/?limit=1", Accept="application/json")[0] == 200
        first, second, third = proxy.requests
        assert (first.method, first.path, first.range) == (
            "GET", "/buckets/archive/a b/1.fits", (10, 20),
        )  # fmt: skip
        assert (first.status, first.nbytes) == (206, 10)
        assert (second.range, second.nbytes) == (None, len(CONTENT))
        assert third.query == "limit=1"
        assert proxy.most_at_once == 1
        proxy.fault(Fault(before=Barrier(2).wait))
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda _: get(proxy.port, path), range(2)))
        assert proxy.most_at_once == 2


def test_proxy_does_harm(written: Weed) -> None:
    path = "/buckets/archive/a%20b/1.fits"
    with Proxy(written.http_port) as proxy:
        proxy.fault(Fault(status=503, headers={"Retry-After": "1"}), "1.fits", times=1)
        proxy.fault(Fault(status=404), "nothing.fits")
        proxy.fault(Fault(drop=True), times=1)
        proxy.fault(Fault(cut=7), times=1)
        proxy.fault(Fault(short=7), times=1)
        proxy.fault(Fault(without=("range",)), times=1)
        status, headers, _ = get(proxy.port, path)
        assert (status, headers["retry-after"]) == (503, "1")
        with pytest.raises(http.client.RemoteDisconnected):
            get(proxy.port, path)
        with pytest.raises(http.client.IncompleteRead, match="7 bytes read"):
            get(proxy.port, path)
        assert get(proxy.port, path)[::2] == (200, CONTENT[:7])
        assert get(proxy.port, path, Range="bytes=10-19")[::2] == (200, CONTENT)
        assert get(proxy.port, path)[::2] == (200, CONTENT)
        assert get(proxy.port, "/nothing.fits")[0] == 404
        assert [request.status for request in proxy.requests] == [503, 0, 200, 200, 200, 200, 404]


def test_proxy_is_late(written: Weed) -> None:
    path = "/buckets/archive/a%20b/1.fits"
    with Proxy(written.http_port, delay=0.02) as proxy:
        begun = time.monotonic()
        proxy.fault(Fault(delay=0.02), times=1)
        proxy.fault(Fault(rate=len(CONTENT) * 20), times=1)
        assert get(proxy.port, path)[2] == CONTENT
        assert time.monotonic() - begun >= 0.04
        assert get(proxy.port, path)[2] == CONTENT
        assert time.monotonic() - begun >= 0.06 + 0.02
        for fault in (Fault(hang=True), Fault(stall=7)):
            proxy.clear()
            proxy.fault(fault)
            with pytest.raises(TimeoutError):
                get(proxy.port, path, timeout=0.2)


def test_proxy_stops_and_starts_again(written: Weed) -> None:
    path = "/buckets/archive/a%20b/1.fits"
    with Proxy(written.http_port) as proxy:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port)
        connection.request("GET", path)
        assert connection.getresponse().read() == CONTENT
        proxy.stop()
        with pytest.raises(ConnectionError):
            get(proxy.port, path)
        proxy.restart()
        assert get(proxy.port, path)[2] == CONTENT
        connection.close()
