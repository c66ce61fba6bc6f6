"""Clips equal the frames of PyAV, which decodes a video from its beginning."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from operator import add
from pathlib import Path
from random import Random
from typing import Any

import av
import numpy as np
import pytest
from elsewhere import OverHttp, OverS3
from numpy.typing import NDArray
from video_files import FRAMES, HEIGHT, KINDS, WIDTH, number_of, picture, stored, times_of
from video_files import write_video as write

from readers import Draws, ReadError, Row, VideoReader, Window
from readers.contract import Reader, Sample
from readers.testing import NUMBER, InContainer, InMemory, ReaderContract, refused
from readers.video.packets import DURATION, FRAME, NOTE, START, Clip, unpacked
from readers.video.reader import video_packets


def noted(row: Row, **more: Any) -> Row:
    """Return a row with the packets that an Index would note."""
    return replace(row, notes={NOTE: video_packets(row).note(), **more})


def frames_of(sample: Sample) -> NDArray[Any]:
    """Return the frames, shape (frames, height, width, 3)."""
    image = sample["image"]
    height, width, channels = image.shape
    return image.reshape(height, width, channels // 3, 3).transpose(2, 0, 1, 3)


class TestVideo(ReaderContract):
    """Rows without notes: the Reader demuxes the file."""

    kind = "h264"

    @pytest.fixture
    def reader(self) -> Reader:
        return VideoReader(12)

    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        return self.row(write(tmp_path / "good", self.kind, 12))

    @pytest.fixture
    def bad_row(self, tmp_path: Path) -> Row:
        return self.row(write(tmp_path / "bad", self.kind, 11))

    def pixels(self, sample: Sample) -> NDArray[Any]:
        return sample["image"]


class TestNoted(TestVideo):
    """Rows with notes."""

    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        return noted(self.row(write(tmp_path / "good", self.kind, 12)))


class TestHevc(TestVideo):
    kind = "hevc"


class TestMatroska(TestVideo):
    kind = "h264 mkv"


class TestMpeg4(TestNoted):
    kind = "mpeg4"


class TestMotionJpeg(TestVideo):
    kind = "mjpeg"


class TestVp9(TestVideo):
    kind = "vp9"


class TestInside(InContainer, TestNoted): ...


class TestInMemory(InMemory, TestVideo): ...


class TestOverS3(OverS3, TestNoted): ...


class TestOverHttp(OverHttp, TestVideo): ...


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("videos")


@pytest.mark.parametrize("kind", KINDS)
def test_random_clips_are_exact(folder: Path, kind: str) -> None:
    path = write(folder / kind, kind)
    expected, times = stored(path), times_of(path)
    row = noted(Row(0, str(path)))
    assert len(expected) == unpacked(row.notes[NOTE]).stream.frames == FRAMES
    random = Random(0)
    for _ in range(60):
        frames, stride = random.randint(1, 6), random.choice([1, 2, 3, 7])
        first = random.randrange(FRAMES - (frames - 1) * stride)
        clip = replace(row, notes={**row.notes, FRAME: first})
        sample = VideoReader(frames, stride).read(clip, None)
        numbers = [*range(first, first + frames * stride, stride)]
        found = frames_of(sample)
        assert [number_of(frame) for frame in found] == numbers
        np.testing.assert_array_equal(found, expected[numbers])
        assert sample["frame"] == first
        np.testing.assert_allclose(sample["time"], np.take(times, numbers), atol=1e-9)


VARIED: dict[str, Callable[[int], int]] = {
    "variable rate": lambda number: number + number * number // 7,
    "late start": lambda number: number + 100,
    "pauses": lambda number: number + 50 * (number // 20),
}


@pytest.mark.parametrize("kind", ["h264", "h264 mkv", "vp9"])
@pytest.mark.parametrize("how", VARIED)
def test_frames_are_counted_whatever_their_times(tmp_path: Path, kind: str, how: str) -> None:
    path = write(tmp_path / "a", kind, 40, times=VARIED[how])
    row = noted(Row(0, str(path)), **{FRAME: 5})
    sample = VideoReader(8, 4).read(row, None)
    assert [number_of(frame) for frame in frames_of(sample)] == [*range(5, 37, 4)]
    np.testing.assert_allclose(sample["time"], np.take(times_of(path), range(5, 37, 4)), atol=1e-9)


@pytest.mark.parametrize("cut", [1, 7, 15, 20])
def test_edit_lists_leave_frames_out(tmp_path: Path, cut: int) -> None:
    """Frames before time 0 are in the file, and players and PyAV do not show them."""
    path = write(
        tmp_path / "a",
        "h264",
        40,
        times=lambda number: number - cut,
        container={"avoid_negative_ts": "disabled", "use_editlist": "1"},
    )
    expected = stored(path)
    assert [number_of(frame) for frame in expected] == [*range(cut, 40)]
    row = noted(Row(0, str(path)), **{FRAME: 0})
    total = 40 - cut
    assert unpacked(row.notes[NOTE]).stream.frames == total
    sample = VideoReader(total).read(row, None)
    np.testing.assert_array_equal(frames_of(sample), expected)
    for first in (0, 3, 9):
        one = replace(row, notes={**row.notes, FRAME: first})
        assert number_of(frames_of(VideoReader(1).read(one, None))[0]) == cut + first


def test_joined_videos_of_other_parameters(tmp_path: Path) -> None:
    """Those of the second one are only in its first packet, as after ffmpeg's -f concat."""
    other = f"{KINDS['h264'].options['x264-params']}:cabac=0:ref=1:bframes=0"
    paths = [
        write(tmp_path / "a", "h264", 40),
        write(tmp_path / "b", KINDS["h264"]._replace(options={"x264-params": other}), 40, seed=1),
    ]
    path = tmp_path / "c.mp4"
    with av.open(str(path), "w") as out:
        stream: Any = None
        for number, part in enumerate(paths):
            with av.open(str(part)) as file:
                own: Any = file.streams.video[0]
                stream = stream or out.add_stream_from_template(own)
                for at, packet in enumerate(file.demux(own)):
                    if packet.dts is None or packet.pts is None:
                        continue
                    content = bytes(packet)
                    if number and not at:
                        content = sets_in(own.codec_context.extradata) + content
                    new = av.Packet(content)
                    new.pts, new.dts = (t + 40 * 512 * number for t in (packet.pts, packet.dts))
                    new.time_base, new.is_keyframe = packet.time_base, packet.is_keyframe
                    new.stream = stream
                    out.mux(new)
    expected = stored(path)
    assert [number_of(frame) for frame in expected] == [*range(40), *range(40)]
    row = noted(Row(0, str(path)))
    for first in range(0, 77, 3):
        found = frames_of(VideoReader(4).read(replace_frame(row, first), None))
        np.testing.assert_array_equal(found, expected[first : first + 4])


