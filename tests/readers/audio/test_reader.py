from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr
from audio_files import aiff, chunk, comm, extensible, fmt, riff, sound, ssnd, stored, write
from elsewhere import OverHttp, OverS3
from numpy.typing import NDArray
from scipy import stats

from readers import AudioReader, Draws, Index, ReadError, Row, Window
from readers.audio.reader import Noises, sound_facts
from readers.contract import Reader, Sample
from readers.places.local import LocalPlace
from readers.places.opener import Places
from readers.testing import NUMBER, InContainer, InMemory, ReaderContract, refused

RATE = 16000


def segment_of(sample: Sample) -> NDArray[np.float32]:
    return sample["image"]


class TestWav(ReaderContract):
    one_row = True
    name = "good.wav"

    @pytest.fixture
    def reader(self) -> Reader:
        return AudioReader(RATE, resample=False)

    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        return self.row(write(tmp_path / self.name, sound(937), RATE))

    @pytest.fixture
    def bad_row(self, tmp_path: Path) -> Row:
        return self.row(write(tmp_path / f"bad_{self.name}", sound(937), 8000))

    def pixels(self, sample: Sample) -> NDArray[Any]:
        return segment_of(sample)

    @pytest.mark.parametrize("size", [(1, 1000)])  # the message tells seconds
    def test_window_larger_than_the_image(
        self, reader: Reader, placed_row: Row, size: tuple[int, int]
    ) -> None:
        window = Window(height=size[0], width=size[1])
        refused(reader, placed_row, window, "shorter than the segment")


class TestStereo(TestWav):
    @pytest.fixture
    def reader(self) -> Reader:
        return AudioReader(RATE, channels=2, resample=False)

    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        return self.row(write(tmp_path / self.name, sound(937, 2), RATE))


class TestAiff(TestWav):
    name = "good.aiff"


class TestFlac(TestWav):
    name = "good.flac"


class TestOgg(TestWav):
    name = "good.ogg"


class TestWavInside(InContainer, TestWav): ...


class TestFlacInside(InContainer, TestFlac): ...


class TestOggInMemory(InMemory, TestOgg): ...


class TestWavOverS3(OverS3, TestWav): ...


class TestFlacOverHttp(OverHttp, TestFlac): ...


class TestOggOverS3(OverS3, TestOgg): ...


