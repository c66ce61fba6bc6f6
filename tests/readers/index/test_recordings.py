"""Facts of recordings from their headers, and manifests of speech data sets."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import soundfile
from audio_files import sound, stored, write

from readers import AudioReader, Index, ReadError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "no").mkdir()
    (tmp_path / "yes").mkdir()
    write(tmp_path / "no" / "a.wav", sound(800), 8000)
    write(tmp_path / "yes" / "b.flac", sound(3200, 2), 16000)
    write(tmp_path / "yes" / "c.ogg", sound(4410), 44100)
    return tmp_path


def test_facts_come_from_headers(folder: Path) -> None:
    index = Index.scan_audio(folder)
    assert [Path(path).name for path in index["path"].to_pylist()] == ["a.wav", "b.flac", "c.ogg"]
    assert index["rate"].to_pylist() == [8000, 16000, 44100]
    assert index["channels"].to_pylist() == [1, 2, 1]
    assert index["duration"].to_pylist() == [0.1, 0.2, 0.1]
    assert index["format"].to_pylist() == ["WAV i2", "FLAC PCM_16", "OGG VORBIS"]
    index.save(folder / "index.arrow")
    assert Index.load(folder / "index.arrow")["rate"].to_pylist() == [8000, 16000, 44100]


def test_folders_are_classes(folder: Path) -> None:
    index = Index.scan_audio(folder, class_folders=True)
    assert index.classes == ("no", "yes")
    assert index["label"].to_pylist() == [0, 1, 1]
    for other in ([folder], index):
        with pytest.raises(TypeError, match="one folder"):
            Index.scan_audio(other, class_folders=True)


def test_labels_are_those_of_the_training_files(folder: Path) -> None:
    train = Index.scan_audio(folder, class_folders=True)
    (folder / "no" / "a.wav").unlink()
    for classes in (train, train.classes):
        index = Index.scan_audio(folder, class_folders=True, classes=classes)
        assert index.classes == ("no", "yes")
        assert index["label"].to_pylist() == [1, 1]
    with pytest.raises(ValueError, match="class_folders"):
        Index.scan_audio(folder, classes=train)


def test_verified_recordings_are_whole(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = folder / "yes" / "d.flac"
    content = bytearray(write(path, sound(16000), 16000).read_bytes())
    content[len(content) // 2 : len(content) // 2 + 40] = bytes(40)
    path.write_bytes(content)
    assert len(Index.scan_audio(folder)) == 4
    with caplog.at_level(logging.WARNING):
        assert len(Index.scan_audio(folder, verify=True)) == 3
    assert "d.flac" in caplog.text
    part = Index.from_paths([path]).with_column("start", [0.0]).with_column("duration", [0.01])
    with pytest.raises(ReadError, match=r"d\.flac"):  # the part would decode
        Index.scan_audio(part, verify=True)


def test_what_cannot_be_read_is_left_out(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "no" / "z.wav").write_bytes(b"RIFF")
    with caplog.at_level(logging.WARNING):
        assert len(Index.scan_audio(folder)) == 3
    assert "z.wav" in caplog.text
    with pytest.raises(ReadError, match=r"z\.wav"):
        Index.scan_audio(folder / "no" / "z.wav")


def write_lines(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines))
    return path


class TestNemo:
    def test_rows_are_parts_of_recordings(self, folder: Path) -> None:
        rows = [
            {"audio_filepath": "no/a.wav", "duration": 0.1, "text": "no", "speaker": 3},
            {"audio_filepath": "yes/b.flac", "offset": 0.05, "duration": 0.1, "text": "yes"},
            {"audio_filepath": str(folder / "yes/c.ogg"), "text": "yes", "tags": ["x"]},
        ]
        path = write_lines(folder / "train.json", *map(json.dumps, rows), "")
        index = Index.from_manifest(path)
        names = ["no/a.wav", "yes/b.flac", "yes/c.ogg"]
        assert index["path"].to_pylist() == [str(folder / name) for name in names]
        assert index["start"].to_pylist() == [0.0, 0.05, None]
        assert index["duration"].to_pylist() == [0.1, 0.1, None]
        assert index["text"].to_pylist() == ["no", "yes", "yes"]
        assert index["speaker"].to_pylist() == [3, None, None]
        assert index["tags"].to_pylist() == [None, None, '["x"]']
        known = Index.scan_audio(index)
        assert known["duration"].to_pylist() == [0.1, 0.1, 0.1]
        assert known["start"].to_pylist() == [0.0, 0.05, None]

    def test_root_is_the_folder_of_relative_paths(self, folder: Path, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "m.jsonl", '{"audio_filepath": "a.wav"}')
        index = Index.from_manifest(path, root=folder / "no")
        assert index.path(0) == str(folder / "no" / "a.wav")

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("{", "line 2.*JSON object"),
            ("[1]", r"line 2.*JSON object.*\[1\]"),
            ('{"text": "a"}', "line 2.*audio_filepath"),
            ('{"audio_filepath": 3}', "line 2.*audio_filepath"),
            ('{"audio_filepath": "a", "path": "b"}', "line 2.*mean one column"),
            ('{"audio_filepath": "a", "duration": "long"}', "line 2.*duration.*'long'"),
            ('{"audio_filepath": "a", "duration": true}', "line 2.*duration.*True"),
            ('{"audio_filepath": "a", "offset": -1}', "line 2.*start.*-1"),
        ],
    )
    def test_wrong_lines_are_named(self, tmp_path: Path, line: str, words: str) -> None:
        path = write_lines(tmp_path / "m.json", '{"audio_filepath": "a.wav"}', line)
        with pytest.raises(ValueError, match=words):
            Index.from_manifest(path)

    def test_other_encodings_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "m.json"
        path.write_bytes('{"audio_filepath": "a.wav", "text": "h\u00e9"}'.encode("latin-1"))
        with pytest.raises(ValueError, match=r"m\.json.*UTF-8"):
            Index.from_manifest(path)

    def test_a_part_without_a_duration_reaches_to_the_end(
        self, folder: Path, tmp_path: Path
    ) -> None:
        path = folder / "yes" / "b.flac"
        line = json.dumps({"audio_filepath": str(path), "offset": 0.05, "duration": None})
        index = Index.scan_audio(Index.from_manifest(write_lines(tmp_path / "m.json", line)))
        seconds = soundfile.info(path).duration
        assert index["duration"].to_pylist() == [pytest.approx(seconds - 0.05)]
        row = index.columns(notes=AudioReader.notes).row(0)
        found = AudioReader(soundfile.info(path).samplerate).read(row, None)["image"][0]
        expected = stored(path)[round(0.05 * soundfile.info(path).samplerate) :]
        np.testing.assert_array_equal(found, expected.mean(axis=1, keepdims=True))


class TestCommonVoice:
    def test_clips_are_beside_it(self, tmp_path: Path) -> None:
        (tmp_path / "clips").mkdir()
        lines = ("client_id\tpath\tsentence\tage", 'x\ta.mp3\tHe said "no\t', "y\tb.mp3\tYes.\t30s")
        index = Index.from_manifest(write_lines(tmp_path / "train.tsv", *lines))
        assert index["path"].to_pylist() == [str(tmp_path / "clips" / f"{c}.mp3") for c in "ab"]
        assert index["text"].to_pylist() == ['He said "no', "Yes."]
        assert index["age"].to_pylist() == [None, "30s"]

    def test_wrong_lines_are_named(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "train.tsv", "path\tsentence", "a.mp3")
        with pytest.raises(ValueError, match=r"line 2.*2 values"):
            Index.from_manifest(path)


class TestKaldi:
    @pytest.fixture
    def data(self, folder: Path) -> Path:
        (data := folder / "data").mkdir()
        lines = f"r1 {folder}/no/a.wav", f"r2 {folder}/yes/b.flac"
        write_lines(data / "wav.scp", *lines)
        return data

    def test_without_segments_a_row_is_a_recording(self, data: Path, folder: Path) -> None:
        write_lines(data / "text", "r1 so no", "r2")
        index = Index.from_manifest(data)
        assert index["utterance"].to_pylist() == ["r1", "r2"]
        assert index["text"].to_pylist() == ["so no", ""]
        assert index.path(1) == str(folder / "yes" / "b.flac")
        assert "start" not in index

    def test_segments_are_parts(self, data: Path) -> None:
        write_lines(data / "segments", "u1 r2 0.05 0.15", "u2 r1 0 0.1")
        write_lines(data / "utt2spk", "u1 anna", "u2 bob")
        index = Index.from_manifest(data)
        assert index["start"].to_pylist() == [0.05, 0.0]
        assert index["duration"].to_pylist() == [0.1, 0.1]
        assert index["speaker"].to_pylist() == ["anna", "bob"]
        assert len(Index.scan_audio(index)) == 2

    def test_a_segment_to_minus_one_reaches_to_the_end(self, data: Path) -> None:
        write_lines(data / "segments", "u1 r2 0.05 -1")
        index = Index.from_manifest(data)
        assert index["start"].to_pylist() == [0.05]
        assert index["duration"].to_pylist() == [None]

    @pytest.mark.parametrize(
        ("name", "lines"),
        [("wav.scp", ("r1 a.wav", "r1 b.wav")), ("text", ("r1 so", "r1 no"))],
    )
    def test_a_name_that_comes_twice_is_refused(
        self, data: Path, name: str, lines: tuple[str, ...]
    ) -> None:
        write_lines(data / name, *lines)
        with pytest.raises(ValueError, match=f"{name}: r1 occurs twice"):
            Index.from_manifest(data)

    def test_a_recording_without_a_path_is_refused(self, data: Path) -> None:
        write_lines(data / "wav.scp", "r1")
        with pytest.raises(ValueError, match="r1 has no path"):
            Index.from_manifest(data)

    @pytest.mark.parametrize("line", ["u1 r9 0 1", "u1 r1 0", "u1 r1 a b", "u1 r1 1 0.5"])
    def test_wrong_segments_are_named(self, data: Path, line: str) -> None:
        write_lines(data / "segments", line)
        with pytest.raises(ValueError, match="segments"):
            Index.from_manifest(data)

    def test_commands_are_refused(self, data: Path) -> None:
        write_lines(data / "wav.scp", "r1 sph2pipe -f wav a.sph |")
        with pytest.raises(ValueError, match="r1 is the output of a command"):
            Index.from_manifest(data)


class TestLibriSpeech:
    @pytest.fixture
    def data(self, tmp_path: Path) -> Path:
        for chapter in ("84/121123", "174/50561"):
            (tmp_path / "dev" / chapter).mkdir(parents=True)
            name = chapter.replace("/", "-")
            names = [f"{name}-{number:04}" for number in range(2)]
            for number, utterance in enumerate(names):
                path = tmp_path / "dev" / chapter / f"{utterance}.flac"
                write(path, sound(1600 * (1 + number)), 16000)
            lines = (f"{utterance} GO ON {utterance[-1]}" for utterance in names)
            write_lines(tmp_path / "dev" / chapter / f"{name}.trans.txt", *lines)
        return tmp_path / "dev"

    def test_transcripts_are_beside_the_recordings(self, data: Path) -> None:
        index = Index.from_manifest(data)
        names = ["174-50561-0000", "174-50561-0001", "84-121123-0000", "84-121123-0001"]
        assert index["utterance"].to_pylist() == names
        assert [Path(path).stem for path in index["path"].to_pylist()] == names
        assert index["text"].to_pylist() == ["GO ON 0", "GO ON 1"] * 2
        assert index["speaker"].to_pylist() == ["174", "174", "84", "84"]
        facts = Index.scan_audio(index)
        assert facts["duration"].to_pylist() == [0.1, 0.2, 0.1, 0.2]

    def test_what_has_no_partner_is_named(
        self, data: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (data / "84" / "121123" / "84-121123-0000.flac").rename(data / "84" / "121123" / "x.flac")
        with caplog.at_level(logging.WARNING):
            index = Index.from_manifest(data)
            assert len(index) == 4
            assert "without a transcript" in caplog.text
            assert "x.flac" in caplog.text
            assert len(Index.scan_audio(index)) == 3
        assert "84-121123-0000.flac" in caplog.text


def test_other_files_are_no_manifests(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\.json.*\.tsv.*Kaldi"):
        Index.from_manifest(write_lines(tmp_path / "a.txt", ""))
    with pytest.raises(ValueError, match="none"):
        Index.from_manifest(write_lines(tmp_path / "a.json", ""))