def sets_in(avcc: bytes) -> bytes:
    """Return the parameter sets of an MP4 with their lengths as in a packet."""
    found, at = b"", 5
    for mask in (0x1F, 0xFF):
        count, at = avcc[at] & mask, at + 1
        for _ in range(count):
            nbytes = int.from_bytes(avcc[at : at + 2])
            found += nbytes.to_bytes(4) + avcc[at + 2 : at + 2 + nbytes]
            at += 2 + nbytes
    return found


@pytest.mark.parametrize("suffix", ["mkv", "mp4"])
def test_hevc_that_was_cut_out_of_a_video(tmp_path: Path, suffix: str) -> None:
    """Frames that are shown before its first key frame refer to frames that are gone."""
    params = "keyint=15:min-keyint=15:open-gop=1:bframes=4:b-adapt=0:log-level=0"
    whole = write(tmp_path / "a", KINDS["hevc"]._replace(options={"x265-params": params}))
    path = tmp_path / f"b.{suffix}"
    with (
        av.open(str(whole)) as file,
        av.open(str(path), "w", options={"avoid_negative_ts": "disabled"}) as out,
    ):
        stream = out.add_stream_from_template(file.streams.video[0])
        begins = None
        for packet in file.demux(video=0):
            if packet.pts is None or packet.dts is None:
                continue
            if begins is None and packet.is_keyframe and packet.pts:
                begins = packet.pts
            if begins is not None:
                packet.pts, packet.dts = packet.pts - begins, packet.dts - begins
                packet.stream = stream
                out.mux(packet)
    expected = stored(path)
    row = noted(Row(0, str(path)))
    assert unpacked(row.notes[NOTE]).stream.frames == len(expected)
    assert number_of(expected[0]) > 0
    for first in range(0, len(expected) - 2, 3):
        found = frames_of(VideoReader(2).read(replace_frame(row, first), None))
        np.testing.assert_array_equal(found, expected[first : first + 2])


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_frames_are_turned_as_displayed(tmp_path: Path, degrees: int) -> None:
    path = write(tmp_path / "a", "h264", 12, rotation=degrees)
    row = noted(Row(0, str(path)), **{FRAME: 2})
    sample = VideoReader(3).read(row, None)
    turned = np.rot90(stored(path)[2:5], degrees // 90, axes=(1, 2))
    np.testing.assert_array_equal(frames_of(sample), turned)
    assert sample.image_size == turned.shape[1:3]
    window = Window(height=20, width=30, y=0.3, x=0.8)
    y, x = window.place(*turned.shape[1:3])
    part = frames_of(VideoReader(3).read(row, window))
    np.testing.assert_array_equal(part, turned[:, y : y + 20, x : x + 30])


@pytest.mark.parametrize(
    ("flips", "axes"), [({"hflip": True}, (2,)), ({"vflip": True}, (1,))], ids=["h", "v"]
)
def test_mirrored_frames(tmp_path: Path, flips: dict[str, bool], axes: tuple[int, ...]) -> None:
    path = write(
        tmp_path / "a", "h264", 5, setup=lambda stream: stream.set_display_rotation(0, **flips)
    )
    found = frames_of(VideoReader(5).read(Row(0, str(path)), None))
    np.testing.assert_array_equal(found, np.flip(stored(path), axes))


def test_no_more_is_read_than_from_the_key_frame_on(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "h264")  # key frames are 15 apart
    row = noted(Row(0, str(path)))
    whole = VideoReader(FRAMES).read(row, None).input_bytes
    with av.open(str(path)) as file:
        sizes = [packet.size for packet in file.demux(video=0)]
    assert whole == sum(sizes)
    for first in range(0, FRAMES - 1, 3):
        one = replace(row, notes={**row.notes, FRAME: first})
        of_clip = VideoReader(2).read(one, None).input_bytes
        # Up to three B-frames come after the one that they are shown before.
        start = first // 15 * 15
        assert of_clip <= sum(sizes[start : first + 6])


def test_a_clip_has_the_packets_that_it_needs(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "open GOP")
    packets = video_packets(Row(0, str(path)))
    expected, times = stored(path), times_of(path)
    for first in range(0, FRAMES - 9, 4):
        note = packets.of_clip(first, Clip(5, 2)).note()
        row = Row(0, str(path), notes={NOTE: note, FRAME: first})
        sample = VideoReader(5, 2).read(row, None)
        np.testing.assert_array_equal(frames_of(sample), expected[first : first + 10 : 2])
        np.testing.assert_allclose(sample["time"], times[first : first + 10 : 2], atol=1e-9)


# ---- Which clip ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def row(folder: Path) -> Row:
    return noted(Row(NUMBER, str(write(folder / "one", "mjpeg", 30))))


def test_clips_are_drawn_purely(row: Row) -> None:
    firsts = []
    for epoch in range(200):
        drawn = replace(row, draws=Draws.of(1, epoch, 5))
        one, again = (VideoReader(4, 3).read(drawn, Window(height=8, width=8)) for _ in range(2))
        assert one["frame"] == again["frame"]
        firsts.append(int(one["frame"]))
    assert {*firsts} == {*range(30 - 9)}


def test_without_draws_the_clip_is_in_the_middle(row: Row) -> None:
    assert VideoReader(4, 3).read(row, None)["frame"] == (30 - 10) // 2


def test_short_videos_repeat_their_last_frame(row: Row) -> None:
    sample = VideoReader(8, 5, short="pad").read(row, None)
    numbers = [number_of(frame) for frame in frames_of(sample)]
    assert numbers == [0, 5, 10, 15, 20, 25, 25, 25]
    assert sample["length"] == 6
    refused(VideoReader(8, 5), row, None, "30 frames.*needs 36.*short='pad'")


@pytest.mark.parametrize(
    ("start", "duration", "first", "last"),
    [
        (0.5, 0.3, 15, 23),
        (0.49, 0.3, 15, 23),  # the frame before is shown at 0.4667 s
        (0.51, 0.5, 16, 29),
        (0.5, math.nan, 15, 29),
        (0.0, 0.2, 0, 5),
        (math.nan, 0.2, 0, 29),  # the duration of the video, as scan_videos notes it
        (0.5, 0.54, 15, 29),  # 0.04 s more than the video has
    ],
)
def test_clips_lie_in_their_part(
    row: Row, start: float, duration: float, first: int, last: int
) -> None:
    row = replace(row, notes={**row.notes, START: start, DURATION: duration})
    firsts = set()
    for epoch in range(150):
        drawn = replace(row, draws=Draws.of(1, epoch, 5))
        firsts.add(int(VideoReader(3).read(drawn, Window(height=8, width=8))["frame"]))
    assert firsts == {*range(first, last - 1)}
    frames = frames_of(VideoReader(40, short="pad").read(row, None))
    assert [number_of(frame) for frame in frames] == [
        min(number, last) for number in range(first, first + 40)
    ]
    at_first = replace(row, notes={**row.notes, FRAME: 2.0})  # the frame of each_clip wins
    assert VideoReader(3).read(at_first, None)["frame"] == 2


@pytest.mark.parametrize(
    ("start", "duration", "words"),
    [
        (2.0, 0.5, "start 2 s and duration 0.5 s"),
        (0.5, 0.6, "start 0.5 s and duration 0.6 s.*1 s long"),
        (-0.1, 0.5, "start -0.1 s"),
        (0.51, 0.01, "start 0.51 s"),  # no frame begins there
        (0.5, 0.1, "part of the video from frame 15 on has 3 frames.*needs 4"),
    ],
)
def test_wrong_parts(row: Row, start: float, duration: float, words: str) -> None:
    notes = {**row.notes, START: start, DURATION: duration}
    refused(VideoReader(4), replace(row, notes=notes), None, words)


@pytest.mark.parametrize(
    ("frame", "words"),
    [(28.0, "2 of them from frame 28.*needs 4"), (30.0, "says 30.*30 frames"), (-1.0, "says -1")],
)
def test_wrong_first_frames(row: Row, frame: float, words: str) -> None:
    refused(VideoReader(4), replace(row, notes={**row.notes, FRAME: frame}), None, words)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"frames": 0}, "frames"),
        ({"frames": 4, "stride": 0}, "stride"),
        ({"frames": 4, "short": "loop"}, "short"),
        ({"frames": True}, "frames"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        VideoReader(**settings)


# ---- Colours -------------------------------------------------------------------------------------


def flat(number: int, seed: int, size: tuple[int, int]) -> NDArray[Any]:
    """Return a frame of four colours."""
    colours = np.array([[[200, 30, 40], [30, 180, 60]], [[40, 60, 210], [128, 128, 128]]], np.uint8)
    return np.kron(colours, np.ones((size[0] // 2, size[1] // 2, 1), np.uint8))


MATRICES = {"ITU601": (5, 0.299, 0.114), "ITU709": (1, 0.2126, 0.0722)}


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", MATRICES)
def test_colours_follow_the_matrix_and_range_of_the_file(
    tmp_path: Path, name: str, full: bool
) -> None:
    number, red, blue = MATRICES[name]

    def setup(stream: Any) -> None:
        stream.codec_context.colorspace = number
        stream.codec_context.color_range = 2 if full else 1

    path = write(tmp_path / "a", "4:4:4", 3, draw=flat, setup=setup)
    with av.open(str(path)) as file:
        (y, cb, cr) = next(file.decode(video=0)).to_ndarray(format="yuv444p").astype(float)
    y = y if full else (y - 16) * 255 / 219
    cb, cr = ((c - 128) * (1 if full else 255 / 224) for c in (cb, cr))
    r = y + 2 * (1 - red) * cr
    b = y + 2 * (1 - blue) * cb
    g = (y - red * r - blue * b) / (1 - red - blue)
    found = frames_of(VideoReader(1).read(Row(0, str(path), notes={FRAME: 0}), None))[0]
    difference = np.abs(found - np.stack((r, g, b), -1).clip(0, 255))
    assert difference.max() <= 2


@pytest.mark.parametrize("kind", ["mpeg4", "h264"])
def test_colours_of_the_container(tmp_path: Path, kind: str) -> None:
    """Matroska notes them beside the stream, which does not have them itself."""

    def setup(stream: Any) -> None:
        stream.codec_context.colorspace, stream.codec_context.color_range = 1, 2
        stream.codec_context.color_primaries = stream.codec_context.color_trc = 1

    plain = write(tmp_path / "a", KINDS[kind]._replace(suffix="mkv"), 12)
    noted = write(tmp_path / "b", KINDS[kind]._replace(suffix="mkv"), 12, setup=setup)
    found = [
        frames_of(VideoReader(3).read(Row(0, str(path), notes={FRAME: 5}), None))
        for path in (plain, noted)
    ]
    np.testing.assert_array_equal(found[1], stored(noted)[5:8])
    assert not np.array_equal(found[0], found[1])


# ---- Bad files -----------------------------------------------------------------------------------


def test_another_file_than_was_indexed(tmp_path: Path) -> None:
    row = noted(Row(NUMBER, str(write(tmp_path / "a", "h264", 20))))
    write(tmp_path / "a", "h264", 25)
    refused(VideoReader(4), row, None, "index it again")


@pytest.mark.parametrize("kind", ["h264", "h264 mkv", "vp9", "mjpeg", "h264 flv", "fragments"])
@pytest.mark.parametrize("kept", [0.3, 0.9])
def test_cut_files(tmp_path: Path, kind: str, kept: float) -> None:
    container = {"movflags": "faststart"} if kind == "h264" else {}
    path = write(tmp_path / "a", kind, container=container)
    path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])
    refused(VideoReader(FRAMES), Row(NUMBER, str(path)), None)


@pytest.mark.parametrize("kind", ["h264 mkv", "vp9"])
def test_matroska_that_ends_early(tmp_path: Path, kind: str) -> None:
    """FFmpeg takes the frames before the cut for the whole video."""
    path = write(tmp_path / "a", kind, 30)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])
    assert 0 < len(stored(path)) < 30
    refused(VideoReader(2), Row(NUMBER, str(path)), None, f"of {len(content)} bytes.*cut off")
    live = write(tmp_path / "b", kind, 30, container={"live": "1"})  # its length is not noted
    assert video_packets(Row(NUMBER, str(live))).stream.frames == 30


