"""A Triton server on loopback: the one in the wheel of PyTriton, with its Python backend."""

from __future__ import annotations

import ctypes
import http.client
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_UP_WITHIN = _DOWN_WITHIN = 240.0
"""Seconds. A model begins with the import of DALI; all of them do so at the same time."""


class Triton:
    """A server of the models in a folder; it ends with this process, however that ends.

    Parameters
    ----------
    models : Path
        The model repository.
    folder : Path
        For its log, and the Python backend.

    Raises
    ------
    ConnectionError
        If it ends, or is not ready in time. The message has its log.
    """

    def __init__(self, models: Path, folder: Path) -> None:
        found = importlib.util.find_spec("pytriton")
        assert found is not None
        assert found.origin is not None
        package = Path(found.origin).parent
        self._shm = f"tests_{os.getpid()}_{id(self)}"
        self._log = folder / "triton.log"
        self._starter = ThreadPoolExecutor(1)
        # Held while the server listens there, too, so that nobody else gets them.
        self._held = [_reserved() for _ in range(2)]
        self.http, self.grpc = (f"127.0.0.1:{one.getsockname()[1]}" for one in self._held)
        server = package / "tritonserver"
        command = [
            str(server / "bin" / "tritonserver"),
            f"--model-repository={models}",
            f"--backend-directory={_backends(server, folder)}",
            f"--backend-config=python,shm-region-prefix-name={self._shm}",
            "--allow-metrics=false",
            f"--exit-timeout-secs={_DOWN_WITHIN:.0f}",
        ]
        for name, address in (("http", self.http), ("grpc", self.grpc)):
            host, port = address.split(":")
            command += [f"--{name}-address={host}", f"--{name}-port={port}"]
            command.append(f"--reuse-{name}-port=true")
        # Models are run by the Python whose folder comes first.
        libraries = sysconfig.get_config_var("LIBDIR"), package.parent / "nvidia_pytriton.libs"
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
        }
        with self._log.open("wb") as log:
            # It ends with the thread that starts it: not the caller's, which may end before.
            self._process = self._starter.submit(
                subprocess.Popen,
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=partial(ctypes.CDLL(None).prctl, _DEATH_SIGNAL, signal.SIGKILL),
            ).result()
        end = time.monotonic() + _UP_WITHIN
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > end:
                self.close()
                raise ConnectionError(f"Triton did not start: {self.log}")
            time.sleep(0.1)

    @property
    def log(self) -> str:
        """What it has written."""
        return self._log.read_text(errors="replace")

    @property
    def models(self) -> list[psutil.Process]:
        """Processes of the models."""
        return psutil.Process(self._process.pid).children(recursive=True)

    def close(self) -> list[str]:
        """End it; return, and remove, what it left behind: processes and shared memory."""
        if self._process.returncode is not None:
            return []
        models = self.models
        self._process.terminate()
        left = []
        try:
            status = self._process.wait(_DOWN_WITHIN)
            if status != 0:
                left.append(f"exit status {status}")
        except subprocess.TimeoutExpired:
            left.append(f"process {self._process.pid}")
            self._process.kill()
            self._process.wait()
        for process in psutil.wait_procs(models, timeout=30)[1]:
            left.append(f"process {process.pid}")
            process.kill()
        for path in Path("/dev/shm").glob(f"{self._shm}*"):
            left.append(str(path))
            path.unlink()
        for held in self._held:
            held.close()
        self._starter.shutdown()
        return left

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection(self.http, timeout=30)
        try:
            connection.request("GET", "/v2/health/ready")
            return connection.getresponse().status == http.client.OK
        except OSError:
            return False
        finally:
            connection.close()


def _reserved() -> socket.socket:
    """Return a socket at a free port, where the server can listen beside it."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("127.0.0.1", 0))
    return held


def _backends(server: Path, folder: Path) -> Path:
    """Make the folder of backends: the Python backend, for this version of Python."""
    backends = folder / "backends"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = "triton_python_backend_stub"
    shutil.copytree(server / "backends" / "python", backends / "python")
    shutil.copy(server / "python_backend_stubs" / version / stub, backends / "python" / stub)
    return backends
