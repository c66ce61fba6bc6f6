"""Images of more than 2**31 pixels: with offsets of 32 bits, kernels would read or write elsewhere.

Their memory is sparse, and only blocks at the far end of the image run. They must write what they
write to the far end of a small image.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from numpy.typing import NDArray

from dali_pipelines.kernels.fits import image_cuda_table
from dali_pipelines.kernels.fits.dither import RANDOM
from dali_pipelines.kernels.fits.image import decode_image
from dali_pipelines.kernels.launch_table import launch_table
from dali_pipelines.kernels.resample import prefilter_cuda, warp_cuda, warp_cuda_table
from dali_pipelines.kernels.resample.bspline import REACH
from dali_pipelines.stretch import Stretch
from gpu_offline.compiler import ARCHS, build
from gpu_offline.emulator import (
    CC,
    ONE_WRITER,
    READ_ONLY,
    Buffer,
    Program,
    allocated,
    sparse,
)
from readers import FitsReader, Row
from readers.fits.payload import HEAD, HEIGHT, OFFSET, PADDING, PER_TILE

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CC is None, reason="no C compiler, cc")]

LARGE, SMALL = (65536, 65536), (256, 384)
"""Shapes that begin and end where tiles of the kernels do."""
FAR = 5 << 30
"""Bytes in a payload before its tiles."""


@pytest.fixture(scope="module", params=ARCHS)
def arch(request: pytest.FixtureRequest, kernels_folder: Path) -> Any:
    """Return what gives the programs of an architecture, by name."""
    build("gpu_offline.kernels:KERNELS", kernels_folder, tuple(ARCHS))
    return lambda name: Program(kernels_folder / f"{name}.{request.param}.ptx")


class Launch:
    """Memory of a launch, and its table."""

    def __init__(self) -> None:
        self.arrays: list[tuple[NDArray[Any], int]] = []

    def address(self, array: NDArray[Any], writers: int = READ_ONLY) -> int:
        self.arrays.append((array, writers))
        return array.ctypes.data

    def run(self, program: Program, grid: Any, block: Any, arguments: Any, blocks: Any) -> None:
        buffers = [Buffer(one.ctypes.data, one.nbytes, writers) for one, writers in self.arrays]
        program(grid, block, arguments, buffers, blocks=blocks)


def end_of(shape: tuple[int, int], corner: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return an image of zeros that ends with this corner."""
    image = sparse(shape, np.float32)
    image[-corner.shape[0] :, -corner.shape[1] :] = corner
    return image


def resampled(
    program: Program, tile: tuple[int, int], block: Any, shape: tuple[int, int], flip: int
) -> NDArray[np.float32]:
    """Run the last block of a kernel, known by its tile; return what it wrote."""
    corner = np.random.default_rng(0).normal(100, 20, (120, 160)).astype(np.float32)
    launch, written = Launch(), sparse(shape, np.float32)
    source = end_of(shape, corner)
    ordinary: dict[str, NDArray[Any]] = {
        "limits": np.array([-np.inf, np.inf], np.float32),
        "frame": np.array([0, 0, *shape], np.int64),
        "matrix": np.array([[1, 0, -0.25], [0, 1, -0.5]], np.float64),
        "reduce": np.ones(1, np.int64),
        "gain": np.ones(1, np.float64),
        "stretch": Stretch().parameters(),
        "special": np.array([-5, -6, -np.inf, -np.inf], np.float64),
        "flip": np.array([flip, flip], np.int32),
    }
    given, made = launch.address(source), launch.address(written, ONE_WRITER)
    grid = warp_cuda_table.blocks(tile, [shape])
    ranges = sparse((grid[0] * grid[1], 2), np.float32)
    # Each kernel reads one of the images and writes one.
    image = warp_cuda_table.WarpedImage(
        out=made,
        rows=shape[0],
        columns=shape[1],
        image=given,
        height=shape[0],
        width=shape[1],
        lines=given if tile == prefilter_cuda.COLUMN_TILE else made,
        coefficients=given if tile == warp_cuda.TILE else made,
        ranges=launch.address(ranges, ONE_WRITER),
        **{name: launch.address(array) for name, array in ordinary.items()},
    )
    table = launch_table([image])
    launch.run(program, grid, block, [launch.address(table)], [grid[0] * grid[1] - 1])
    rows, columns = tile
    if tile == prefilter_cuda.ROW_TILE:
        seen = source[-rows:, -columns - REACH :]
        np.testing.assert_array_equal(ranges[-1], [seen.min(), seen.max()])
    part = written[:rows, :columns] if flip else written[-rows:, -columns:]
    assert np.count_nonzero(part) == part.size
    return np.array(part)


