"""Recordings: segments and whole ones equal soundfile's, features librosa's and torch's."""

from __future__ import annotations

import io
import json
import math
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from audio_files import sound, stored, write
from epochs import HOW, SEED, check_equal, check_pure, in_turns, new_loader
from hypothesis import example, given, settings
from nvidia.dali import fn, pipeline_def, types
from read_here import read_here

from dali_pipelines import (
    Gain,
    Index,
    Loader,
    LogMel,
    Mfcc,
    Preprocessor,
    ReadError,
    RecordedNoise,
    SpecAugment,
    Spectrogram,
    WhiteNoise,
    audio_pipeline,
    npy_pipeline,
)

RATE = 16000
LENGTHS = (5000, 7321, 16000, 3200, 9999, 12345, 4800, 6000)
ROWS = len(LENGTHS)
SEGMENT = 0.15
SAMPLES = round(SEGMENT * RATE)


@pytest.fixture(scope="module", params=["wav", "flac", "ogg"])
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def archive(format: str, tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp(format)
    for row, frames in enumerate(LENGTHS):
        write(folder / f"{row}.{format}", sound(frames, seed=row), RATE)
    return Index.scan_audio(folder)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("recordings")
    for row, frames in enumerate(LENGTHS):
        write(folder / f"{row}.wav", sound(frames, seed=row), RATE)
    return Index.scan_audio(folder)


def test_an_index_has_the_facts_of_recordings(archive: Index) -> None:
    assert archive["rate"].to_pylist() == [RATE] * ROWS
    assert archive["channels"].to_pylist() == [1] * ROWS
    assert archive["duration"].to_pylist() == [frames / RATE for frames in LENGTHS]


def test_random_segments_equal_soundfile(archive: Index) -> None:
    with new_loader(audio_pipeline, archive, duration=SEGMENT, window="random") as loader:
        batches = [batch for step in loader for batch in step]
    assert sorted(row for batch in batches for row in batch["row"].tolist()) == [*range(ROWS)]
    for batch in batches:
        assert batch["audio"].shape[1:] == (1, SAMPLES)
        assert batch["length"].tolist() == [SAMPLES] * len(batch["row"])
        for row, audio, start in zip(batch["row"], batch["audio"], batch["start"], strict=True):
            first = round(float(start) * RATE)
            expected = stored(archive.path(int(row)), start=first, frames=SAMPLES)
            np.testing.assert_array_equal(audio.numpy().T, expected)


@pytest.mark.parametrize(("duration", "samples"), [(0.1, 1600), (1.005, 16080), (0.10002, 1600)])
def test_a_segment_has_the_nearest_number_of_samples(
    index: Index, duration: float, samples: int
) -> None:
    """As 1.005 s, whose product with the rate is 16079.999999999998."""
    for one in read_here(audio_pipeline, index, duration=duration, short="pad").values():
        assert one["audio"].shape == (1, samples)


def test_segments_are_drawn_anew_in_each_epoch(index: Index) -> None:
    options: dict[str, Any] = {"duration": SEGMENT, "window": "random"}
    first, second = (
        [
            float(one["start"])
            for one in read_here(audio_pipeline, index, epoch=n, **options).values()
        ]
        for n in (0, 1)
    )
    assert all(a != b for a, b in zip(first, second, strict=True))
    assert len(set(first)) == ROWS


def test_whole_recordings_are_padded(archive: Index) -> None:
    with new_loader(audio_pipeline, archive, mode="eval", batch_size=ROWS) as loader:
        ((batch,),) = loader
    assert batch["audio"].shape == (ROWS, 1, max(LENGTHS))
    assert batch["length"].tolist() == [*LENGTHS]
    assert "size" not in batch
    for row, frames in enumerate(LENGTHS):
        np.testing.assert_array_equal(
            batch["audio"][row, 0, :frames], stored(archive.path(row))[:, 0]
        )
        assert not batch["audio"][row, 0, frames:].any()


def test_recordings_of_about_equal_length_come_together(tmp_path: Path) -> None:
    """Of 64 recordings, a batch is from the shorter or the longer half: 16 blocks of 2 rows."""
    for number in range(64):
        write(tmp_path / f"{number:02}.wav", sound(100 + 100 * number))
    index = Index.scan_audio(tmp_path)
    order = {"shuffle": "buckets", "block_rows": 2}
    with new_loader(audio_pipeline, index, batch_size=2, **order) as loader:
        for _ in range(2):
            halves = [{row // 32 for row in batch["row"].tolist()} for (batch,) in loader]
            assert all(len(one) == 1 for one in halves)
            assert halves.count({0}) == halves.count({1}) == 16


def test_whole_recordings_come_as_a_list(index: Index) -> None:
    with new_loader(audio_pipeline, index, mode="eval", batch_size=ROWS, ragged="list") as loader:
        ((batch,),) = loader
    assert [audio.shape for audio in batch["audio"]] == [(1, frames) for frames in LENGTHS]


@pytest.fixture(scope="module")
def noises(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recordings of noise, one of another rate, one shorter than the segments."""
    folder = tmp_path_factory.mktemp("noises")
    write(folder / "a.flac", sound(8000, 2, seed=100), 8000)
    write(folder / "b.wav", sound(1000, seed=101), RATE)
    return folder


EVERYTHING: dict[str, Any] = {
    "duration": SEGMENT,
    "window": "random",
    "short": "pad",
    "speeds": (0.9, 1.0, 1.1),
    "features": LogMel(n_mels=20, normalize="feature"),
    "augment": (Gain((-6, 6)), WhiteNoise((10, 30)), SpecAugment(freq_width=5, time_width=5)),
}


def with_noise(noises: Path) -> dict[str, Any]:
    augment = (*EVERYTHING["augment"], RecordedNoise(noises, (5, 15)))
    return {**EVERYTHING, "augment": augment}


@settings(max_examples=5)
@given(how=HOW)
@example(how={"batch_size": 2, "num_shards": 2, "num_read_processes": 1, "position": 3})
def test_samples_do_not_depend_on_how_they_are_read(
    index: Index, noises: Path, how: dict[str, int]
) -> None:
    everything = with_noise(noises)

    def read(**options: Any) -> Any:
        return read_here(audio_pipeline, index, **everything, **options)

    check_pure(read, how, read(batch_size=1, seed=SEED, shuffle=True))


@pytest.mark.parametrize("is_whole", [False, True])
def test_an_epoch_is_resumed_exactly(index: Index, noises: Path, is_whole: bool) -> None:
    options = {} if is_whole else with_noise(noises)
    whole = in_turns(audio_pipeline, index, [{"batch_size": 1}], **options)
    turns = [{"batch_size": 2}, {"batch_size": 1, "num_read_processes": 2}, {"batch_size": 1}]
    if not options:  # padding depends on the batch
        turns = [{"batch_size": 1}] * 2
    check_equal(in_turns(audio_pipeline, index, turns, **options), whole)


def test_eval_is_without_chance(index: Index, noises: Path) -> None:
    plain = {**EVERYTHING, "window": "center", "speeds": (), "augment": ()}
    check_equal(
        read_here(audio_pipeline, index, mode="eval", **with_noise(noises)),
        read_here(audio_pipeline, index, mode="eval", **plain),
    )


# ---- Silence -----------------------------------------------------------------------------------


TRIMMED = {
    "tone": (7, 4321, 9000, 1.0, 1e-4),
    "no silence": (0, 0, 5000, 1.0, 0.0),
    "quiet middle": (3000, 3000, 3000, 0.002, 0.0),
    "short": (100, 900, 50, 1.0, 0.0),
    "nothing": (2000, 2000, 0, 1.0, 0.0),
}
"""Zeros before and after, samples of sound, its loudness, and that of noise everywhere."""


def recording(name: str) -> Any:
    before, after, frames, loudness, noise = TRIMMED[name]
    samples = np.concatenate([np.zeros(before), loudness * sound(frames)[:, 0], np.zeros(after)])
    samples += noise * np.random.default_rng(0).normal(size=len(samples))
    return samples.astype(np.float32)


BOUNDS = Path(__file__).with_name("librosa_trimmed.json")
"""First sample and end of these by librosa 0.11.0, ``librosa.effects.trim(samples, top_db=60)``."""


def test_stored_bounds_are_those_of_librosa() -> None:
    librosa = pytest.importorskip("librosa")
    bounds = json.loads(BOUNDS.read_text())
    for name in TRIMMED:
        assert bounds[name] == librosa.effects.trim(recording(name), top_db=60)[1].tolist()


@pytest.mark.parametrize("name", TRIMMED)
def test_silence_at_the_ends_is_left_out(tmp_path: Path, name: str) -> None:
    samples = recording(name)
    write(tmp_path / "a.wav", samples, subtype="FLOAT")
    index = Index.scan_audio(tmp_path, trim_db=60)
    start, stop = json.loads(BOUNDS.read_text())[name]
    assert index["start"].to_pylist() == [start / RATE]
    assert index["duration"].to_pylist() == [(stop - start) / RATE]
    found = read_here(audio_pipeline, index)[0]
    np.testing.assert_array_equal(found["audio"][0], samples[start:stop])


def test_silence_of_parts_is_left_out_within_them(tmp_path: Path) -> None:
    samples = np.zeros((40000, 2), np.float32)
    samples[4000:6000], samples[20000:30000, 1] = sound(2000, 2), sound(10000)[:, 0]
    write(tmp_path / "a.flac", samples)
    parts = Index.from_paths([str(tmp_path / "a.flac")] * 2)
    parts = parts.with_column("start", np.array([0.0, 15000 / RATE]))
    parts = parts.with_column("duration", np.array([10000 / RATE, 20000 / RATE]))
    index = Index.scan_audio(parts, trim_db=40)
    starts, durations = (np.array(index[name].to_pylist()) * RATE for name in ("start", "duration"))
    for start, stop, first, last in zip(
        starts, starts + durations, (4000, 20000), (6000, 30000), strict=True
    ):
        assert first - 2048 <= start <= first
        assert last <= stop <= last + 2048


# ---- Rates ---------------------------------------------------------------------------------------


def test_other_rates_are_rejected_unless_one_is_given(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", sound(8000), RATE)
    write(tmp_path / "b.wav", sound(8000), 8000)
    index = Index.scan(tmp_path)
    with (
        new_loader(audio_pipeline, index, duration=0.1) as loader,
        pytest.raises(ReadError, match=r"b\.wav.*8000 Hz, expected 16000 Hz.*rate"),
    ):
        list(loader)
    with new_loader(audio_pipeline, index, duration=0.1, rate=RATE) as loader:
        assert sum(len(step["row"]) for step in loader) == 2


# ---- Bad input -----------------------------------------------------------------------------------


def test_short_recordings(index: Index) -> None:
    with (
        new_loader(audio_pipeline, index, duration=0.5) as loader,
        pytest.raises(ReadError, match=r"shorter than the segment of 0\.5 s.*pad"),
    ):
        list(loader)
    with new_loader(audio_pipeline, index, duration=0.5, bad_sample="skip") as loader:
        rows = [row for step in loader for row in step["row"].tolist()]
    assert sorted(rows) == [row for row, frames in enumerate(LENGTHS) if frames >= 8000]
    found = read_here(audio_pipeline, index, duration=0.5, short="pad")
    for row, frames in enumerate(LENGTHS):
        assert found[row]["audio"].shape == (1, 8000)
        assert found[row]["length"] == min(frames, 8000)
        assert not found[row]["audio"][0, frames:].any()


@pytest.mark.parametrize(
    ("name", "value"),
    [("crop", 5), ("flip", "h"), ("resize", 8), ("rotate", 5.0), ("zoom", (1, 2))],
)
def test_settings_of_images_are_refused_by_name(index: Index, name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"images.*{name}.*duration"):
        Loader(audio_pipeline, index, batch_size=1, **{name: value})
    with pytest.raises(TypeError, match=name):
        audio_pipeline(index, batch_size=1, **{name: value})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"duration": 0.0}, "duration"),
        ({"duration": True}, "duration"),
        ({"duration": 1.0, "window": "row"}, "window.*random"),
        ({"window": "random"}, "duration"),
        ({"short": "pad"}, "duration"),
        ({"features": "mel"}, "features.*log_mel.*mel"),
        ({"rate": 0}, "rate"),
        ({"channels": 0}, "channels"),
        ({"speeds": (0.0,)}, "speeds"),
        ({"dtype": "int16"}, "float32.*int16"),
        ({"shuffle": "buckets"}, "buckets.*block_rows.*batch_size"),
        ({"block_rows": 2}, "block_rows.*buckets"),
        ({"augment": (SpecAugment(),)}, "SpecAugment.*features"),
        ({"features": LogMel(n_fft=256, win_length=400)}, "win_length 400.*256"),
    ],
)
def test_settings_that_make_no_sense(index: Index, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        audio_pipeline(index, **{"batch_size": 1, **options})


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (Spectrogram, {"power": 3}, "power"),
        (Spectrogram, {"power": True}, "power"),
        (Spectrogram, {"center": 1}, "center"),
        (Spectrogram, {"hop_length": 0}, "hop_length"),
        (Spectrogram, {"preemphasis": 2}, "preemphasis"),
        (LogMel, {"top_db": 80, "log": "natural"}, "top_db"),
        (LogMel, {"f_min": 100, "f_max": 50}, "f_max"),
        (LogMel, {"normalize": "yes"}, "normalize"),
        (Mfcc, {"n_mfcc": 90}, "n_mfcc 90.*80"),
        (SpecAugment, {"time_share": 2}, "time_share"),
        (Gain, {"db": (3, -3)}, "db"),
        (WhiteNoise, {"snr_db": "loud"}, "snr_db"),
        (RecordedNoise, {"noises": ".", "snr_db": (9, 3)}, "snr_db"),
        (RecordedNoise, {"noises": ".", "p": 2}, "p must"),
    ],
)
def test_features_that_make_no_sense(kind: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        kind(**options)


# ---- Features ------------------------------------------------------------------------------------


def features_of(index: Index, row: int, **options: Any) -> Any:
    return read_here(audio_pipeline, index, **options)[row]["features"]


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize(
    ("n_fft", "window", "hop"),
    [(512, 400, 160), (512, 512, 128), (400, 320, 99), (512, 401, 160), (401, 301, 99)],
)
def test_spectrograms_equal_those_of_torch(
    index: Index, center: bool, power: Any, n_fft: int, window: int, hop: int
) -> None:
    kind = Spectrogram(n_fft=n_fft, win_length=window, hop_length=hop, power=power, center=center)
    for row, found in read_here(audio_pipeline, index, features=kind, batch_size=1).items():
        samples = torch.from_numpy(stored(index.path(row))[:, 0])
        if not center:  # torch takes whole transforms, with the window in their middle
            before = (n_fft - window) // 2
            samples = torch.nn.functional.pad(samples, [before, n_fft - window - before])
        expected = (
            torch.stft(
                samples,
                n_fft,
                hop,
                window,
                torch.hann_window(window),
                center=center,
                return_complex=True,
            ).abs()
            ** power
        )
        frames = int(found["length"])
        assert found["features"].shape == (1, n_fft // 2 + 1, frames)
        expected = expected[:, :frames].numpy()
        np.testing.assert_allclose(
            found["features"][0, :, : expected.shape[1]], expected, atol=1e-5 * expected.max()
        )


LIBROSA = Path(__file__).with_name("librosa_features.npz")
"""Features of `sound(5000)` by librosa 0.11.0; `by_librosa` made them."""
OURS: dict[str, Spectrogram] = {
    "defaults": LogMel(
        n_fft=2048, win_length=2048, hop_length=512, n_mels=128, pad_mode="constant", top_db=80
    ),
    "speech": LogMel(),
    "htk": LogMel(mel_scale="htk", norm=None, n_mels=40, f_min=20, f_max=7600),
    "mfcc": Mfcc(n_mfcc=20, top_db=80),
    "lifter": Mfcc(n_mfcc=20, top_db=80, lifter=22),
}


def by_librosa(samples: Any) -> dict[str, Any]:
    import librosa

    common = {"y": samples, "sr": RATE}
    speech = {"n_fft": 512, "win_length": 400, "hop_length": 160, "pad_mode": "reflect"}
    mel, db = librosa.feature.melspectrogram, librosa.power_to_db
    cut = db(mel(**common, **speech, n_mels=80))
    htk = {"htk": True, "norm": None, "n_mels": 40, "fmin": 20, "fmax": 7600}
    return {
        "defaults": db(mel(**common)),
        "speech": db(mel(**common, **speech, n_mels=80), top_db=None),
        "htk": db(mel(**common, **speech, **htk), top_db=None),
        "mfcc": librosa.feature.mfcc(S=cut, n_mfcc=20),
        "lifter": librosa.feature.mfcc(S=cut, n_mfcc=20, lifter=22),
    }


def test_stored_features_are_those_of_librosa() -> None:
    pytest.importorskip("librosa")
    with np.load(LIBROSA) as stored_features:
        for name, features in by_librosa(sound(5000)[:, 0]).items():
            np.testing.assert_allclose(stored_features[name], features, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", OURS)
def test_features_equal_those_of_librosa(tmp_path: Path, name: str) -> None:
    """In dB; coefficients, which reach 700, relative to that.

    Both compute in float32, whose rounding is felt 80 dB below the loudest band.
    """
    write(tmp_path / "a.wav", sound(5000), subtype="FLOAT")
    found = features_of(Index.scan(tmp_path), 0, features=OURS[name])
    with np.load(LIBROSA) as stored_features:
        expected = stored_features[name]
    np.testing.assert_allclose(found[0], expected, rtol=2e-6, atol=1e-3)


def test_natural_logarithms_are_normalised_by_band(index: Index) -> None:
    plain = features_of(index, 0, features=LogMel(log="natural"), batch_size=1)
    power = 10 ** (features_of(index, 0, features=LogMel(floor=1e-20), batch_size=1) / 10)
    expected = np.log(power + 2.0**-24)
    np.testing.assert_allclose(plain, expected, atol=2e-4)
    kind = LogMel(log="natural", normalize="feature")
    found = features_of(index, 0, features=kind, batch_size=1)[0]
    expected = expected[0] - expected[0].mean(1, keepdims=True)
    expected /= expected.std(1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_preemphasis_subtracts_from_each_sample_the_one_before(tmp_path: Path) -> None:
    samples = sound(4000)
    write(tmp_path / "a.wav", samples, subtype="FLOAT")
    samples[1:] -= 0.97 * samples[:-1].copy()
    write(tmp_path / "b.wav", samples, subtype="FLOAT")
    index = Index.scan(tmp_path)
    found = features_of(index, 0, features=LogMel(preemphasis=0.97))
    np.testing.assert_allclose(found, features_of(index, 1, features=LogMel()), atol=2e-3)


@pytest.mark.parametrize("is_own_window", [False, True])
def test_features_of_jasper_equal_those_of_its_pipeline(index: Index, is_own_window: bool) -> None:
    """As in DeepLearningExamples; its window differs, as does the first sample's pre-emphasis."""
    hann: dict[str, Any] = {} if is_own_window else {"window_fn": torch.hann_window(320).tolist()}
    paths = [index.path(row) for row in range(ROWS)]

    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline() -> Any:
        encoded, _ = fn.readers.file(files=paths)
        audio, _ = fn.decoders.audio(encoded, dtype=types.FLOAT, downmix=True)
        audio = fn.preemphasis_filter(audio, preemph_coeff=0.97)
        power = fn.spectrogram(audio, nfft=512, window_length=320, window_step=160, **hann)
        mel = fn.mel_filter_bank(power, sample_rate=RATE, nfilter=64, normalize=True)
        return fn.to_decibels(mel, multiplier=np.log(10), reference=1.0, cutoff_db=math.log(1e-20))

    kind = LogMel(
        n_fft=512,
        win_length=320,
        hop_length=160,
        n_mels=64,
        log="natural",
        floor=1e-20,
        preemphasis=0.97,
    )
    theirs = pipeline()
    for found in read_here(audio_pipeline, index, features=kind, batch_size=1).values():
        (expected,) = theirs.run()
        expected, ours = np.array(expected[0])[:, 1:], found["features"][0, :, 1:]
        std = expected.std(axis=1, keepdims=True)
        differences = np.abs(ours - expected) / std
        assert differences.mean() < (0.02 if is_own_window else 1e-4)


def test_each_channel_has_features(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", sound(4000, 2))
    write(tmp_path / "b.wav", sound(4000, 2)[:, 1])
    index = Index.scan(tmp_path)
    both = features_of(index.select([0]), 0, features="log_mel", channels=2)
    assert both.shape[0] == 2
    alone = features_of(index.select([1]), 0, features="log_mel")
    np.testing.assert_allclose(both[1], alone[0], atol=1e-4)


def test_top_db_is_below_the_loudest_of_all_channels(tmp_path: Path) -> None:
    """As in librosa, whose maximum is that of the array."""
    write(tmp_path / "a.wav", sound(4000, 2) * [1, 1e-3], subtype="FLOAT")
    index = Index.scan(tmp_path)
    whole, cut = (
        features_of(index, 0, features=LogMel(top_db=top_db), channels=2) for top_db in (None, 30)
    )
    np.testing.assert_allclose(cut, np.maximum(whole, whole.max() - 30), atol=1e-4)


@pytest.mark.parametrize("center", [True, False])
def test_recordings_shorter_than_a_window_have_one_frame(tmp_path: Path, center: bool) -> None:
    for frames in (1, 2, 100):
        write(tmp_path / f"{frames:03}.wav", sound(frames))
    index = Index.scan(tmp_path)
    for sample in read_here(audio_pipeline, index, features=Mfcc(center=center)).values():
        assert sample["features"].shape == (1, 13, 1)
        assert sample["length"] == 1
        assert np.isfinite(sample["features"]).all()


@pytest.mark.parametrize(
    ("kind", "silence"),
    [
        (Spectrogram(), 0),
        (LogMel(), -100),
        (LogMel(power=1), -200),
        (LogMel(floor=1e-5), -50),
        (LogMel(log="natural"), math.log(2**-24)),
        (LogMel(log="natural", floor=1e-3), math.log(1e-3)),
        (LogMel(normalize="feature"), 0),
        (LogMel(normalize="all"), 0),
        (LogMel(log="natural", normalize="feature"), 0),
        (Mfcc(), 0),
        (Mfcc(normalize="feature"), 0),
    ],
    ids=str,
)
def test_padding_of_features_is_silence(index: Index, kind: Spectrogram, silence: float) -> None:
    """Of normalised features it is their mean."""
    padded = 0
    for sample in read_here(audio_pipeline, index, features=kind, batch_size=ROWS).values():
        rest = sample["features"][0, :, int(sample["length"]) :]
        np.testing.assert_allclose(rest, silence, atol=1e-4)
        padded += rest.size
    assert padded


# ---- Augmentations -------------------------------------------------------------------------------


def samples_of(index: Index, **options: Any) -> list[Any]:
    found = read_here(audio_pipeline, index, duration=0.2, **options)
    return [sample["audio"][0] for sample in found.values()]


def test_gain(index: Index) -> None:
    plain, changed = samples_of(index), samples_of(index, augment=(Gain((-12, 6)),))
    factors = [new.std() / old.std() for old, new in zip(plain, changed, strict=True)]
    assert len({round(float(factor), 4) for factor in factors}) == ROWS
    for factor, old, new in zip(factors, plain, changed, strict=True):
        assert 10 ** (-12 / 20) <= factor <= 10 ** (6 / 20)
        np.testing.assert_allclose(new, old * factor, rtol=1e-4, atol=1e-6)


def test_noise_is_as_far_below_the_recording_as_asked(index: Index) -> None:
    plain, changed = samples_of(index), samples_of(index, augment=(WhiteNoise((10, 10)),))
    for old, new in zip(plain, changed, strict=True):
        snr = 10 * np.log10((old**2).mean() / ((new - old) ** 2).mean())
        assert abs(snr - 10) < 0.6  # of 3200 samples


def check_noise(added: Any, noise: Any) -> None:
    """Check that a segment is a factor times a part of a recording that is repeated."""
    noise = np.tile(noise, 1 + -(-len(added) // len(noise)))
    spectrum = np.fft.rfft(noise).conj() * np.fft.rfft(added, len(noise))
    at = (-int(np.abs(np.fft.irfft(spectrum, len(noise))).argmax())) % len(noise)
    part = np.roll(noise, -at)[: len(added)]
    factor = (added @ part) / (part @ part)
    np.testing.assert_allclose(added, factor * part, atol=3e-6)


@pytest.mark.parametrize("frames", [16000, 3200, 777])
def test_recorded_noise_is_a_part_of_a_recording(index: Index, tmp_path: Path, frames: int) -> None:
    noise = sound(frames, seed=50)[:, 0]
    write(tmp_path / "noise.wav", noise, subtype="FLOAT")
    plain = samples_of(index)
    changed = samples_of(index, augment=(RecordedNoise(str(tmp_path), (12, 12)),))
    starts = set()
    for old, new in zip(plain, changed, strict=True):
        added = new - old
        assert 10 * np.log10((old**2).mean() / (added**2).mean()) == pytest.approx(12, abs=1e-3)
        check_noise(added, noise)
        starts.add(round(float(added[0] / added.std()), 5))
    assert len(starts) > 1 or frames <= 3200


def test_zeros_behind_a_short_recording_get_no_recorded_noise(index: Index, tmp_path: Path) -> None:
    """Its level counts only the samples that the recording has."""
    write(tmp_path / "noise.wav", sound(4000, seed=50), subtype="FLOAT")
    noise = RecordedNoise(str(tmp_path), (12, 12))
    options: dict[str, Any] = {"duration": 0.5, "short": "pad"}
    plain = read_here(audio_pipeline, index, **options)
    changed = read_here(audio_pipeline, index, augment=(noise,), **options)
    for row, frames in enumerate(LENGTHS):
        old, new = (one[row]["audio"][0] for one in (plain, changed))
        assert changed[row]["length"] == min(frames, 8000)
        assert not new[frames:].any()
        powers = [(one[:frames] ** 2).mean() for one in (old, new - old)]
        assert 10 * np.log10(powers[0] / powers[1]) == pytest.approx(12, abs=1e-3)


def test_levels_and_recordings_of_noise_are_drawn(index: Index, tmp_path: Path) -> None:
    for tone in (500, 1500, 2500):
        wave = np.sin(2 * np.pi * tone * np.arange(RATE) / RATE)
        write(tmp_path / f"{tone}.wav", wave)
    plain, pitches, levels, changes = samples_of(index), set(), [], 0
    for epoch in range(4):
        noise = RecordedNoise(Index.scan_audio(tmp_path), (0, 20), p=0.7)
        for old, new in zip(plain, samples_of(index, augment=(noise,), epoch=epoch), strict=True):
            if np.array_equal(old, new):
                continue
            changes += 1
            added = new - old
            pitches.add(round(int(np.abs(np.fft.rfft(added)).argmax()) * RATE / len(added)))
            levels.append(10 * np.log10((old**2).mean() / (added**2).mean()))
    assert pitches == {500, 1500, 2500}
    assert 4 * ROWS * 0.4 < changes < 4 * ROWS
    assert 0 <= min(levels) < 6
    assert 14 < max(levels) <= 20.001


def test_silent_noise_changes_nothing(index: Index, tmp_path: Path) -> None:
    write(tmp_path / "noise.wav", np.zeros(5000))
    for old, new in zip(
        samples_of(index), samples_of(index, augment=(RecordedNoise(tmp_path),)), strict=True
    ):
        np.testing.assert_array_equal(old, new)


def test_noise_that_cannot_be_read_is_named(index: Index, tmp_path: Path) -> None:
    noise = RecordedNoise(Index.from_paths([str(tmp_path / "missing.wav")]))
    with (
        new_loader(audio_pipeline, index, duration=0.1, augment=(noise,)) as loader,
        pytest.raises(ReadError, match=r"noise.*missing\.wav"),
    ):
        list(loader)


def test_recorded_noise_is_for_recordings(npy_index: Index, index: Index, noises: Path) -> None:
    with pytest.raises(ValueError, match=r"RecordedNoise.*audio_pipeline"):
        npy_pipeline(npy_index, batch_size=1, augment=(RecordedNoise(noises),))
    with pytest.raises(ValueError, match="RecordedNoise once"):
        audio_pipeline(index, batch_size=1, augment=(RecordedNoise(noises),) * 2)
    with pytest.raises(FileNotFoundError):
        RecordedNoise("/nowhere")
    with pytest.raises(TypeError, match="noises"):
        RecordedNoise(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("axis", [0, 1])
def test_spec_augment_overwrites_whole_bands_and_times(index: Index, axis: int) -> None:
    widths = {0: {"time_masks": 0, "freq_masks": 1, "freq_width": 9}}
    widths[1] = {"freq_masks": 0, "time_masks": 1, "time_width": 7}
    masks = SpecAugment(value=7.0, **widths[axis])
    found: list[int] = []
    for epoch in range(6):
        for sample in read_here(
            audio_pipeline, index, duration=0.2, features="log_mel", augment=(masks,), epoch=epoch
        ).values():
            is_masked = sample["features"][0] == 7
            lines = is_masked.all(axis=1 - axis)
            assert is_masked.any(axis=1 - axis).tolist() == lines.tolist()
            (where,) = lines.nonzero()
            assert len(where) == 0 or len(where) == where[-1] - where[0] + 1
            found.append(len(where))
    most = {0: 9, 1: 7}[axis]
    assert set(found) >= {*range(1, most)}
    assert max(found) <= most


# ---- Elsewhere -----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"duration": 0.3, "short": "pad", "features": "log_mel"}])
def test_a_preprocessor_gives_the_same(index: Index, options: dict[str, Any]) -> None:
    with new_loader(audio_pipeline, index, mode="eval", batch_size=ROWS, **options) as loader:
        ((expected,),) = loader
        with loader.preprocessor() as pre:
            contents = [Path(index.path(row)).read_bytes() for row in range(ROWS)]
            found = pre(contents)
            first = pre.image(contents[0])
    name = "features" if options else "audio"
    assert torch.equal(first, found[name][0, ..., : first.shape[-1]])
    assert torch.equal(found[name], expected[name])
    assert torch.equal(found["length"], expected["length"])
    with Preprocessor(audio_pipeline, rate=RATE, features="log_mel") as pre:
        kinds = pre.outputs()
    assert kinds["features"] == (np.dtype("float32"), (1, 80, None))


def test_recordings_in_tars(index: Index, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "speech.tar", "w") as tar:
        for row in range(ROWS):
            tar.add(index.path(row), f"{row}.wav")
            text = tarfile.TarInfo(f"{row}.txt")
            text.size = 1
            tar.addfile(text, io.BytesIO(b"%d" % row))
    packed = Index.scan_audio(tmp_path / "speech.tar")
    assert packed["duration"].to_pylist() == index["duration"].to_pylist()
    options = {"duration": 0.1, "columns": ("txt",)}
    with new_loader(audio_pipeline, packed, mode="eval", batch_size=ROWS, **options) as loader:
        ((batch,),) = loader
    assert [int(text) for text in batch["txt"]] == [*range(ROWS)]
    with new_loader(audio_pipeline, index, mode="eval", batch_size=ROWS, duration=0.1) as loader:
        ((expected,),) = loader
    assert torch.equal(batch["audio"], expected["audio"])
