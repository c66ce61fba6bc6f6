"""Recordings: segments and whole ones equal soundfile's, features librosa's and torch's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from audio_files import sound, stored, write
from epochs import HOW, SEED, check_equal, check_pure, in_turns, new_loader
from hypothesis import example, given, settings
from read_here import read_here

from dali_pipelines import (
    Gain,
    Index,
    Loader,
    LogMel,
    Mfcc,
    ReadError,
    SpecAugment,
    Spectrogram,
    WhiteNoise,
    audio_pipeline,
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


def test_whole_recordings_come_as_a_list(index: Index) -> None:
    with new_loader(audio_pipeline, index, mode="eval", batch_size=ROWS, ragged="list") as loader:
        ((batch,),) = loader
    assert [audio.shape for audio in batch["audio"]] == [(1, frames) for frames in LENGTHS]


EVERYTHING: dict[str, Any] = {
    "duration": SEGMENT,
    "window": "random",
    "short": "pad",
    "speeds": (0.9, 1.0, 1.1),
    "features": LogMel(n_mels=20, normalize="feature"),
    "augment": (Gain((-6, 6)), WhiteNoise((10, 30)), SpecAugment(freq_width=5, time_width=5)),
}


@settings(max_examples=5)
@given(how=HOW)
@example(how={"batch_size": 2, "num_shards": 2, "num_read_processes": 1, "position": 3})
def test_samples_do_not_depend_on_how_they_are_read(index: Index, how: dict[str, int]) -> None:
    def read(**options: Any) -> Any:
        return read_here(audio_pipeline, index, **EVERYTHING, **options)

    check_pure(read, how, read(batch_size=1, seed=SEED, shuffle=True))


@pytest.mark.parametrize("options", [EVERYTHING, {}], ids=["segments", "whole"])
def test_an_epoch_is_resumed_exactly(index: Index, options: dict[str, Any]) -> None:
    whole = in_turns(audio_pipeline, index, [{"batch_size": 1}], **options)
    turns = [{"batch_size": 2}, {"batch_size": 1, "num_read_processes": 2}, {"batch_size": 1}]
    if not options:  # padding depends on the batch
        turns = [{"batch_size": 1}] * 2
    check_equal(in_turns(audio_pipeline, index, turns, **options), whole)


def test_eval_is_without_chance(index: Index) -> None:
    plain = {**EVERYTHING, "window": "center", "speeds": (), "augment": ()}
    check_equal(
        read_here(audio_pipeline, index, mode="eval", **EVERYTHING),
        read_here(audio_pipeline, index, mode="eval", **plain),
    )


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
    ("n_fft", "window", "hop"), [(512, 400, 160), (512, 512, 128), (400, 320, 99)]
)
def test_spectrograms_equal_those_of_torch(
    index: Index, center: bool, power: Any, n_fft: int, window: int, hop: int
) -> None:
    kind = Spectrogram(n_fft=n_fft, win_length=window, hop_length=hop, power=power, center=center)
    for row, found in read_here(audio_pipeline, index, features=kind, batch_size=1).items():
        samples = torch.from_numpy(stored(index.path(row))[:, 0])
        if not center:  # torch takes whole transforms, with the window in their middle
            samples = torch.nn.functional.pad(samples, [(n_fft - window) // 2] * 2)
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
