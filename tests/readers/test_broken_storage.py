"""Files that can be opened, and fail when they are read: broken disks, and changes meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from PIL import Image

from readers import FitsReader, JpegReader, NpyReader, ReadError, Row

PIXELS = np.random.default_rng(0).poisson(100, (200, 300)).astype(np.int16)


def plain(path: Path) -> None:
    fits.PrimaryHDU(PIXELS).writeto(path)


def rice(path: Path) -> None:
    fits.CompImageHDU(PIXELS, compression_type="RICE_1").writeto(path)


def gzip_tiles(path: Path) -> None:
    fits.CompImageHDU(PIXELS, compression_type="GZIP_1").writeto(path)


def npy(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, PIXELS.astype(np.float32))


def png(path: Path) -> None:
    Image.fromarray(PIXELS.astype(np.uint8)).save(path, format="PNG")


KINDS = [
    (FitsReader, plain),
    (FitsReader, rice),
    (FitsReader, gzip_tiles),
    (NpyReader, npy),
    (JpegReader, png),
]


def refused(reader: Callable[[], Any], path: Path, reason: str) -> None:
    with pytest.raises(ReadError, match=reason) as caught:
        reader().read(Row(7, str(path)), None)
    assert (caught.value.path, caught.value.row) == (str(path), 7)


@pytest.mark.parametrize(("reader", "save"), KINDS)
def test_a_file_that_may_not_be_read(
    tmp_path: Path, reader: Callable[[], Any], save: Callable[[Path], None]
) -> None:
    path = tmp_path / "a"
    save(path)
    path.chmod(0)
    with not_root():
        refused(reader, path, "Permission denied")


@contextmanager
def not_root() -> Iterator[None]:
    """Be somebody else for a while, if this is root, who may read everything."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        if user == 0:
            os.seteuid(0)


SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* Bytes that can be read at a position: of files named .cut and .eio the first SAFE are good, of
   those named .bad none. */
static ssize_t good(int file, size_t size, off_t at) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 4) return size;
    path[length] = 0;
    if (!strcmp(path + length - 4, ".cut")) truncate(path, SAFE);
    else if (!strcmp(path + length - 4, ".bad")) { errno = EIO; return -1; }
    else if (!strcmp(path + length - 4, ".eio")) {
        if (at >= SAFE) { errno = EIO; return -1; }
        if (at + size > SAFE) return SAFE - at;
    }
    return size;
}

ssize_t read(int file, void *to, size_t size) {
    ssize_t (*next)(int, void *, size_t) = dlsym(RTLD_NEXT, "read");
    ssize_t most = good(file, size, lseek(file, 0, SEEK_CUR));
    return most < 0 ? -1 : next(file, to, most);
}

ssize_t pread64(int file, void *to, size_t size, off_t at) {
    ssize_t (*next)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread64");
    ssize_t most = good(file, size, at);
    return most < 0 ? -1 : next(file, to, most, at);
}

static ssize_t part(char *name, int file, const struct iovec *to, off_t at, int flags) {
    ssize_t (*next)(int, const struct iovec *, int, off_t, int) = dlsym(RTLD_NEXT, name);
    ssize_t most = good(file, to->iov_len, at);
    struct iovec first = {to->iov_base, most};
    return most < 0 ? -1 : next(file, &first, 1, at, flags);
}

/* os.preadv calls the one or the other. */
ssize_t preadv64(int file, const struct iovec *to, int count, off_t at) {
    return part("preadv64", file, to, at, 0);
}

ssize_t preadv64v2(int file, const struct iovec *to, int count, off_t at, int flags) {
    return part("preadv64v2", file, to, at, flags);
}
"""
"""In place of the calls by which Python reads. What astropy reads by NumPy goes past it."""

READ = """
import json, sys
import readers
found = {}
for path in sys.argv[1:]:
    name, _, _ = path.rpartition("/")[2].partition("-")
    try:
        getattr(readers, name)().read(readers.Row(7, path), None)
    except readers.ReadError as error:
        found[path] = str(error)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def reasons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Errors of Readers for files that go bad while they are read, by the files' names.

    In a process of its own, which such a file would kill if it were mapped.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler, cc, for the calls that fail")
    folder = tmp_path_factory.mktemp("broken")
    (folder / "shim.c").write_text("#include <stdio.h>\n" + SHIM)
    shim = str(folder / "shim.so")
    options = ["-shared", "-fPIC", f"-DSAFE={PIXELS.nbytes // 3}", "-ldl"]
    subprocess.run([compiler, str(folder / "shim.c"), "-o", shim, *options], check=True)
    paths = []
    for reader, save in KINDS:
        for ending in "cut", "eio", "bad":
            paths.append(folder / f"{reader.__name__}-{save.__name__}.{ending}")
            save(paths[-1])
            assert paths[-1].stat().st_size > PIXELS.nbytes // 3
    found = subprocess.run(
        [sys.executable, "-c", READ, *map(str, paths)],
        env={**os.environ, "LD_PRELOAD": shim},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, (found.returncode, found.stderr)
    return {os.path.basename(path): error for path, error in json.loads(found.stdout).items()}


@pytest.mark.parametrize(("reader", "save"), KINDS)
def test_a_file_that_is_cut_while_it_is_read(
    reasons: dict[str, str], reader: Callable[[], Any], save: Callable[[Path], None]
) -> None:
    name = f"{reader.__name__}-{save.__name__}.cut"
    assert f"{name}" in reasons[name]


@pytest.mark.parametrize(("reader", "save"), [kind for kind in KINDS if kind[1] is not gzip_tiles])
def test_an_input_output_error_after_the_header(
    reasons: dict[str, str], reader: Callable[[], Any], save: Callable[[Path], None]
) -> None:
    name = f"{reader.__name__}-{save.__name__}.eio"
    assert f"{name}" in reasons[name]
    assert "Input/output error" in reasons[name]


@pytest.mark.parametrize(("reader", "save"), KINDS)
def test_an_input_output_error(
    reasons: dict[str, str], reader: Callable[[], Any], save: Callable[[Path], None]
) -> None:
    name = f"{reader.__name__}-{save.__name__}.bad"
    assert f"{name} (row 7): [Errno 5] Input/output error" in reasons[name]
