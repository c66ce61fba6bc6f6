"""SeaweedFS on loopback: a store that checks signatures, ranges and If-Match."""

from __future__ import annotations

import ctypes
import http.client
import json
import signal
import socket
import subprocess
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import quote

ACCESS_KEY = "AKIATESTSTESTSTESTS0"
SECRET_KEY = "s3cr3t/OfTheTests+0123456789abcdefghijkl"
"""A key that may do all; tests look for it in what must hold no secret."""
OPEN = "open"
"""Bucket that anybody may read."""

_PARTS = ("master", "volume", "filer", "s3")
_IDENTITIES = {
    "identities": [
        {
            "name": "tests",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List"],
        },
        {"name": "anonymous", "actions": [f"Read:{OPEN}", f"List:{OPEN}"]},
    ]
}
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_UP_WITHIN = 60.0


class Weed:
    """A server with a folder of its own; it ends with this process, however that ends.

    Parameters
    ----------
    folder : Path
        Where it keeps objects, which outlive `kill`, and its log.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._starter = ThreadPoolExecutor(1)
        (folder / "data").mkdir(parents=True)
        (folder / "s3.json").write_text(json.dumps(_IDENTITIES))
        for attempt in range(5):
            ports = _free_ports(2 * len(_PARTS))
            self._ports = dict(zip(_PARTS, ports[::2], strict=True))
            self._grpc_ports = dict(zip(_PARTS, ports[1::2], strict=True))
            try:
                self.start()
                break
            except ConnectionError:  # another process took a port meanwhile
                if attempt == 4:
                    raise

    @property
    def ports(self) -> list[int]:
        """All ports that it listens at."""
        return [*self._ports.values(), *self._grpc_ports.values()]

    @property
    def s3_port(self) -> int:
        """Port of S3, for a proxy."""
        return self._ports["s3"]

    @property
    def http_port(self) -> int:
        """Port of plain HTTP, where objects are at ``/buckets/BUCKET/KEY``; for a proxy."""
        return self._ports["filer"]

    def start(self) -> None:
        """Start it at the same ports with the same objects.

        Raises
        ------
        ConnectionError
            If it ends, or does not answer.
        """
        with (self._folder / "weed.log").open("ab") as log:
            # It ends with the thread that starts it: not the caller's, which may end before.
            self._process = self._starter.submit(
                subprocess.Popen,
                [str(Path(sysconfig.get_path("scripts")) / "weed"), "server", *self._options()],
                stdout=log,
                stderr=log,
                preexec_fn=partial(ctypes.CDLL(None).prctl, _DEATH_SIGNAL, signal.SIGKILL),
            ).result()
        end = time.monotonic() + _UP_WITHIN
        while self._process.poll() is None and time.monotonic() < end:
            if self._is_up():
                return
            time.sleep(0.02)
        self.kill()
        raise ConnectionError(f"weed did not start: {(self._folder / 'weed.log').read_text()}")

    def kill(self) -> None:
        """Kill it at once; SIGTERM would take it seconds."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        remove_sockets(self.ports)

    def put(self, bucket: str, key: str, content: bytes) -> None:
        """Write an object, in a bucket that is made if it is missing."""
        status, text = self._request("filer", "PUT", f"/buckets/{bucket}/{quote(key)}", content)
        assert status == http.client.CREATED, text

    def delete(self, bucket: str, key: str) -> None:
        """Delete an object."""
        status, text = self._request("filer", "DELETE", f"/buckets/{bucket}/{quote(key)}")
        assert status == http.client.NO_CONTENT, text

    def _options(self) -> list[str]:
        options: dict[str, object] = {
            "dir": self._folder / "data",
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "filer": "true",
            "master.peers": "none",  # it waits for none: by default a second start takes 15 s
            "master.telemetry": "false",
            "master.volumeSizeLimitMB": 64,
            "s3": "true",
            "s3.config": self._folder / "s3.json",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "volume.max": 100,
        }
        for part in _PARTS:
            options[f"{part}.port"] = self._ports[part]
            options[f"{part}.port.grpc"] = self._grpc_ports[part]
        return [f"-{name}={value}" for name, value in options.items()]

    def _is_up(self) -> bool:
        try:
            for part, path in (
                ("filer", "/healthz"),
                ("s3", "/healthz"),
                ("master", "/dir/status"),
            ):
                status, text = self._request(part, "GET", path)
                if status != http.client.OK:
                    return False
        except OSError:
            return False
        # The master has found the part that holds the objects.
        return json.loads(text)["Topology"]["DataCenters"] is not None

    def _request(
        self, part: str, method: str, path: str, content: bytes | None = None
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._ports[part], timeout=30)
        try:
            connection.request(method, path, content)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


def remove_sockets(ports: list[int]) -> None:
    """Remove the sockets in the file system that a server at these ports has left."""
    for port in ports:
        for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
            left.unlink()


def _free_ports(count: int) -> list[int]:
    """Return ports of loopback that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [held.getsockname()[1] for held in sockets]
    for held in sockets:
        held.close()
    return ports
