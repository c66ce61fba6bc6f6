"""The checks of the compiler and of the emulator can fail: each finds a fault made for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_offline.compiler import ARCHS, Usage, build
from gpu_offline.device import DeviceArray
from gpu_offline.emulator import (
    CC,
    ONE_WRITER,
    READ_ONLY,
    Buffer,
    Fault,
    Program,
    allocated,
    sparse,
    unwritten,
)
from gpu_offline.faulty import KERNELS
from gpu_offline.translate import translate

FAULTS = {
    "reads_out_of_bounds": "read out of bounds at .*thread 31",
    "writes_out_of_bounds": "write out of bounds at .*thread 31",
    "writes_an_input": "write to an input",
    "is_misaligned": "misaligned access at .*thread 1$",
    "reads_shared_out_of_bounds": "shared memory out of bounds at 0x80",
    "reads_in_front_of_shared": "shared memory out of bounds at 0x.*thread 0$",
    "reads_before_it_is_written": "race in shared memory",
    "writes_what_others_read": "race in shared memory",
    "half_ends_before_a_barrier": "threads ended before a barrier",
    "halves_wait_at_two_barriers": "threads wait at two barriers",
    "two_threads_write_one_number": "written by two threads at .*thread 1$",
    "reads_what_another_block_wrote": "read of what another block wrote .*block 1, thread 0$",
    "writes_what_another_block_read": "write of what another block read .*block 1, thread 0$",
}
FAR_FAULTS = {"overflows_an_offset": "read out of bounds at .*thread 8$"}
"""Where numbers lie 256 MiB apart: 2 GiB are the first that no int32 holds."""
NO_FAULTS = {"sound", "reads_what_nobody_wrote", "scattered", "far", "uses_a_stack", "spills"}
"""For the emulator; the last two are for the compiler."""

READS = """\
.visible .entry reads(
	.param .u64 at
)
{
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [at];
	ld.global.u32 %rd2, [%rd1];
	ret;
}
"""

DIVIDES = """\
.visible .entry divides(
	.param .u64 by
)
{
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [by];
	div.s64 %rd2, -9223372036854775808, %rd1;
	ret;
}
"""
"""numba itself looks before it divides."""


@pytest.fixture(scope="module")
def folder(kernels_folder: Path) -> Path:
    return kernels_folder / "faulty"


@pytest.fixture(scope="module")
def usages(folder: Path) -> dict[str, Usage]:
    return {usage.kernel: usage for usage in build("gpu_offline.faulty:KERNELS", folder, ["sm_90"])}


@pytest.fixture
def launched(folder: Path, usages: dict[str, Usage]) -> Any:
    """Launch a kernel on the numbers from 0 to 31; give what it wrote and counted."""
    if CC is None:
        pytest.skip("no C compiler, cc, to run kernels of a GPU on the CPU")

    def launch(name: str) -> tuple[list[float], dict[str, int]]:
        source = allocated((32,), np.float32, np.arange(32))
        target = allocated((32,), np.float32, 7)
        buffers = [
            Buffer(source.ctypes.data, source.nbytes, READ_ONLY),
            Buffer(target.ctypes.data, target.nbytes, ONE_WRITER),
        ]
        program = Program(folder / f"{name}.sm_90.ptx")
        addresses = [buffer.address for buffer in buffers]
        grid = (2,) if "another_block" in name else (1,)
        counts = program(grid, (32,), addresses, buffers, count_sectors=True)
        return target.tolist(), counts

    return launch


@pytest.fixture
def launched_far(folder: Path, usages: dict[str, Usage]) -> Any:
    """Launch a kernel on the numbers from 0 to 31, 256 MiB apart; give what it wrote."""
    if CC is None:
        pytest.skip("no C compiler, cc, to run kernels of a GPU on the CPU")

    def launch(name: str) -> list[float]:
        source, target = sparse((32, 1 << 26), np.float32), allocated((32,), np.float32, 7)
        source[:, 0] = range(32)
        buffers = [
            Buffer(source.ctypes.data, source.nbytes, READ_ONLY),
            Buffer(target.ctypes.data, target.nbytes, ONE_WRITER),
        ]
        addresses = [buffer.address for buffer in buffers]
        Program(folder / f"{name}.sm_90.ptx")((1,), (32,), addresses, buffers)
        numbers: list[float] = target.tolist()
        return numbers

    return launch


def test_each_kernel_is_for_a_check() -> None:
    assert {kernel.name for kernel in KERNELS} == {*FAULTS, *FAR_FAULTS, *NO_FAULTS}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(launched: Any, name: str) -> None:
    with pytest.raises(Fault, match=FAULTS[name]):
        launched(name)


@pytest.mark.parametrize("name", FAR_FAULTS)
def test_offsets_of_32_bits_are_found(launched_far: Any, name: str) -> None:
    assert launched_far("far") == [*range(32)]
    with pytest.raises(Fault, match=FAR_FAULTS[name]):
        launched_far(name)


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        ((1, 65536), (32,), "no GPU launches"),
        ((1, 1, 65536), (32,), "no GPU launches"),
        ((2**31,), (32,), "no GPU launches"),
        ((0,), (32,), "no GPU launches"),
        ((1,), (32, 33), "no GPU launches"),
        ((1,), (1, 1, 65), "no GPU launches"),
        ((2**27,), (32,), "too many threads"),
    ],
)
@pytest.mark.skipif(CC is None, reason="no C compiler, cc")
@pytest.mark.usefixtures("usages")
def test_launches_that_cannot_be(
    folder: Path, grid: tuple[int, ...], block: tuple[int, ...], message: str
) -> None:
    with pytest.raises(Fault, match=message):
        Program(folder / "sound.sm_90.ptx")(grid, block, [], [], blocks=[])


@pytest.mark.skipif(CC is None, reason="no C compiler, cc")
@pytest.mark.usefixtures("usages")
def test_some_blocks_of_a_launch(folder: Path) -> None:
    source, target = (allocated((32,), np.float32, 7) for _ in range(2))
    buffers = [Buffer(array.ctypes.data, array.nbytes, ONE_WRITER) for array in (source, target)]
    addresses = [buffer.address for buffer in buffers]
    program = Program(folder / "reads_what_another_block_wrote.sm_90.ptx")
    target[:16] = range(16)
    program((2,), (32,), addresses, buffers, blocks=[1])
    assert target.tolist() == [*range(16)] * 2


def test_without_a_fault(launched: Any) -> None:
    """Each thread reads and writes one number; a warp does so in 4 times 32 bytes."""
    written, counts = launched("sound")
    assert written == [*range(31, -1, -1)]
    assert (counts["loads"], counts["stores"], counts["shared"]) == (32, 32, 64)
    assert counts["sectors"] == 4 + 4
    assert counts["instructions"] % 32 == 0


def test_scattered_reads_are_counted(launched: Any) -> None:
    written, counts = launched("scattered")
    assert written == [0, 8, 16, 24] * 8
    assert counts["sectors"] == 4 + 4
    assert counts["loads"] == 32


@pytest.mark.skipif(CC is None, reason="no C compiler, cc")
def test_division(tmp_path: Path) -> None:
    """By zero is a fault, although a GPU would go on; and the lowest number has no opposite."""
    (tmp_path / "divides.ptx").write_text(DIVIDES)
    program = Program(tmp_path / "divides.ptx")
    assert program((1,), (1,), [-1], [])["instructions"] == 3
    with pytest.raises(Fault, match="division by zero at 0, PTX line 7, block 0, thread 0"):
        program((1,), (1,), [0], [])


@pytest.mark.skipif(CC is None, reason="no C compiler, cc")
def test_addresses_at_both_ends(tmp_path: Path) -> None:
    """Behind the last address is the first, so that the end of an access may lie in front of it."""
    (tmp_path / "reads.ptx").write_text(READS)
    program, numbers = Program(tmp_path / "reads.ptx"), allocated((4,), np.int32, 7)
    at, end = numbers.ctypes.data, numbers.ctypes.data + numbers.nbytes
    buffers = [Buffer(at, numbers.nbytes, READ_ONLY)]
    for inside in (at, end - 4):
        assert program((1,), (1,), [inside], buffers)["loads"] == 1
    for outside in (0, 4, at - 4, end, -64, -8, -4):
        with pytest.raises(Fault, match="read out of bounds"):
            program((1,), (1,), [outside], buffers)


def test_what_nobody_wrote_shows(launched: Any) -> None:
    written, _ = launched("reads_what_nobody_wrote")
    assert written[:31] == pytest.approx([1e-8 * i for i in range(31)])
    assert written[31] > 1e29
    assert unwritten(np.float32) == pytest.approx(written[31] * 1e8)
    assert unwritten(np.int16) == 0x7E7E


@pytest.mark.parametrize(
    "wait",
    [bool, float, int, range, DeviceArray.item, DeviceArray.tolist, np.nonzero],
)
def test_operators_may_not_wait_for_the_gpu(wait: Any) -> None:
    array = np.arange(6).view(DeviceArray)
    for one in (array[2], array.max(), array[:1] + 1, array.sum() == 3):
        assert isinstance(one, DeviceArray)
        with pytest.raises(AssertionError, match="this waits for the GPU"):
            wait(one)
    for row in array.reshape(2, 3):
        assert np.shares_memory(row, array)


def test_a_stack_is_seen(usages: dict[str, Usage]) -> None:
    assert usages["uses_a_stack"].stack >= 32 * 4
    assert usages["sound"].stack == 0


def test_spills_are_seen(usages: dict[str, Usage]) -> None:
    assert usages["spills"].spills > 0
    assert usages["spills"].registers <= 32
    assert usages["sound"].spills == 0


def test_an_unknown_instruction_is_an_error() -> None:
    ptx = ".visible .entry kernel(\n\t.param .u64 a\n)\n{\n\tvote.sync.any.pred %p1, %p2, -1;\n}\n"
    with pytest.raises(NotImplementedError, match=r"PTX line 5: vote\.sync"):
        translate(ptx)


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "warps"),
    [
        ("sm_90", 256, 32, 0, 64),
        ("sm_120", 256, 32, 0, 48),
        ("sm_90", 256, 33, 0, 48),  # 33 registers take 40; 6 blocks of 8 warps
        ("sm_90", 256, 98, 0, 16),
        ("sm_90", 32, 98, 0, 16),  # 4 warps of 3328 registers in each quarter of 16384
        ("sm_90", 32, 16, 0, 32),  # 32 blocks
        ("sm_90", 32, 32, 10880, 19),  # 228 KiB, and 1 KiB more for each block
        ("sm_75", 32, 32, 16384, 4),
    ],
)
def test_occupancy(arch: str, threads: int, registers: int, shared: int, warps: int) -> None:
    """Worked out by hand, by the rules of NVIDIA's occupancy calculator."""
    assert Usage("kernel", arch, threads, registers, 0, 0, shared).warps == warps


def test_no_more_warps_than_an_sm_holds() -> None:
    for arch, limits in ARCHS.items():
        assert Usage("kernel", arch, 256, 8, 0, 0, 0).warps == limits.warps
