"""Fixtures that any test may use, and the Hypothesis profiles."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

# PyTorch's threads of OpenMP would wait for each small step by spinning, on cores that others need.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# OpenBLAS's threads do so at the start of each of hundreds of processes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# JAX takes the CPU for four devices.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
# Code that numba compiles is found again also by tests with another folder for the user's cache.
os.environ.setdefault(
    "NUMBA_CACHE_DIR", str(Path(__file__).resolve().parents[1] / "build" / "numba")
)

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from gpu_offline.device import Device
    from on_gpu.launcher import Gpu
    from servers.proxy import Proxy
    from servers.weed import Weed

pytest.register_assert_rewrite("readers.testing")

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent

FIRST = tuple(
    TESTS / name
    for name in (
        # These two compile most kernels, each its own, which all others find compiled.
        "dali_pipelines/test_factories.py",
        "dali_pipelines/kernels/resample/test_warp.py",
        # Meanwhile come those that need none of them, or what two compile at once costs twice.
        "dali_pipelines/graph/gpu/test_operators.py",  # compiles the kernels of GPUs
        "dali_pipelines/test_launchers.py",
        "dali_pipelines/test_no_memory.py",
        "dali_pipelines/test_ends.py",
        "readers",
        # The rest takes longest: one file that is left for the end runs alone.
        "test_documents.py",
        "scripts/test_train.py",
        "dali_pipelines/cli/run/test_run.py",
        "benchmarks/test_suites.py",
        "dali_pipelines/cli/test_ranks.py",
        "dali_pipelines/cli/test_executors.py",
        "dali_pipelines/cli/verify/test_verify.py",
        "dali_pipelines/cli/index/test_index.py",
        "dali_pipelines/cli/prep/test_prep.py",
    )
)
"""Files and folders that begin first, in this order."""
assert all(path.exists() for path in FIRST), "tests/conftest.py: FIRST names a file that has moved"

# tmp_path is shared by the examples of a test: each example overwrites what it finds there.
_SUPPRESSED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
settings.register_profile(
    "ci",
    derandomize=True,
    print_blob=True,
    max_examples=30,
    deadline=None,
    suppress_health_check=_SUPPRESSED,
)
settings.register_profile(
    "fuzz",
    print_blob=True,
    max_examples=1000,
    deadline=None,
    suppress_health_check=_SUPPRESSED,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# A shell starts what runs in the background, this perhaps, so that it ignores Ctrl-C, and the
# scripts that tests start and interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # A server, or a minute of one core for the kernels of a GPU.
        if not {"weed", "kernels_folder"}.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
    place = {path: number for number, path in enumerate(FIRST)}
    items.sort(
        key=lambda item: min(
            place.get(path, len(FIRST)) for path in (item.path, *item.path.parents)
        )
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        # As doctor finds them: WSL2 has no /dev/nvidia0.
        from dali_pipelines.cli.doctor.nvml import installed_driver, usable_gpus

        if not usable_gpus(installed_driver()):
            pytest.skip("needs an NVIDIA GPU")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real sample files, see SOURCES.md in it; they are no part of the repository."""
    folder = ROOT.parent / "shared" / "data"
    if folder.is_dir():
        return folder
    if os.environ.get("REQUIRE_SHARED_DATA") == "1":
        pytest.fail(f"REQUIRE_SHARED_DATA=1, but {folder} is missing")
    pytest.skip(f"no sample files in {folder}")


@pytest.fixture(scope="session")
def kernels_folder() -> Path:
    """Folder where one process compiles CUDA kernels, and all find them; later runs, too.

    Its name stands for all sources, for the compilers, and for this CPU, which emulates GPUs.
    """
    from dali_pipelines.kernels.jit import JIT
    from readers.cache.jit import source_hash

    parts = (TESTS / "gpu_offline").glob("*.*")
    emulator = source_hash(part for part in parts if not part.name.startswith("test_"))
    compilers = [version(name) for name in ("numba-cuda", "nvidia-cuda-nvcc")]
    cpu = re.search("flags.*", Path("/proc/cpuinfo").read_text())
    known = repr((JIT.source_hash, emulator, compilers, cpu and cpu[0]))
    return ROOT / "build" / "kernels" / hashlib.sha256(known.encode()).hexdigest()[:16]


@pytest.fixture(
    scope="session",
    params=(
        pytest.param("sm_90", marks=pytest.mark.slow),
        pytest.param("sm_75", marks=pytest.mark.slow),
        pytest.param("sm_120", marks=pytest.mark.slow),
        pytest.param("real", marks=pytest.mark.gpu),
    ),
)
def gpu(request: pytest.FixtureRequest) -> Device | Gpu:
    """A GPU: emulated, where its kernels are compiled, and run on the CPU; or the real one."""
    if request.param == "real":
        from on_gpu.launcher import Gpu

        return Gpu()
    from gpu_offline.device import emulated

    return emulated(request.getfixturevalue("kernels_folder"), request.param)


@pytest.fixture(scope="session")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weed]:
    """A store of objects; it is asked with `s3_keys`."""
    from servers.weed import Weed

    server = Weed(tmp_path_factory.mktemp("weed"))
    yield server
    server.kill()


@pytest.fixture
def s3_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment has the keys of `weed`, and nothing else of S3."""
    from servers.weed import ACCESS_KEY, SECRET_KEY

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def s3_proxy(weed: Weed, s3_keys: None) -> Iterator[Proxy]:
    """A proxy before S3, without faults yet."""
    from servers.proxy import Proxy

    with Proxy(weed.s3_port) as proxy:
        yield proxy


@pytest.fixture
def http_proxy(weed: Weed, s3_keys: None) -> Iterator[Proxy]:
    """A proxy before plain HTTP, without faults yet."""
    from servers.proxy import Proxy

    with Proxy(weed.http_port) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def fresh_python() -> Callable[..., bytes]:
    """Run code in a new interpreter that imports what the tests import; give its stdout."""

    def run(code: str, *, stdin: bytes = b"", returncode: int = 0) -> bytes:
        found = subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            input=stdin,
            capture_output=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(
                    str(ROOT / part) for part in ("", "tests", "scripts")
                ),
            },
            timeout=120,
            check=False,
        )
        assert found.returncode == returncode, found.stderr.decode()
        return found.stdout

    return run