@pytest.mark.parametrize(
    ("name", "tile", "block", "flip"),
    [
        ("prefilter_rows", prefilter_cuda.ROW_TILE, prefilter_cuda.BLOCK, 0),
        ("prefilter_columns", prefilter_cuda.COLUMN_TILE, prefilter_cuda.BLOCK, 0),
        ("warp", warp_cuda.TILE, warp_cuda.BLOCK, 0),
        ("warp", warp_cuda.TILE, warp_cuda.BLOCK, 1),
    ],
)
def test_the_end_of_a_large_image_is_resampled_as_of_a_small_one(
    arch: Any, name: str, tile: tuple[int, int], block: Any, flip: int
) -> None:
    small, large = (resampled(arch(name), tile, block, shape, flip) for shape in (SMALL, LARGE))
    np.testing.assert_array_equal(large, small)


def test_a_flip_writes_to_the_end_of_a_large_image(arch: Any) -> None:
    """The first block does, with what is at the beginning: nothing."""
    launch, written = Launch(), sparse(LARGE, np.float32)
    zeros = launch.address(np.zeros(64))
    image = warp_cuda_table.WarpedImage(
        out=launch.address(written, ONE_WRITER),
        rows=LARGE[0],
        columns=LARGE[1],
        image=zeros,
        height=4,
        width=4,
        lines=0,
        coefficients=0,
        ranges=0,
        limits=zeros,
        frame=zeros,
        matrix=launch.address(np.array([1.0, 0, 100, 0, 1, 100])),
        reduce=launch.address(np.ones(1, np.int64)),
        gain=launch.address(np.ones(1)),
        stretch=launch.address(Stretch().parameters()),
        special=launch.address(np.array([-5.0, -6, -np.inf, -np.inf])),
        flip=launch.address(np.ones(2, np.int32)),
    )
    table = launch.address(launch_table([image]))
    grid = warp_cuda_table.blocks(warp_cuda.TILE, [LARGE])
    launch.run(arch("warp"), grid, warp_cuda.BLOCK, [table], [0])
    assert (written[-16:, -32:] == -5).all()
    assert not written[-17, -33:].any()


@pytest.mark.parametrize(("dtype", "item"), [("float32", 0), ("int16", 2)])
@pytest.mark.parametrize("compression", ["RICE_1", None])
def test_the_end_of_a_large_image_is_decoded(
    arch: Any, tmp_path: Path, compression: str | None, dtype: str, item: int
) -> None:
    """Its tiles lie far into the payload, too."""
    rows, columns = 1 << 20, 4100
    image = np.random.default_rng(1).normal(0, 300, (3, columns)).astype(np.int16)
    hdu: Any = fits.PrimaryHDU(image)
    if compression:
        hdu = fits.CompImageHDU(image, compression_type=compression, tile_shape=(1, columns))
    hdu.writeto(tmp_path / "small.fits")
    stored = None if dtype == "float32" else dtype
    sample = FitsReader(stored=stored).read(Row(0, str(tmp_path / "small.fits")), None)
    expected = np.empty((3, columns, 1), dtype)
    finish = np.array((0, 1) if item == 0 else (), np.float32)
    arrays = [sample[name] for name in ("payload", "plan", "scaling")]
    assert decode_image(expected, *arrays, np.zeros(2, np.int32), finish) == 0

    payload, plan, scaling = arrays
    tiles = plan[HEAD:].reshape(3, PER_TILE)[np.arange(rows) % 3]
    tiles[:, OFFSET] += FAR
    large = np.concatenate([plan[:HEAD], tiles.reshape(-1)])
    large[HEIGHT] = rows
    far = sparse((FAR + payload.size,), np.uint8)
    far[FAR:] = payload
    assert payload.size > PADDING

    launch, out = Launch(), sparse((rows, columns), dtype)
    status = allocated((1,), np.int32, 0)
    table, blocks = image_cuda_table.launch_table(
        [
            image_cuda_table.DecodedImage(
                out=launch.address(out, ONE_WRITER),
                status=launch.address(status, ONE_WRITER),
                payload=launch.address(far),
                payload_size=far.size,
                plan=launch.address(large),
                plan_size=large.size,
                scaling=launch.address(scaling),
                scaling_size=scaling.size,
                flip=launch.address(np.zeros(2, np.int32)),
                rows=rows,
                columns=columns,
            )
        ]
    )
    numbers = launch.address(RANDOM)
    arguments = [launch.address(table), 1, item, np.float32(0), np.float32(1), numbers]
    launch.run(arch("decode_images"), (blocks,), (32,), arguments, [blocks - 1])
    assert status[0] == 0
    np.testing.assert_array_equal(out[-32:], expected[np.arange(rows - 32, rows) % 3, :, 0])
