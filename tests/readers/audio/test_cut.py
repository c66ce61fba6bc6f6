"""Segments of FLAC and OGG Vorbis are cut out of the bytes around them, and equal soundfile's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import av
import numpy as np
import pytest
import soundfile
from audio_files import sound, stored, write
from numpy.typing import NDArray

from readers import AudioReader, ReadError, Row, Window
from readers.audio.reader import sound_facts
from readers.places.memory import MemoryPlace, MemoryPlaces
from readers.places.opener import Places
from readers.places.remote import TRAFFIC
from readers.places.storage import Storage

if TYPE_CHECKING:
    from servers.weed import Weed

RATE = 16000
CODINGS = [*(("flac", kind) for kind in ("PCM_S8", "PCM_16", "PCM_24")), ("ogg", "VORBIS")]


@dataclass(frozen=True, slots=True)
class Counted(MemoryPlaces):
    """Files in memory, of which bytes are counted that are read."""

    read: list[int] = field(default_factory=list)

    def at(self, path: str, *span: Any, **version: Any) -> Any:
        counted = self.read

        class Place(MemoryPlace):
            def read(self, start: int, stop: int) -> bytes:
                found = super().read(start, stop)
                counted.append(len(found))
                return found

            def read_many(self, pieces: Any) -> None:
                counted.extend(len(buffer) for _, buffer in pieces)
                super().read_many(pieces)

        return Place(self.contents[path], path)


def varied(frames: int, channels: int = 1) -> NDArray[np.float32]:
    """Return sound with loud, quiet and silent parts, which take a varying number of bytes."""
    loud = np.abs(np.sin(np.arange(frames) / 2e4))[:, np.newaxis]
    loud[frames // 2 : frames * 2 // 3] = 0
    return (sound(frames, channels) * loud).astype(np.float32)


def in_memory(content: bytes) -> Row:
    return Row(0, "a", places=Counted(contents={"a": content}))


def segment(row: Row, start: int, length: int, frames: int, channels: int = 1) -> Any:
    """Read a segment of a recording with so many samples."""
    window = Window(height=1, width=length, x=(start + 0.5) / (frames - length + 1))
    assert window.place(1, frames)[1] == start
    return AudioReader(RATE, channels, resample=False).read(row, window)["image"][0]


@pytest.mark.parametrize("channels", [1, 2, 6])
@pytest.mark.parametrize("frames", [1, 100, 5000, 21_003, 150_011])
@pytest.mark.parametrize(("format", "kind"), CODINGS)
def test_segments_equal_the_whole(
    tmp_path: Path, format: str, kind: str, frames: int, channels: int
) -> None:
    path = write(tmp_path / f"a.{format}", varied(frames, channels), RATE, subtype=kind)
    row, expected, random = in_memory(path.read_bytes()), stored(path), Random(frames)
    for number in range(30):
        length = random.randint(1, min(frames, 20_000))
        last = frames - length
        # libsndfile itself is wrong in the last page of OGG.
        start = random.randint(0 if number % 2 else last * 99 // 100, last)
        for one in (row, Row(0, str(path))):
            found = segment(one, start, length, frames, channels)
            np.testing.assert_array_equal(found, expected[start : start + length])


def four_minutes(path: Path, kind: str) -> bytes:
    """Write a recording, and return its content."""
    with soundfile.SoundFile(path, "w", RATE, 1, kind) as file:
        for part in np.split(varied(240 * RATE), 240):  # it crashes on minutes of OGG at once
            file.write(part)
    return path.read_bytes()


@pytest.mark.parametrize(("format", "kind"), CODINGS)
def test_only_the_bytes_of_a_segment_are_read(tmp_path: Path, format: str, kind: str) -> None:
    frames, content = 240 * RATE, four_minutes(tmp_path / f"a.{format}", kind)
    places, most = Counted(contents={"a": content}), 0
    row = Row(0, "a", places=places)
    for start in range(0, frames - RATE, frames // 9):
        places.read.clear()
        segment(row, start, RATE, frames)
        # Six guesses for a second that takes thrice as many bytes as others.
        assert sum(places.read) <= 6 * (3 * len(content) / 240 + 30_000)
        most = max(most, sum(places.read))
    assert most < len(content) / 4


@pytest.mark.parametrize(("format", "kind"), CODINGS[1:])
def test_few_requests_for_a_segment_of_an_object(
    tmp_path: Path, weed: Weed, s3_keys: None, format: str, kind: str
) -> None:
    content = four_minutes(tmp_path / f"a.{format}", kind)
    weed.put("archive", f"long.{format}", content)
    places = Places(Storage(endpoint=f"http://127.0.0.1:{weed.s3_port}"))
    row = Row(0, f"s3://archive/long.{format}", places=places)
    expected = stored(tmp_path / f"a.{format}")
    TRAFFIC.take()
    numbers, most = 0, 0
    for start in range(5, 240 * RATE - RATE, 240 * RATE // 9):
        found = segment(row, start, RATE, 240 * RATE)
        np.testing.assert_array_equal(found, expected[start : start + RATE])
        requests, nbytes, _ = TRAFFIC.take()
        numbers, most = numbers + requests, max(most, nbytes)
    assert numbers <= 9 * 6
    assert most < len(content) / 4 + (128 << 10)  # the first request, as the length is unknown


def test_decoders_that_are_used_again_know_nothing_of_files_before(tmp_path: Path) -> None:
    """Of the same and of other headers, in turn and from several threads."""
    rows: list[tuple[Row, NDArray[np.float32], int]] = []
    for number in range(12):
        channels = 1 + number % 2
        options = {"subtype": "VORBIS", "compression_level": 0.3 * (number % 3)}
        path = write(tmp_path / f"{number}.ogg", varied(90_000, channels), RATE, **options)
        rows.append((Row(0, str(path)), stored(path), channels))

    def check(seed: int) -> None:
        random = Random(seed)
        row, expected, channels = random.choice(rows)
        length = random.randint(1, 9000)
        start = random.randint(0, 90_000 - length)
        found = segment(row, start, length, 90_000, channels)
        np.testing.assert_array_equal(found, expected[start : start + length])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(check, range(300)))


def damaged(content: bytes, random: Random) -> bytes:
    found = bytearray(content)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(found)) if random.random() < 0.7 else random.randrange(6000)
        match random.randrange(4):
            case 0:
                found[at : at + 4] = random.randbytes(random.randrange(5))
            case 1:
                del found[at : at + random.randrange(3000)]
            case 2:
                found[at:at] = random.randbytes(random.randrange(5000))
            case 3 if at > 8000:
                del found[at:]
    return bytes(found)


@pytest.mark.parametrize(("format", "kind"), CODINGS[1:])
def test_damaged_files_equal_soundfile_with_seek(tmp_path: Path, format: str, kind: str) -> None:
    content = write(tmp_path / f"a.{format}", varied(150_000), RATE, subtype=kind).read_bytes()
    path = tmp_path / "damaged"
    equal = 0
    for seed in range(80):
        random = Random(seed)
        path.write_bytes(damaged(content, random))
        length, start = random.randint(1, 9000), random.randint(0, 120_000)
        expected = None
        with suppress(soundfile.LibsndfileError), soundfile.SoundFile(path) as file:
            frames = file.frames
            if start + length <= frames < 1 << 40:
                file.seek(start)
                expected = file.read(length, dtype="float32", always_2d=True)
        for row in (in_memory(path.read_bytes()), Row(0, str(path))):
            if expected is None or len(expected) < length:
                with suppress(ReadError, AssertionError):  # also of a position beyond its end
                    segment(row, start, length, 150_000)
            else:
                try:
                    found_frames = sound_facts(row).frames
                except ReadError:  # a part of the last page is missing; libsndfile leaves it out
                    continue
                if found_frames != frames:
                    continue  # libsndfile takes the last page before the damage for the end
                found = segment(row, start, length, frames)
                np.testing.assert_array_equal(found, expected, str(seed))
                equal += 1
    assert equal > 20


def test_two_streams_of_ogg_in_a_file_are_read_as_by_soundfile(tmp_path: Path) -> None:
    parts = [
        write(tmp_path / f"{n}.ogg", varied(50_000), RATE, subtype="VORBIS").read_bytes()
        for n in range(2)
    ]
    path = tmp_path / "chained.ogg"
    path.write_bytes(parts[0] + parts[1])
    expected = stored(path)
    row = Row(0, str(path))
    np.testing.assert_array_equal(AudioReader(RATE).read(row, None)["image"][0], expected)
    found = segment(row, 3000, 7000, len(expected))
    np.testing.assert_array_equal(found, expected[3000:10_000])


def test_an_old_libsndfile_seeks_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.ogg", varied(60_000), 11025, subtype="VORBIS")
    monkeypatch.setattr(soundfile, "__libsndfile_version__", "1.0.31")
    window = Window(height=1, width=500, x=0.3)
    found = AudioReader(11025).read(Row(0, str(path)), window)["image"][0]
    _, start = window.place(1, 60_000)
    np.testing.assert_array_equal(found, stored(path)[start : start + 500])


def test_large_pages(tmp_path: Path) -> None:
    """FFmpeg writes a page for each second, here of 45 kB."""
    path, samples = tmp_path / "a.ogg", varied(300_000, 2)
    with av.open(path, "w") as container:
        stream = container.add_stream("vorbis", rate=44100, options={"strict": "-2"})
        assert isinstance(stream, av.AudioStream)
        stream.layout, stream.format = "stereo", "fltp"
        for at in range(0, len(samples), 1024):
            part = np.ascontiguousarray(samples[at : at + 1024].T)
            frame = av.AudioFrame.from_ndarray(part, format="fltp", layout="stereo")
            frame.rate, frame.pts = 44100, at
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    expected, random = stored(path), Random(0)
    for number in range(20):
        length = random.randint(1, 20_000)
        window = Window(height=1, width=length, x=random.random() if number else 1 - 2**-53)
        _, start = window.place(1, len(expected))
        found = AudioReader(44100, 2).read(Row(0, str(path)), window)["image"][0]
        np.testing.assert_array_equal(found, expected[start : start + length])