FORMATS = [
    *(("wav", kind) for kind in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")),
    *(("wav", kind) for kind in ("ULAW", "ALAW", "IMA_ADPCM", "MS_ADPCM", "GSM610")),
    *(("wavex", kind) for kind in ("PCM_16", "PCM_24", "FLOAT")),
    *(("rf64", kind) for kind in ("PCM_16", "PCM_24", "FLOAT")),
    *(("aiff", kind) for kind in ("PCM_S8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")),
    *(("aiff", kind) for kind in ("ULAW", "ALAW")),
    *(("w64", kind) for kind in ("PCM_16", "PCM_24", "FLOAT")),
    *(("au", kind) for kind in ("PCM_16", "FLOAT", "ULAW")),
    *(("caf", "PCM_16"), ("caf", "ALAC_16")),
    *(("flac", kind) for kind in ("PCM_S8", "PCM_16", "PCM_24")),
    *(("ogg", "VORBIS"), ("ogg", "OPUS"), ("mp3", "MPEG_LAYER_III")),
]


@pytest.mark.parametrize("channels", [1, 2, 6, 10])
@pytest.mark.parametrize(("format", "kind"), FORMATS)
def test_samples_equal_soundfile(tmp_path: Path, format: str, kind: str, channels: int) -> None:
    if (kind in ("IMA_ADPCM", "MS_ADPCM", "ALAC_16") and channels > 2) or (
        (kind == "GSM610" and channels > 1)
        or (format == "flac" and channels > 8)
        or (format == "mp3" and channels > 2)
        or (kind == "OPUS" and channels > 8)
    ):
        pytest.skip("no such files")
    rate = 48000 if kind == "OPUS" else RATE
    path = write(tmp_path / "a", sound(30011, channels), rate, format=format, subtype=kind)
    reader, row = AudioReader(rate, channels, resample=False), Row(0, str(path))
    expected = stored(path)
    facts = sound_facts(row)
    assert (facts.rate, facts.channels, facts.frames) == (rate, channels, len(expected))
    # libmpg123 rounds by the place of its buffers; the decoder of Opus starts anew at a seek.
    atol = {"mp3": 3e-7, "ogg": 2e-3 if kind == "OPUS" else 0}.get(format, 0)
    found = segment_of(reader.read(row, None))[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=3e-7 if format == "mp3" else 0)
    for x in (0.0, 0.37, 1 - 2**-53):
        window = Window(height=1, width=4001, x=x)
        _, start = window.place(1, len(expected))
        found = segment_of(reader.read(row, window))[0]
        np.testing.assert_allclose(found, expected[start : start + 4001], rtol=0, atol=atol)


@dataclass(frozen=True)
class Counted(Places):
    """Places that count the bytes read."""

    read: list[int] = None  # type: ignore[assignment]

    def at(self, path: str, *span: Any, **version: Any) -> Any:
        counted = self.read

        class Place(LocalPlace):
            def read(self, start: int, stop: int) -> bytes:
                counted.append(stop - start)
                return super().read(start, stop)

            def read_many(self, pieces: Any) -> None:
                counted.extend(len(buffer) for _, buffer in pieces)
                super().read_many(pieces)

        return Place(path)


@pytest.mark.parametrize("format", ["wav", "aiff"])
def test_only_the_bytes_of_a_segment_are_read(tmp_path: Path, format: str) -> None:
    path = write(tmp_path / f"a.{format}", sound(1_000_000, 2), RATE)
    places = Counted(read=[])
    reader = AudioReader(RATE, channels=2)
    reader.read(Row(0, str(path), places=places), Window(height=1, width=RATE, x=0.7))
    assert sum(places.read) <= RATE * 4 + 4096 + 64


DATA = struct.pack("<300h", *range(300))
PLAIN = np.arange(300, dtype=np.float32) / 32768
"""What `DATA` holds."""

ODD = {
    "odd padding": riff(fmt(), chunk(b"LIST", b"abc"), chunk(b"data", DATA)),
    "long list before data": riff(fmt(), chunk(b"LIST", bytes(1 << 20)), chunk(b"data", DATA)),
    "data before fmt": riff(chunk(b"data", DATA), fmt()),
    "RIFF size 0": riff(fmt(), chunk(b"data", DATA), nbytes=0),
    "sizes of a stream": riff(fmt(), chunk(b"data", DATA, 0xFFFFFFFF), nbytes=0xFFFFFFFF),
    "sizes 0 of a stream": riff(fmt(), chunk(b"data", DATA, 0), nbytes=0),
    "sox to a pipe": riff(fmt(), chunk(b"data", DATA, 0x7FFFFFFF), nbytes=0x7FFFFFFF),
    "extensible": riff(extensible(16, 1), chunk(b"data", DATA)),
    "bytes after data": riff(fmt(), chunk(b"data", DATA)) + b"id3 and more",
    "RF64": riff(
        chunk(b"ds64", struct.pack("<QQQI", 0, 600, 300, 0)),
        fmt(),
        chunk(b"data", DATA, 0xFFFFFFFF),
        chunk(b"LIST", bytes(50)),
        name=b"RF64",
        nbytes=0xFFFFFFFF,
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_unusual_wav_files_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.wav").write_bytes(ODD[name])
    row = Row(0, str(tmp_path / "a.wav"))
    np.testing.assert_array_equal(
        segment_of(AudioReader(RATE).read(row, None))[0, :, 0][:300], PLAIN
    )
    assert sound_facts(row).duration == 300 / RATE


BIG = struct.pack(">300h", *range(300))
"""`DATA` as AIFF stores it."""

ODD_AIFF = {
    "bytes before the samples": aiff(comm(300), ssnd(BIG, 5)),
    "samples first": aiff(ssnd(BIG, 4), comm(300)),
    "odd padding": aiff(chunk(b"NAME", b"abc", order=">"), comm(300), ssnd(BIG)),
    "12 bits": aiff(comm(300, bits=12), ssnd(BIG)),
    "little-endian": aiff(comm(300, coding=b"sowt\0\0"), ssnd(DATA), name=b"AIFC"),
    "coding NONE": aiff(comm(300, coding=b"NONE\0\0"), ssnd(BIG, 3), name=b"AIFC"),
    "coding twos": aiff(comm(300, coding=b"twos\0\0"), ssnd(BIG), name=b"AIFC"),
}


@pytest.mark.parametrize("name", ODD_AIFF)
def test_unusual_aiff_files_equal_soundfile(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.aiff"
    path.write_bytes(ODD_AIFF[name])
    row, expected = Row(0, str(path)), stored(path)
    assert sound_facts(row).frames == len(expected) == 300
    reader = AudioReader(RATE, resample=False)
    np.testing.assert_array_equal(segment_of(reader.read(row, None))[0], expected, name)
    last = segment_of(reader.read(row, Window(height=1, width=7, x=1 - 2**-53)))
    np.testing.assert_array_equal(last[0], expected[-7:], name)


BAD = {
    "no fmt": (riff(chunk(b"data", DATA)), "fmt"),
    "no data": (riff(fmt()), "data"),
    "no samples": (riff(fmt(), chunk(b"data", b"")), "no samples"),
    "cut": (riff(fmt(), chunk(b"data", DATA, 700)), "cut off"),
    "AIFF, no COMM": (aiff(ssnd(DATA)), "COMM"),
    "AIFF, no SSND": (aiff(comm(300)), "SSND"),
    "AIFF, cut": (aiff(comm(300), ssnd(BIG))[:-1], "cut off"),
    "AIFF, samples cut off by those skipped": (aiff(comm(301), ssnd(BIG, 2)), "has 600"),
    "0 Hz": (riff(fmt(rate=0), chunk(b"data", DATA)), "0 Hz"),
    "800 MHz": (riff(fmt(rate=800_000_000, bits=8), chunk(b"data", DATA)), "800000000 Hz"),
    "0 channels": (riff(fmt(channels=0), chunk(b"data", DATA)), "0 channels"),
    "NaN": (riff(fmt(bits=32, tag=3), chunk(b"data", struct.pack("<2f", 1, np.nan))), "NaN"),
    "M4A": (b"\0\0\0\x20ftypM4A \0\0\0\0" + bytes(99), "AAC.*ffmpeg"),
    "WMA": (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11" + bytes(99), "DRM"),
    "video": (b"\x1a\x45\xdf\xa3" + bytes(99), "WebM"),
    "JPEG": (b"\xff\xd8\xff\xe0" + bytes(99), "jpeg_pipeline"),
}


@pytest.mark.parametrize("name", BAD)
def test_files_without_samples_are_refused(tmp_path: Path, name: str) -> None:
    content, words = BAD[name]
    (tmp_path / "a.wav").write_bytes(content)
    row = Row(NUMBER, str(tmp_path / "a.wav"))
    if name == "NaN":  # only its samples tell
        refused(AudioReader(RATE), row, Window(height=1, width=2), words)
    else:
        refused(AudioReader(RATE), row, None, words)


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
@pytest.mark.parametrize("kept", [0, 5, 27, 40, -100, -1])
def test_ogg_without_all_of_its_last_page_is_refused_whole(
    tmp_path: Path, subtype: str, kept: int
) -> None:
    path = tmp_path / "a.ogg"
    soundfile.write(path, sound(100_000), RATE, subtype=subtype)
    content = path.read_bytes()
    end = len(content) if kept < 0 else content.rfind(b"OggS")
    path.write_bytes(content[: end + kept])
    with pytest.raises(ReadError, match="cut off"):
        sound_facts(Row(0, str(path)))
    with pytest.raises(OSError, match="cut off"):
        AudioReader(RATE).read(Row(0, str(path)), None)
    AudioReader(RATE).read(Row(0, str(path)), Window(height=1, width=100))  # what is there


def mp3_without_length(path: Path, options: dict[str, str], bit_rate: int = 0) -> Path:
    """Write an MP3 whose first frame does not list the others; its first half is silent."""
    import av

    samples = sound(2 * 44100)[:, 0]
    samples[: len(samples) // 2] *= 1e-3
    with av.open(str(path), "w", options={"write_xing": "0"}) as file:
        stream = file.add_stream("libmp3lame", rate=44100, layout="mono", options=options)
        if bit_rate:
            stream.bit_rate = bit_rate
        frame = av.AudioFrame.from_ndarray(samples[None], format="fltp", layout="mono")
        frame.rate = 44100
        file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    return path


def decoded_length(path: Path) -> int:
    import av

    with av.open(str(path)) as file:
        return sum(frame.samples for frame in file.decode(audio=0))


def test_mp3_that_does_not_tell_its_length_is_counted(tmp_path: Path) -> None:
    path = mp3_without_length(tmp_path / "a.mp3", {}, 64000)
    expected, _ = soundfile.read(path, dtype="float32")
    number = decoded_length(path)
    row = Row(0, str(path))
    assert sound_facts(row).frames == len(expected) == number
    found = AudioReader(44100).read(row, None)
    np.testing.assert_allclose(found["image"].ravel(), expected, rtol=0, atol=3e-7)
    part = replace(row, notes={"start": 1.5, "duration": 0.25})
    found = AudioReader(44100).read(part, Window(height=1, width=11025))
    begin = int(1.5 * 44100)
    np.testing.assert_allclose(
        found["image"].ravel(), expected[begin : begin + 11025], rtol=0, atol=3e-7
    )


def test_mp3_of_which_libsndfile_reads_only_a_part(tmp_path: Path) -> None:
    import av

    path = mp3_without_length(tmp_path / "a.mp3", {"b": "0", "q": "4", "flags": "+qscale"})
    if len(soundfile.read(path)[0]) >= decoded_length(path):
        pytest.skip("libsndfile reads all of it")
    with pytest.raises(ReadError, match="-c copy"):
        sound_facts(Row(0, str(path)))
    with av.open(str(path)) as file, av.open(str(tmp_path / "b.mp3"), "w") as copy:
        stream = copy.add_stream_from_template(file.streams.audio[0])
        for packet in file.demux(audio=0):
            if packet.size:
                packet.stream = stream
                copy.mux(packet)
    frames = sound_facts(Row(0, str(tmp_path / "b.mp3"))).frames
    assert abs(frames - decoded_length(path)) <= 1152


class TestParts:
    @pytest.fixture
    def row(self, tmp_path: Path) -> Row:
        return Row(NUMBER, str(write(tmp_path / "a.wav", sound(4 * RATE), RATE)))

    def of(self, row: Row, start: float, duration: float) -> Row:
        return replace(row, notes={"start": np.float64(start), "duration": np.float64(duration)})

    def test_a_row_is_a_part_of_a_recording(self, row: Row) -> None:
        whole = stored(row.path)
        part = AudioReader(RATE).read(self.of(row, 1.5, 0.5), None)
        np.testing.assert_array_equal(segment_of(part)[0], whole[24000:32000])
        assert part["start"] == 1.5
        last = AudioReader(RATE).read(self.of(row, 1.5, np.nan), None)
        np.testing.assert_array_equal(segment_of(last)[0], whole[24000:])

    @pytest.mark.parametrize("sample", [0, 1, 480, 16080, 31999])
    def test_times_are_of_the_nearest_sample(self, row: Row, sample: int) -> None:
        """As 1.005 s, whose product with the rate is 16079.999999999998."""
        whole = stored(row.path)
        for shift in (-1e-9, 0.0, 1e-9):
            start, end = max(0.0, sample / RATE + shift), (sample + 4801) / RATE + shift
            for duration in (end - start, (4801 + 1e-9) / RATE, (4801 - 1e-9) / RATE):
                part = AudioReader(RATE).read(self.of(row, start, duration), None)
                np.testing.assert_array_equal(segment_of(part)[0], whole[sample : sample + 4801])
                assert part["start"] == sample / RATE

    def test_segments_stay_within_it(self, row: Row) -> None:
        window = Window(height=1, width=800, x=1 - 2**-53)
        part = AudioReader(RATE).read(self.of(row, 1.5, 0.5), window)
        np.testing.assert_array_equal(segment_of(part)[0], stored(row.path)[31200:32000])
        assert part["start"] == 31200 / RATE

    def test_a_little_more_than_there_is_ends_with_the_recording(self, row: Row) -> None:
        assert segment_of(AudioReader(RATE).read(self.of(row, 3, 1.02), None)).shape[1] == RATE

    @pytest.mark.parametrize(
        ("start", "duration"), [(3.5, 0.6), (4.1, np.nan), (1.0, 0.0), (np.nan, 4.2), (-1.0, 2.0)]
    )
    def test_wrong_times_are_refused(self, row: Row, start: float, duration: float) -> None:
        row = self.of(row, start, duration)
        assert "nan" not in refused(AudioReader(RATE), row, None, "the Index has .*4 s long").reason


def test_one_channel_is_the_mean_of_all(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", sound(500, 3), RATE)
    found = segment_of(AudioReader(RATE).read(Row(0, str(path)), None))
    np.testing.assert_allclose(found[0, :, 0], stored(path).mean(axis=1), atol=1e-7)
    row = Row(NUMBER, str(path))
    refused(AudioReader(RATE, channels=2), row, None, "3 channels, expected 2")


def test_short_recordings_are_padded_on_request(tmp_path: Path) -> None:
    path = write(tmp_path / "a.flac", sound(500), RATE)
    window = Window(height=1, width=800, x=0.9)
    sample = AudioReader(RATE, short="pad").read(Row(0, str(path)), window)
    assert sample["length"] == 500
    np.testing.assert_array_equal(segment_of(sample)[0, :500], stored(path))


RATES = [8000, 11025, 22050, 44100, 48000, 15999]


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("channels", [1, 2])
def test_a_segment_is_that_of_the_whole_resampled(tmp_path: Path, rate: int, channels: int) -> None:
    path = write(tmp_path / "a.wav", sound(6 * rate, channels, rate), rate)
    expected = soxr.resample(stored(path), rate, RATE, quality="HQ")
    places = Counted(read=[])
    reader, row = AudioReader(RATE, channels), Row(0, str(path), places=places)
    np.testing.assert_array_equal(reader.read(row, None)["image"][0], expected)
    for x in (0.0, 0.3, 1 - 2**-53):
        places.read.clear()
        sample = reader.read(row, Window(height=1, width=1600, x=x))
        start = round(float(sample["start"]) * RATE)
        assert abs(start - x * (len(expected) - 1600)) <= 1
        found = sample["image"][0]
        np.testing.assert_allclose(found, expected[start:][:1600], rtol=0, atol=3e-6)
        # From a sample that both rates have, with what the filter needs on either side.
        most = 1600 * rate / RATE + rate / gcd(rate, RATE) + 2 * 162 * max(1, rate / RATE)
        assert sum(places.read) <= 2 * channels * most + 4096 + 64


def test_a_tone_beyond_the_new_rate_is_gone(tmp_path: Path) -> None:
    tone = np.sin(2 * np.pi * 6000 * np.arange(RATE) / RATE).astype(np.float32)
    path = write(tmp_path / "a.wav", tone)
    found = AudioReader(8000).read(Row(0, str(path)), None)["image"]
    assert found.shape == (1, 8000, 1)
    assert np.abs(found[0, 200:-200]).max() < 1e-4


def test_a_recording_that_a_speed_makes_too_short_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", sound(RATE))
    row = Row(NUMBER, str(path), draws=Draws.of(0, 0, 0))
    reader, window = AudioReader(RATE, speeds=(1.25,)), Window(height=1, width=RATE)
    refused(reader, row, window, r"0\.8 s long at speed 1\.25.*short='pad'")


@pytest.mark.parametrize("speed", [0.9, 1.1, 3.0])
@pytest.mark.parametrize("frames", [16000, 14545, 101, 4, 1])
def test_a_whole_recording_is_as_long_as_soxr_makes_it(
    tmp_path: Path, frames: int, speed: float
) -> None:
    samples = np.linspace(-0.5, 0.5, frames, dtype=np.float32)
    row = Row(0, str(write(tmp_path / "a.wav", samples)), draws=Draws.of(0, 0, 0))
    ratio = Fraction(str(speed))
    expected = soxr.resample(samples, ratio.numerator, ratio.denominator, quality="HQ")
    reader = AudioReader(RATE, speeds=(speed,))
    if not len(expected):
        with pytest.raises(ReadError, match=f"{frames} samples.*leave"):
            reader.read(row, None)
        return
    found = reader.read(row, None)
    assert found["length"] == len(expected)
    np.testing.assert_allclose(found["image"][0, :, 0], expected, atol=1e-4)


def test_a_speed_is_drawn_for_each_row(tmp_path: Path) -> None:
    """A tone of 1000 Hz, played slower or faster, has another pitch."""
    tone = np.sin(2 * np.pi * 1000 * np.arange(3 * RATE) / RATE).astype(np.float32)
    path = write(tmp_path / "a.wav", tone)
    reader = AudioReader(RATE, speeds=(0.9, 1.0, 1.1))
    pitches = set()
    for number in range(30):
        row = Row(number, str(path), draws=Draws.of(0, 0, number))
        found = reader.read(row, Window(height=1, width=RATE, x=0.3))["image"][0, :, 0]
        pitches.add(int(np.argmax(np.abs(np.fft.rfft(found)))))
    assert pitches == {900, 1000, 1100}
    np.testing.assert_array_equal(reader.read(Row(0, str(path)), None)["image"][0], stored(path))


@pytest.mark.parametrize("notes", [{}, {"start": np.float64(0.5), "duration": np.float64(3)}])
@pytest.mark.parametrize("rate", [RATE, 22050])
@pytest.mark.parametrize("speed", [0.8, 1.0, 1.25])
def test_the_start_is_where_the_segment_begins_in_the_file(
    tmp_path: Path, speed: float, rate: int, notes: dict[str, Any]
) -> None:
    """A ramp shows at each sample how many seconds of the file came before it."""
    ramp = np.linspace(-0.8, 0.8, 4 * rate, dtype=np.float32)
    path = write(tmp_path / "a.wav", ramp, rate, subtype="FLOAT")
    row = Row(0, str(path), draws=Draws.of(0, 0, 0), notes=notes)
    reader = AudioReader(RATE, speeds=(speed,))
    for x in (0.2, 0.5, 0.8):
        sample = reader.read(row, Window(height=1, width=4000, x=x))
        begins = (sample["image"][0, 0, 0] + 0.8) / 1.6 * 4
        np.testing.assert_allclose(sample["start"], begins, atol=2e-3)


def test_draws_of_a_row_are_uniform_and_independent(tmp_path: Path) -> None:
    """Of its speed, and whether noise is added, which recording of it, from where, how loud."""
    speech = write(tmp_path / "speech.wav", np.full(128, 0.5, np.float32), RATE)
    ramp = (0.5 + np.arange(4096) / 8192).astype(np.float32)
    for name, noise in (("up.wav", ramp), ("down.wav", -ramp)):
        write(tmp_path / name, noise, RATE, subtype="FLOAT")
    noises = Index.from_paths([tmp_path / "up.wav", tmp_path / "down.wav"]).columns()
    plain = AudioReader(RATE, speeds=(0.5, 2.0))
    noisy = replace(plain, noise=Noises(noises, (0.0, 20.0), 0.8))
    found = []
    for number in range(1200):
        row = Row(number, str(speech), draws=Draws.of(5, 0, number))
        before, after = (one.read(row, None)["image"][0, :, 0] for one in (plain, noisy))
        added = (after - before).astype(np.float64)
        if not added.any():
            continue
        # The ramp rises by its step, relative to its value at the start of the segment.
        rise = (added[-1] / added[0] - 1) * 8192 / (len(added) - 1)
        start = (1 / rise - 0.5) * 8192 / (4096 - len(added))
        level = 10 * np.log10(np.square(before).mean() / np.square(added).mean()) / 20
        found.append((len(added) > 128, added[0] > 0, start, level))
    drawn = np.array(found, np.float64)
    assert stats.binomtest(len(drawn), 1200, 0.8).pvalue > 1e-3
    for column in (0, 1):
        assert stats.binomtest(int(drawn[:, column].sum()), len(drawn), 0.5).pvalue > 1e-3
    for column in (2, 3):
        assert stats.kstest(drawn[:, column], "uniform").pvalue > 1e-3
    ranks = stats.spearmanr(drawn).statistic
    assert np.abs(ranks - np.eye(4)).max() < 4.5 / np.sqrt(len(drawn))


@pytest.mark.parametrize(
    "arguments",
    [{"rate": 0}, {"rate": True}, {"rate": 16e3}, {"channels": 0}, {"speeds": (0.0,)}],
)
def test_arguments_that_make_no_sense(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        AudioReader(**{"rate": RATE, **arguments})
