"""What a file says of how to show its image does not change the values that are decoded."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image

from dali_pipelines import Index, Loader, jpeg_pipeline

CHANNELS = 3, 1
COLOURS = np.random.default_rng(0).integers(0, 256, (24, 32, 4)).astype(np.uint8)

# By cjpeg -arithmetic -progressive: no library for Python writes these.
ARITHMETIC = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZG"
    "NywtQFdBRkxOUlNSMj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09P"
    "T09PT09PT09PT09PT09PT09PT09PT09PT0//ygARCAAQABADASIAAhEBAxEB/8wABgAQARD/2gAMAwEAAhADEAAA"
    "Af7wwCCg/8wABBAF/9oACAEBAAEFAh6otu1J/8wABBEF/9oACAEDAQE/ARVr/8wABBEF/9oACAECAQE/AQ//zAAE"
    "EAX/2gAIAQEABj8CwP/MAAQQBf/aAAgBAQABPyHTSVMY/9oADAMBAAIAAwAAABBQ/8wABBEF/9oACAEDAQE/ENUe"
    "/8wABBEF/9oACAECAQE/EPD/zAAEEAX/2gAIAQEAAT8Q11P+CP/Z"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("stored")
    gamma = struct.pack(">I", 45455)
    encoded = {
        "srgb.png": _png(COLOURS[..., :3], (b"sRGB", b"\0")),
        "gamma.png": _png(COLOURS, (b"gAMA", gamma)),
        "deep.png": _png(COLOURS[..., :3].astype(">u2") * 257, (b"gAMA", gamma)),
        "animated.png": _animated(),
        "arithmetic.jpg": ARITHMETIC,
    }
    for name, data in encoded.items():
        (folder / name).write_bytes(data)
    return {name: folder / name for name in encoded}


def _png(pixels: NDArray[np.generic], *chunks: tuple[bytes, bytes]) -> bytes:
    """Write a PNG with these chunks in front of the pixels."""
    height, width, samples = pixels.shape
    kind = {3: 2, 4: 6}[samples]
    head = struct.pack(">2I5B", width, height, 8 * pixels.itemsize, kind, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + line.tobytes() for line in pixels))
    parts = (b"IHDR", head), *chunks, (b"IDAT", body), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )


def _animated() -> bytes:
    """Write an animation whose image is not its first frame."""
    stream = io.BytesIO()
    frames = [Image.fromarray(255 - COLOURS[..., :3])] * 2
    image = Image.fromarray(COLOURS[..., :3])
    image.save(stream, "PNG", save_all=True, default_image=True, append_images=frames)
    return stream.getvalue()


def _expected(path: Path, channels: int) -> NDArray[np.float64]:
    """Decode by Pillow; of 16 bits, which it cuts, all samples are 257 times the upper byte."""
    with Image.open(path) as image:
        rgb = np.asarray(image.convert("RGB"), np.float64)
    rgb = rgb * 257 if path.name == "deep.png" else rgb
    rgb = rgb if channels == 3 else rgb @ [[0.299], [0.587], [0.114]]
    return rgb.transpose(2, 0, 1)


@pytest.mark.parametrize("channels", CHANNELS)
def test_values_are_those_that_are_stored(files: dict[str, Path], channels: int) -> None:
    paths = list(files.values())
    loader = Loader(
        jpeg_pipeline,
        Index.from_paths(paths),
        batch_size=1,
        num_read_processes=1,
        shuffle=False,
        devices=[None],
        channels=channels,
    )
    with loader:
        images = [batch["image"][0].numpy() for (batch,) in loader]
    for path, image in zip(paths, images, strict=True):
        limit = 4 if path.name == "deep.png" else 2  # of 65535, and of 255
        np.testing.assert_allclose(image, _expected(path, channels), atol=limit, err_msg=path.name)


@pytest.mark.parametrize(
    ("samples", "kind"),
    [
        (2, ("minisblack", "contig", "unassalpha")),
        (4, ("rgb", "separate", "unassalpha")),
        (5, ("separated", "contig", "unspecified")),
    ],
)
def test_tiff_that_dali_would_multiply_by_alpha(
    tmp_path: Path, samples: int, kind: tuple[str, str, str]
) -> None:
    pixels = np.concatenate([COLOURS, COLOURS], 2)[..., :samples]
    photometric, planes, extra = kind
    if planes == "separate":
        pixels = pixels.transpose(2, 0, 1)
    path = tmp_path / "alpha.tif"
    tifffile.imwrite(
        path,
        np.ascontiguousarray(pixels),
        photometric=photometric,
        planarconfig=planes,
        extrasamples=[extra],
    )
    np.testing.assert_array_equal(_delivered(path), _expected(path, 3))


def test_bmp_without_its_last_byte_of_padding(tmp_path: Path) -> None:
    """DALI would leave pixels uninitialised."""
    path = tmp_path / "padded.bmp"
    Image.fromarray(COLOURS[:, :-1, :3]).save(path)
    path.write_bytes(path.read_bytes()[:-1])
    np.testing.assert_array_equal(_delivered(path), _expected(path, 3))


def _delivered(path: Path) -> NDArray[Any]:
    options: dict[str, Any] = {"batch_size": 1, "num_read_processes": 1, "framework": "numpy"}
    with Loader(jpeg_pipeline, Index.from_paths([path]), devices=[None], **options) as loader:
        ((batch,),) = list(loader)
    return np.asarray(batch["image"][0])