def test_sound_alone_is_no_video(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    with av.open(str(path), "w") as file:
        stream = file.add_stream("aac", rate=16000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
        frame.rate = 16000
        file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    refused(VideoReader(1), Row(NUMBER, str(path)), None, "no video stream, it has audio")


def test_a_video_without_frames(tmp_path: Path) -> None:
    path = tmp_path / "a.mkv"
    with av.open(str(path), "w") as file:
        stream: Any = file.add_stream("ffv1", rate=30)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "bgr0"
        file.start_encoding()
    refused(VideoReader(1), Row(NUMBER, str(path)), None, "no frames|cannot open")


@pytest.mark.parametrize("kind", ["vp9", "mjpeg"])
def test_a_size_that_changes(tmp_path: Path, kind: str) -> None:
    parts = [write(tmp_path / "a", kind, 10), write(tmp_path / "b", kind, 10, size=(32, 64))]
    path = tmp_path / f"c{parts[0].suffix}"
    with av.open(str(path), "w") as out:
        stream: Any = None
        for number, part in enumerate(parts):
            with av.open(str(part)) as file:
                stream = stream or out.add_stream_from_template(file.streams.video[0])
                for packet in file.demux(video=0):
                    if packet.pts is None or packet.dts is None:
                        continue
                    ticks = round(number * 10 / 30 / packet.time_base)
                    packet.pts, packet.dts = packet.pts + ticks, packet.dts + ticks
                    packet.stream = stream
                    out.mux(packet)
    row = noted(Row(NUMBER, str(path)))
    assert number_of(frames_of(VideoReader(2).read(replace_frame(row, 7), None))[0]) == 7
    with pytest.raises(ReadError, match=r"frame 10 has 32x64.*expected 48x64"):
        VideoReader(4).read(replace_frame(row, 8), None)


def replace_frame(row: Row, frame: int) -> Row:
    return replace(row, notes={**row.notes, FRAME: frame})


def test_encrypted_videos(tmp_path: Path) -> None:
    keys = {"encryption_key": "0" * 32, "encryption_kid": "1" * 32}
    container = {"encryption_scheme": "cenc-aes-ctr", **keys}
    path = write(tmp_path / "a", "h264", 20, container=container)
    refused(VideoReader(4), Row(NUMBER, str(path)), None, "encrypted")


def copied(path: Path, to: Path) -> Path:
    """Copy the packets of a video to another container."""
    with av.open(str(path)) as file, av.open(str(to), "w") as out:
        stream = out.add_stream_from_template(file.streams.video[0])
        for packet in file.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                out.mux(packet)
    return to


@pytest.mark.parametrize(
    ("suffix", "kind", "remedy"),
    [
        ("ts", "h264", "mkv"),
        ("m2ts", "hevc", "mkv"),
        ("mpg", "mpeg2", "mkv"),
        ("ogv", "vp8", "mkv"),
        ("mkv", "prores", "mov"),
    ],
)
def test_packets_in_pieces(tmp_path: Path, suffix: str, kind: str, remedy: str) -> None:
    path = write(tmp_path / "a", KINDS[kind]._replace(suffix=suffix), 30)
    refused(VideoReader(4), Row(NUMBER, str(path)), None, f"-c copy FILE.{remedy}")
    if suffix == "mpg":  # it lacks some times, which ffmpeg's -fflags +genpts makes
        return
    again = copied(path, tmp_path / f"b.{remedy}")
    sample = VideoReader(30).read(Row(NUMBER, str(again)), None)
    assert [number_of(frame) for frame in frames_of(sample)] == [*range(30)]


def test_mxf_does_not_order_frames(tmp_path: Path) -> None:
    path = write(tmp_path / "a", KINDS["h264"]._replace(suffix="mxf"), 20)
    refused(VideoReader(4), Row(NUMBER, str(path)), None, "order.*FILE.h264")


def test_parameters_that_change_inside(tmp_path: Path) -> None:
    """The second of two FLV files, behind the first one, has its own sequence header."""
    one, later, other = (
        write(tmp_path / name, "h264 flv", 20, size=size, times=partial(add, at))
        for name, at, size in (("a", 0, (48, 64)), ("b", 30, (48, 64)), ("c", 30, (64, 96)))
    )
    header, path = 13, tmp_path / "d.flv"
    path.write_bytes(one.read_bytes() + other.read_bytes()[header:])
    refused(VideoReader(4), Row(NUMBER, str(path)), None, "changes the parameters")
    path.write_bytes(one.read_bytes() + later.read_bytes()[header:])  # the same parameters
    assert video_packets(Row(NUMBER, str(path))).stream.frames == 40


@pytest.mark.parametrize("kind", ["h264", "vp8", "hevc flv", "h264 nut", "mpeg2 mxf", "raw"])
def test_every_packet_is_where_it_is_noted(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "a", kind, 40)
    content = path.read_bytes()
    packets = video_packets(Row(0, str(path)))
    with av.open(str(path)) as file:
        expected = [bytes(packet) for packet in file.demux(video=0) if packet.size]
    assert len(expected) == len(packets.starts)
    for start, nbytes, each in zip(packets.starts, packets.nbytes, expected, strict=True):
        assert content[start : start + nbytes] == each


def every_third(first: int, number: int) -> int:
    return first + 3 * number


def test_times_that_begin_again(tmp_path: Path) -> None:
    one, other = (
        write(tmp_path / name, "h264 flv", 40, times=partial(every_third, at)).read_bytes()
        for name, at in (("a", 0), ("b", 1))
    )
    path = tmp_path / "c.flv"
    path.write_bytes(one + other[13:])
    refused(VideoReader(4), Row(NUMBER, str(path)), None, "times go back")


def test_frames_at_the_same_time(tmp_path: Path) -> None:
    """Matroska rounds to milliseconds, and these frames are decoded in another order."""
    path = write(tmp_path / "a", "h264 mkv", 30, times=lambda number: number)
    with av.open(str(path)) as file, av.open(str(tmp_path / "b.mkv"), "w") as out:
        stream = out.add_stream_from_template(file.streams.video[0])
        for packet in file.demux(video=0):
            if packet.dts is not None and packet.pts is not None:
                packet.pts, packet.dts = packet.pts // 66, packet.dts // 66  # 2000 a second
                packet.stream = stream
                out.mux(packet)
    refused(VideoReader(4), Row(NUMBER, str(tmp_path / "b.mkv")), None, "at the same time")


def test_avi_does_not_order_frames(tmp_path: Path) -> None:
    path = write(tmp_path / "a", KINDS["h264"]._replace(suffix="avi"), 20)
    refused(VideoReader(4), Row(NUMBER, str(path)), None, "AVI")


@pytest.mark.parametrize("kind", ["h264", "hevc", "vp9", "mpeg4", "mjpeg", "h264 mkv"])
def test_damaged_videos_are_read_or_refused(tmp_path: Path, kind: str) -> None:
    """Nothing else happens, and nothing hangs."""
    path = write(tmp_path / "a", kind, 30)
    content, row = path.read_bytes(), noted(Row(NUMBER, str(path)))
    count = 0
    for seed in range(60):
        random = Random(seed)
        found = bytearray(content)
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(found))
            found[at : at + random.randint(1, 20)] = random.randbytes(random.randint(1, 20))
        path.write_bytes(found)
        for one in (row, replace(row, notes={})):
            try:
                assert VideoReader(20).read(one, None)["image"].shape == (HEIGHT, WIDTH, 60)
            except ReadError:
                count += 1
    assert count > 0


def test_a_damaged_note(row: Row) -> None:
    note = row.notes[NOTE]
    for content in (note[:7], note[:-3], b"\x07" + note[1:], b"abc"):
        refused(VideoReader(2), replace(row, notes={NOTE: content}), None, "make it again")


def test_the_picture_of_a_frame_has_its_number() -> None:
    assert [number_of(picture(number)) for number in range(FRAMES)] == [*range(FRAMES)]
