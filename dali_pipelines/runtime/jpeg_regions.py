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
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dali_pipelines.runtime.devices import visible_gpus
from readers.cache.folder import cache_folder

logger = logging.getLogger(__name__)

_LIMIT_S = 120
_TOLERANCE = 4
"""Greatest difference between a region and the same pixels of the whole image, of 255."""
_KINDS = ("420", "444", "Gray")
"""Of images. nvImageCodec 0.9 with an nvJPEG before 13.2 leaves regions of subsampled ones to the
CPU, without a word, but none of the others."""
_SHAPE = (479, 637)
_WINDOWS = (
    (0, 0, 224, 224),
    (17, 33, 224, 224),
    (255, 413, 224, 224),
    (5, 600, 470, 9),
    (0, 636, 1, 1),
    (478, 0, 1, 1),
    (311, 0, 168, 637),
    (8, 16, 3, 5),
    (0, 0, 479, 637),
)
"""Row, column, height and width: also corners, odd ones, and all of an image."""
_DECODERS = ("nvidia-dali", "nvidia-nvimgcodec", "nvidia-nvjpeg")
"""Beginnings of the names of packages whose versions decide what works."""
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
_DRIVER = Path("/proc/driver/nvidia")


@cache
def regions_decode(device: int) -> bool:
    """Return whether a GPU decodes regions of JPEG images; log a warning if it does not.

    The first call on a machine takes some seconds, as it starts a process. A good answer, or a
    crash, is noted in the user's cache, for this driver, these GPUs and these versions of DALI,
    nvImageCodec and nvJPEG. Without any GPU nothing is tried, and DALI reports that there is none.
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
    """Return a hash of the driver, the GPUs, those that are visible, and the decoders' versions."""
    files = [_DRIVER / "version", *sorted(_DRIVER.glob("gpus/*/information"))]
    known = [file.read_bytes() for file in files if file.exists()]
    known.append(os.environ.get("CUDA_VISIBLE_DEVICES", "").encode())
    # From conda, or in a container, they may be no packages.
    found = ((one.name.lower(), one.version) for one in importlib.metadata.distributions())
    known += sorted(f"{name} {one}".encode() for name, one in found if name.startswith(_DECODERS))
    return hashlib.sha256(b"\0".join(known)).hexdigest()[:16]


def decode_regions(device: int | None) -> None:
    """Decode regions of JPEG images, and compare them with the whole images.

    Raises
    ------
    ValueError
        If the pixels differ.
    RuntimeError
        If DALI fails.
    """
    from nvidia.dali import Pipeline, fn, types

    tried = [(kind, window) for kind in _KINDS for window in _WINDOWS]
    images = {kind: _encoded(kind) for kind in _KINDS}
    starts, shapes = np.array([w for _, w in tried], np.int32).reshape(-1, 2, 2).swapaxes(0, 1)
    options: dict[str, Any] = {"device": "cpu" if device is None else "mixed"}
    options["jpeg_fancy_upsampling"] = True
    pipeline = Pipeline(batch_size=len(tried), num_threads=1, device_id=device)
    with pipeline:
        encoded, *window = (
            fn.external_source([list(arrays)] * 2)
            for arrays in ([images[kind] for kind, _ in tried], starts, shapes)
        )
        outputs = []
        for output_type in (types.RGB, types.GRAY):
            options["output_type"] = output_type
            outputs.append(fn.decoders.image_slice(encoded, *window, axis_names="HW", **options))
            image = fn.decoders.image(encoded, **options)
            outputs.append(fn.slice(image, *window, axis_names="HW"))
        pipeline.set_outputs(*outputs)
    found = [output.as_cpu() for output in pipeline.run()]
    for number, (kind, place) in enumerate(tried):
        arrays = [np.array(output[number]).astype(int) for output in found]
        for region, whole in zip(arrays[::2], arrays[1::2], strict=True):
            if region.shape != whole.shape or np.abs(region - whole).max() > _TOLERANCE:
                raise ValueError(f"the region {place} of {kind} is not that of the whole image")


def _encoded(kind: str) -> Any:
    """Encode an image in which a step of one pixel shows, with colours that hardly change."""
    import simplejpeg

    y, x = np.indices(_SHAPE)
    light = 110 + 50 * np.sin(y / 7) + 50 * np.sin(x / 5)
    image = np.stack((light + x / 32, light, light + y / 32), axis=-1).astype(np.uint8)
    if kind == "Gray":
        gray = np.ascontiguousarray(image[..., :1])
        data = simplejpeg.encode_jpeg(gray, colorspace="GRAY", colorsubsampling=kind)
    else:
        data = simplejpeg.encode_jpeg(image, colorsubsampling=kind)
    return np.frombuffer(data, np.uint8)


if __name__ == "__main__":
    decode_regions(int(sys.argv[1]))
