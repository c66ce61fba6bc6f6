"""Clips for DALI's decoders: small files with the frames of PyAV; unusual ones are left out."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from video_files import KINDS, Kind, number_of, stored
from video_files import write_video as write

from readers import ReadError, Row, VideoReader, Window
from readers.contract import Reader, Sample
from readers.testing import InContainer, InMemory, ReaderContract
from readers.video.packets import FRAME, NOTE, unpacked
from readers.video.reader import video_packets

SIZE = 144, 160
REALTIME = Kind("webm", "libvpx-vp9", {"deadline": "realtime", "lag-in-frames": "0"})
HIDDEN = REALTIME._replace(options={"deadline": "realtime", "cpu-used": "8"})
TAKEN: list[tuple[Any, Any]] = [
    *[("gpu", KINDS[kind]) for kind in ("h264", "h264 mkv", "h264 flv", "fragments", "hevc")],
    *[(decoder, REALTIME) for decoder in ("cpu", "gpu")],
    *[(decoder, KINDS["vp8"]._replace(options={})) for decoder in ("cpu", "gpu")],
    *[("cpu", kind) for kind in (HIDDEN, KINDS["mjpeg"], KINDS["vp9 mp4"])],
]


def read(
    path: Path | str, decoder: Any, first: int, window: Window | None = None, **clip: Any
) -> Sample:
    """Read a clip by the packets that an Index would note."""
    row = Row(0, str(path))
    notes = {NOTE: video_packets(row).note(), FRAME: first}
    return VideoReader(**clip, graph=decoder).read(replace(row, notes=notes), window)


def file_of(sample: Sample) -> NDArray[np.uint8]:
    """Return the frames that the graph shows, as PyAV decodes the small file."""
    opened: Any = av.open(io.BytesIO(sample["encoded"].tobytes()))
    with opened as file:
        frames = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
    return np.stack([frames[one] for one in sample["picked"][sample["order"]]])


class TestContract(ReaderContract):
    """Clips that the graph decodes are read like others."""

    @pytest.fixture
    def reader(self) -> Reader:
        return VideoReader(12, graph="cpu")

    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        row = self.row(write(tmp_path / "good", "vp9 mp4", 12))
        return replace(row, notes={NOTE: video_packets(row).note()})

    @pytest.fixture
    def bad_row(self, tmp_path: Path) -> Row:
        return self.row(write(tmp_path / "bad", "vp9 mp4", 11))

    def pixels(self, sample: Sample) -> NDArray[Any]:
        return shown(sample) if sample["in_graph"] else sample["image"]


class TestInTar(InContainer, TestContract):
    """Their packets are read from a member."""


class TestOfBytes(InMemory, TestContract):
    """Their packets are read from memory."""


def check_nvdec(sample: Sample) -> None:
    """Check that a packet is a frame, and that the next one to show is always among eight.

    That is how DALI 2.4 finds frames on a GPU, by its source.
    """
    opened: Any = av.open(io.BytesIO(sample["encoded"].tobytes()))
    with opened as file:
        waiting = [packet.pts for packet in file.demux(video=0) if packet.size]
    found: list[int] = []
    kept: list[int] = []
    for _ in range(count := len(waiting)):
        while waiting and len(kept) < 8:
            kept.append(waiting.pop(0))
        found.append(min(kept))
        kept.remove(found[-1])
    assert found == sorted(found)
    opened = av.open(io.BytesIO(sample["encoded"].tobytes()))
    with opened as file:
        assert [frame.pts for frame in file.decode(video=0)] == found
        assert file.streams.video[0].frames == count


@pytest.mark.parametrize(("decoder", "kind"), TAKEN)
def test_the_files_hold_the_frames(tmp_path: Path, decoder: Any, kind: Kind) -> None:
    path = write(tmp_path / "video", kind, size=SIZE)
    frames = stored(path)
    for first in range(0, 46, 3):
        sample = read(path, decoder, first, frames=5, stride=3)
        assert sample["in_graph"]
        assert sample["image"].size == 0
        np.testing.assert_array_equal(file_of(sample), frames[first : first + 13 : 3])
        assert sample["cut"].tolist() == [0, 0, *SIZE]
        if decoder == "gpu":
            check_nvdec(sample)


@pytest.mark.parametrize("kind", ["h264", "hevc"])
def test_the_files_are_a_fifth_of_the_pixels_at_most(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "video", kind, size=SIZE)
    sample = read(path, "gpu", 17, frames=8, stride=2)
    nbytes = sum(array.nbytes for array in sample.arrays.values())
    assert nbytes <= read(path, None, 17, frames=8, stride=2)["image"].nbytes / 5


def _colours(matrix: int, extent: int) -> Callable[[Any], None]:
    def setup(stream: Any) -> None:
        stream.codec_context.colorspace = matrix
        stream.codec_context.color_range = extent

    return setup


def _x264(parameters: str, **more: Any) -> Kind:
    whole = f"{KINDS['h264'].options['x264-params']}:{parameters}"
    return KINDS["h264"]._replace(options={"x264-params": whole}, **more)


@pytest.mark.parametrize(
    ("decoder", "kind", "more"),
    [
        ("cpu", KINDS["h264"], {}),
        ("cpu", KINDS["vp9 mp4"], {"size": (47, 64)}),
        ("cpu", KINDS["ffv1"], {}),
        # Its pixels are not called those of JPEG, as H.264's of the full range are.
        *[("cpu", KINDS["vp9 mp4"], {"setup": _colours(matrix, 2)}) for matrix in (1, 5, 6)],
        ("cpu", KINDS["vp9 mp4"], {"setup": _colours(9, 1)}),
        ("gpu", REALTIME, {"setup": _colours(5, 2)}),
        ("gpu", KINDS["av1"], {}),
        ("gpu", KINDS["mpeg4"], {}),
        ("gpu", KINDS["mjpeg"], {}),
        ("gpu", KINDS["10 bits"], {}),
        ("gpu", KINDS["4:4:4"], {}),
        ("gpu", KINDS["h264 avi"], {}),
        ("gpu", KINDS["h264"], {"size": (144, 142)}),
        ("gpu", KINDS["h264"], {"setup": _colours(9, 1)}),
        ("gpu", KINDS["h264"], {"setup": _colours(5, 2)}),
        ("gpu", _x264("interlaced=1"), {}),
        ("gpu", HIDDEN, {}),
        ("gpu", KINDS["intra refresh"], {}),
    ],
)
def test_unusual_videos_are_decoded_by_the_reader(
    tmp_path: Path, decoder: Any, kind: Kind, more: dict[str, Any]
) -> None:
    path = write(tmp_path / "video", kind, 50, **{"size": SIZE, **more})
    sample = read(path, decoder, 20, frames=4, stride=2)
    assert not sample["in_graph"]
    expected = read(path, None, 20, frames=4, stride=2)
    np.testing.assert_array_equal(sample["image"], expected["image"])
    assert sample["encoded"].size == 1


def test_open_groups_need_the_reader_only_where_they_begin_without_an_idr(tmp_path: Path) -> None:
    path = write(tmp_path / "video", KINDS["open GOP"], size=SIZE)
    frames = stored(path)
    found = set()
    for first in range(55):
        sample = read(path, "gpu", first, frames=2, stride=4)
        expected = frames[[first, first + 4]]
        if sample["in_graph"]:
            image = file_of(sample)
        else:
            image = sample["image"].reshape(*SIZE, 2, 3).transpose(2, 0, 1, 3)
        np.testing.assert_array_equal(image, expected)
        found.add(bool(sample["in_graph"]))
    assert found == {True, False}


def shown(sample: Sample) -> NDArray[Any]:
    """Return what the graph makes of a small file: the window of the displayed frames."""
    y, x, height, width = sample["cut"].tolist()
    part = file_of(sample)[:, y : y + height, x : x + width]
    is_transposed, flip_y, flip_x = sample["turn"].tolist()
    part = part.transpose(0, 2, 1, 3) if is_transposed else part
    part = part[:, :: -1 if flip_y else 1, :: -1 if flip_x else 1].transpose(1, 2, 0, 3)
    return part.reshape(*part.shape[:2], -1)


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_windows_are_those_of_the_displayed_frame(tmp_path: Path, rotation: int) -> None:
    path = write(tmp_path / "video", "vp9 mp4", 20, size=SIZE, rotation=rotation)
    window = Window(height=30, width=50, y=0.3, x=0.6)
    expected = read(path, None, 3, window, frames=2)["image"]
    sample = read(path, "cpu", 3, window, frames=2)
    np.testing.assert_array_equal(shown(sample), expected)


def test_short_videos_repeat_their_last_frame(tmp_path: Path) -> None:
    path = write(tmp_path / "video", "mjpeg", 10)
    sample = read(path, "cpu", 6, frames=5, stride=2, short="pad")
    assert sample["length"] == 2
    assert [number_of(frame) for frame in file_of(sample)] == [6, 8, 8, 8, 8]
    assert len(sample["picked"]) == 2


def test_packets_of_another_size_are_left_to_the_reader(tmp_path: Path) -> None:
    """They are other key frames than at the beginning, and the reader names the frame."""
    for kind in ("vp8", "vp9 mp4", "mjpeg"):
        small = write(tmp_path / "small", KINDS[kind]._replace(suffix="mkv"), 5, size=(48, 64))
        large = write(tmp_path / "large", KINDS[kind]._replace(suffix="mkv"), 5, size=(48, 80))
        small_row, large_row = Row(0, str(small)), Row(0, str(large))
        note = video_packets(small_row)
        other = unpacked(video_packets(large_row).note())
        mixed = replace(other, stream=note.stream._replace(file_bytes=other.stream.file_bytes))
        row = replace(large_row, notes={NOTE: mixed.note(), FRAME: 0})
        with pytest.raises(ReadError, match="48x80"):
            VideoReader(frames=2, graph="cpu").read(row, None)


def test_older_notes_are_decoded_by_the_reader(tmp_path: Path) -> None:
    row = Row(0, str(write(tmp_path / "video", "vp9 mp4", 20)))
    packets = video_packets(row)
    older = replace(packets, stream=packets.stream._replace(frame_colours=()))
    sample = VideoReader(frames=2, graph="cpu").read(
        replace(row, notes={NOTE: older.note(), FRAME: 0}), None
    )
    assert not sample["in_graph"]


def test_frames_that_come_much_later_than_their_packets(tmp_path: Path) -> None:
    """DALI on a GPU looks for the next frame among the last eight."""
    row = Row(0, str(write(tmp_path / "video", REALTIME, 20, size=SIZE)))
    packets = video_packets(row)
    for count, is_taken in ((8, True), (9, False)):
        order = np.arange(20)
        order[1 : 1 + count] = order[1 : 1 + count][::-1]
        late = replace(packets, ticks=packets.ticks[order], numbers=packets.numbers[order])
        notes = {NOTE: late.note(), FRAME: 1}
        sample = VideoReader(frames=2, graph="gpu").read(replace(row, notes=notes), None)
        assert sample["in_graph"] == is_taken
