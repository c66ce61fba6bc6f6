"""From the path of a FITS image to its pixels on one core, here or in a process of another form.

    python -m benchmarks.ways.decoder PATH DTYPE SIZE OUT

decodes the image once for each line of its input, into the file OUT.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure.race import Batch, Run
from readers.worker.malloc import keep_freed_memory

Decode = Callable[[str], Any]


def decoder(out: NDArray[Any]) -> Decode:
    """Return a function that decodes an image, or the middle of one, into an array.

    Parameters
    ----------
    out : ndarray, shape (size, size), float32 or an integer
        Memory is taken once: a Loader, too, uses its buffers again.
    """
    from dali_pipelines.kernels.fits.image import decode_image
    from readers import FitsReader, Row, Window

    is_float = out.dtype == np.float32
    reader = FitsReader(stored=None if is_float else out.dtype.name)
    window = Window(height=len(out), width=len(out))
    flip, finish = np.zeros(2, np.int32), np.array((0, 1) if is_float else (), np.float32)

    def decode(path: str) -> NDArray[Any]:
        sample = reader.read(Row(0, path), window)
        arrays = (sample[name] for name in ("payload", "plan", "scaling"))
        if decode_image(out[..., None], *arrays, flip, finish) != 0:
            raise ValueError(f"{path} is damaged")
        return out

    return decode


@contextmanager
def decoding(
    path: str, dtype: str, size: int, variables: Mapping[str, str], repeats: int
) -> Iterator[Run]:
    """Decode in a process with other environment variables, so many times in a round."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pixels"
        out = np.memmap(file, dtype, "w+", shape=(size, size))
        environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "benchmarks.ways.decoder", path, dtype, str(size)]
        with subprocess.Popen(
            [*command, str(file)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            yield lambda _: (_decoded(child, out) for _ in range(repeats))
            child.communicate()


def _decoded(child: subprocess.Popen[str], out: NDArray[Any]) -> Batch:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("\n")
    child.stdin.flush()
    if not child.stdout.readline():
        raise ValueError("the process that decodes has ended; see above")
    return range(1), [out]


def main(path: str, dtype: str, size: str, out: str, lines: IO[str], answers: IO[str]) -> None:
    """Decode an image for each line."""
    keep_freed_memory()
    decode = decoder(np.memmap(out, dtype, "r+", shape=(int(size), int(size))))
    for _ in lines:
        decode(path)
        answers.write("\n")
        answers.flush()


if __name__ == "__main__":
    path, dtype, size, out = sys.argv[1:]
    main(path, dtype, size, out, sys.stdin, sys.stdout)
