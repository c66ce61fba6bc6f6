"""Whether DALI can decode regions of JPEG images on a GPU: tried in a process that may crash.

nvImageCodec 0.9.0 fails at that on some GPUs, and kills the process on others (NVIDIA/nvImageCodec
issue 55). ``python -m dali_pipelines.runtime.jpeg_regions DEVICE`` decodes some regions.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dali_pipelines.runtime.devices import visible_gpus
from readers.cache import cache_folder

logger = logging.getLogger(__name__)

_LIMIT_S = 120
_TOLERANCE = 4
"""Greatest difference between a region and the same pixels of the whole image, of 255."""
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
_DRIVER = Path("/proc/driver/nvidia")


@cache
def regions_decode(device: int) -> bool:
    """Return whether a GPU decodes regions of JPEG images; log a warning if it does not.

    The first call on a machine takes some seconds, as it starts a process. A good answer, or a
    crash, is noted in the user's cache, for this driver, these GPUs and this nvImageCodec. Without
    any GPU nothing is tried, and DALI reports that there is none.
    """
    if not visible_gpus():
        return True
    note = cache_folder() / f"jpeg-regions-{device}-{_machine()}"
    try:
        reason = note.read_text()
    except OSError:
        reason, lasts = _tried(device)
        if lasts:
            _keep(note, reason)
    if reason:
        logger.warning(
            "GPU %d does not decode regions of JPEG images (%s): images are decoded whole and then "
            "cut; with noted rows of MCUs (index --mcu_rows) that is only the rows needed",
            device,
            reason,
        )
    return not reason


def _tried(device: int) -> tuple[str, bool]:
    """Return why the GPU does not decode regions, "" if it does; and whether that will last."""
    command = [sys.executable, "-P", "-m", __name__, str(device)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer in {_LIMIT_S} s", False
    if done.returncode < 0:
        crashed = -done.returncode in _CRASHES  # else something has killed it
        return f"the decoder was killed by signal {-done.returncode}", crashed
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    # An error may come of something else, e.g. of a GPU without free memory.
    return (lines or ["no reason given"])[-1] if done.returncode else "", done.returncode == 0


def _keep(note: Path, reason: str) -> None:
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(reason)
    except OSError as error:
        logger.info("%s: the answer is not kept: %s", note, error)


def _machine() -> str:
    """Return a hash of the driver, the GPUs, those that are visible, and nvImageCodec."""
    files = [_DRIVER / "version", *sorted(_DRIVER.glob("gpus/*/information"))]
    known = [file.read_bytes() for file in files if file.exists()]
    known.append(os.environ.get("CUDA_VISIBLE_DEVICES", "").encode())
    with suppress(importlib.metadata.PackageNotFoundError):  # from conda, or a container
        known.append(importlib.metadata.version("nvidia-nvimgcodec-cu12").encode())
    return hashlib.sha256(b"\0".join(known)).hexdigest()[:16]


def decode_regions(device: int | None) -> None:
    """Decode regions of a JPEG image, and compare them with the whole image.

    Raises
    ------
    ValueError
        If the pixels differ.
    RuntimeError
        If DALI fails.
    """
    import simplejpeg
    from nvidia.dali import Pipeline, fn

    y, x = np.indices((480, 640))
    image = np.stack((y // 2, x // 3, (y + x) // 5), axis=-1).astype(np.uint8)
    encoded = np.frombuffer(simplejpeg.encode_jpeg(image, colorsubsampling="420"), np.uint8)
    windows = [(0, 0, 224, 224), (17, 33, 224, 224), (255, 415, 225, 225), (5, 600, 470, 9)]
    starts, shapes = np.array(windows, np.int32).reshape(-1, 2, 2).swapaxes(0, 1)
    pipeline = Pipeline(batch_size=len(windows), num_threads=1, device_id=device)
    with pipeline:
        inputs = [
            fn.external_source([list(arrays)] * 2)
            for arrays in ([encoded] * len(windows), starts, shapes)
        ]
        options: dict[str, Any] = {"device": "cpu" if device is None else "mixed"}
        options["jpeg_fancy_upsampling"] = True
        regions = fn.decoders.image_slice(*inputs, axis_names="HW", **options)
        wholes = fn.slice(fn.decoders.image(inputs[0], **options), *inputs[1:], axis_names="HW")
        pipeline.set_outputs(regions, wholes)
    found = [output.as_cpu() for output in pipeline.run()]
    for number, window in enumerate(windows):
        region, whole = (np.array(output[number]).astype(int) for output in found)
        if region.shape != whole.shape or np.abs(region - whole).max() > _TOLERANCE:
            raise ValueError(f"the region {window} is not that of the whole image")


if __name__ == "__main__":
    decode_regions(int(sys.argv[1]))
