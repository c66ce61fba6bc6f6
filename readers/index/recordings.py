"""Recordings in an Index: facts from their headers, and manifests of speech data sets."""

from __future__ import annotations

import csv
import glob
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from readers.audio.reader import AudioReader, SoundFacts, nonsilent_part, sound_facts
from readers.contract import Row
from readers.index import schema
from readers.index.arrow import pa, pc
from readers.index.containers.columns import value_column
from readers.index.file_facts import seconds_of, with_facts
from readers.index.paths import whole
from readers.index.scan import SUFFIXES
from readers.index.skipped import Skipped

_JSON = (".json", ".jsonl", ".ndjson", ".manifest")
"""Suffixes of JSON lines."""
_NAMES = {"audio_filepath": "path", "audio_file": "path", "offset": "start", "sentence": "text"}
"""Columns of an Index, by their names in manifests."""


def with_sound_facts(
    table: pa.Table,
    rows: Iterable[Row],
    num_threads: int,
    progress: Callable[[Iterable[Any]], Iterable[Any]],
    trim_db: float | None = None,
    verify: bool = False,
) -> pa.Table:
    """Return a table with ``rate``, ``channels``, ``duration`` and ``format`` of its recordings.

    Rows that cannot be read are left out, and the log counts them. Values in an existing column
    ``duration`` are kept: rows may be parts of recordings. With `trim_db` recordings are decoded,
    and ``start`` and ``duration`` are those of `nonsilent_part`. With `verify` they are decoded,
    too, and left out if that fails.

    Raises
    ------
    ReadError
        If no row can be read.
    """
    look = partial(_facts, trim_db=trim_db, verify=verify)
    table, found = with_facts(table, rows, look, "recordings", num_threads, progress)
    facts = [each for each, _ in found]
    duration = pa.array([one.duration for one in facts], pa.float64())
    if trim_db is not None:
        starts, durations = zip(*(part for _, part in found if part is not None), strict=True)
        table = schema.with_column(table, "start", pa.array(starts, pa.float64()))
        duration = pa.array(durations, pa.float64())
    elif "start" in table.column_names:  # without a duration, a part ends with its recording
        starts = pc.coalesce(seconds_of(table, "start"), 0.0)
        duration = pc.max_element_wise(pc.subtract(duration, starts), 0.0)
    if trim_db is None and "duration" in table.column_names:
        duration = pc.coalesce(seconds_of(table, "duration"), duration)
    for name, values in (
        ("rate", pa.array([one.rate for one in facts], pa.int32())),
        ("channels", pa.array([one.channels for one in facts], pa.int32())),
        ("duration", duration),
        ("format", pa.array([one.format for one in facts])),
    ):
        table = schema.with_column(table, name, values)
    return table


def _facts(
    row: Row, trim_db: float | None, verify: bool
) -> tuple[SoundFacts, tuple[float, float] | None]:
    """Return the facts of a recording, and start and duration of the part that is not silent."""
    facts = sound_facts(row)
    if verify:
        AudioReader(facts.rate).verify(replace(row, notes={}))
    return facts, None if trim_db is None else nonsilent_part(row, trim_db)


# ---- Manifests -----------------------------------------------------------------------------------


def is_manifest(path: str) -> bool:
    """Return whether `manifest_table` reads this, by its name or as a folder of a data set."""
    if path.endswith((".tsv", *_JSON)) or os.path.isfile(os.path.join(path, "wav.scp")):
        return True
    return os.path.isdir(path) and next(_transcripts(path), None) is not None


def manifest_table(path: str, root: str | None) -> pa.Table:
    """Return the table of a manifest, see `readers.index.table.Index.from_manifest`."""
    if os.path.isdir(path):
        is_kaldi = os.path.isfile(os.path.join(path, "wav.scp"))
        rows: Iterable[dict[str, Any]] = _kaldi(path) if is_kaldi else _librispeech(path)
        root = root or os.getcwd()
    elif path.endswith(".tsv"):
        folder = os.path.dirname(os.path.abspath(path))
        clips = os.path.join(folder, "clips")
        root = root or (clips if os.path.isdir(clips) else folder)
        rows = _tsv(path)
    elif path.endswith(_JSON):
        root = root or os.path.dirname(os.path.abspath(path))
        rows = _json_lines(path)
    else:
        raise ValueError(
            f"{path}: expected JSON lines (.json, .jsonl, .manifest), a table of Common Voice "
            "(.tsv), or a folder of Kaldi with wav.scp, or of LibriSpeech with *.trans.txt; "
            "Index.scan reads .csv"
        )
    try:
        found = list(rows)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: expected text in UTF-8 ({error}): convert it, e.g. with iconv -f latin1 "
            "-t utf-8"
        ) from None
    if not found:
        of = "wav.scp, or *.trans.txt, with " if os.path.isdir(path) else ""
        raise ValueError(f"{path}: expected {of}a row for each recording, it has none")
    return _table(path, found, root)


def _table(path: str, rows: list[dict[str, Any]], root: str) -> pa.Table:
    """Return the table of rows with a path. ``start`` is 0 in rows that have only a duration."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns: dict[str, Any] = {
        "path": schema.text_column(whole(_below(root, row["path"])) for row in rows)
    }
    for name in names:
        values = [row.get(name) for row in rows]
        if name == "path":
            continue
        times = name in ("start", "duration")
        columns[name] = pa.array(values, pa.float64()) if times else value_column(values)
    if "duration" in columns:
        known = columns.get("start", pa.nulls(len(rows), pa.float64())).to_pylist()
        both = zip(known, columns["duration"].to_pylist(), strict=True)
        starts = [0.0 if a is None and b is not None else a for a, b in both]
        columns["start"] = pa.array(starts, pa.float64())
    return pa.table(columns)


def _seconds(where: str, name: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{where}: {name} must be seconds from 0 on, got {value!r}")
    return seconds


def _below(root: str, path: str) -> str:
    path = os.path.expanduser(path)
    return path if os.path.isabs(path) or "://" in path else os.path.join(root, path)


def _json_lines(path: str) -> Iterator[dict[str, Any]]:
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(
                    f"{where}: expected a JSON object on each line ({error.msg})"
                ) from None
            if not isinstance(row, Mapping):
                raise ValueError(f"{where}: expected a JSON object, got {line.strip()[:40]!r}")
            yield _named(where, row)


def _tsv(path: str) -> Iterator[dict[str, Any]]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        for row in reader:
            where = f"{path}, line {reader.line_num}"
            if None in row or None in row.values():
                raise ValueError(f"{where}: expected {len(reader.fieldnames or ())} values")
            yield _named(where, {name: value or None for name, value in row.items()})


def _named(where: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the columns of an Index. ValueError if it names no recording."""
    named = {_NAMES.get(name, name): value for name, value in row.items()}
    if len(named) < len(row):
        raise ValueError(f"{where}: two of these names mean one column: {', '.join(row)}")
    if not isinstance(named.get("path"), str) or not named["path"]:
        raise ValueError(f"{where}: expected audio_filepath or path, it has {', '.join(row)}")
    for name in {"start", "duration"} & named.keys():
        named[name] = _seconds(where, name, named[name])
    return named


def _kaldi(folder: str) -> Iterator[dict[str, Any]]:
    """Yield the utterances of a folder of Kaldi, from wav.scp, segments, text and utt2spk."""
    paths = _texts(os.path.join(folder, "wav.scp"))
    for name, path in paths.items():
        if not path:
            raise ValueError(f"{folder}/wav.scp: {name} has no path")
        if path.endswith("|") or path.startswith("|"):
            raise ValueError(
                f"{folder}/wav.scp: {name} is the output of a command ({path[:60]}): write the "
                "output to a file, and put the path of the file there"
            )
    more = {
        column: _texts(os.path.join(folder, name))
        for name, column in (("text", "text"), ("utt2spk", "speaker"))
        if os.path.exists(os.path.join(folder, name))
    }
    segments = os.path.join(folder, "segments")
    if os.path.exists(segments):
        for utterance, rest in _pairs(segments):
            try:
                recording, begin, end = rest.split()
                start, stop = float(begin), float(end)
            except ValueError:
                raise ValueError(
                    f"{segments}: expected utterance, recording, begin and end, got "
                    f"{utterance} {rest}"
                ) from None
            if recording not in paths:
                raise ValueError(f"{segments}: recording {recording} is not in wav.scp")
            # -1 is the end of the recording in Kaldi.
            duration = None if stop == -1 else round(stop - start, 6)
            yield {
                "utterance": utterance,
                "path": paths[recording],
                "start": _seconds(f"{segments}, {utterance}", "start", start),
                "duration": _seconds(f"{segments}, {utterance}", "duration", duration),
            } | _of(more, utterance)
    else:
        for utterance, path in paths.items():
            yield {"utterance": utterance, "path": path} | _of(more, utterance)


def _transcripts(folder: str) -> Iterator[str]:
    """Yield the files of transcripts in a folder of LibriSpeech."""
    return glob.iglob(os.path.join(glob.escape(folder), "**", "*.trans.txt"), recursive=True)


def _librispeech(folder: str) -> Iterator[dict[str, Any]]:
    """Yield the utterances of a folder of LibriSpeech: recordings, with transcripts beside them."""
    skipped = Skipped()
    for path in sorted(_transcripts(folder)):
        here = os.path.dirname(path)
        names = {os.path.splitext(name)[0]: name for name in sorted(os.listdir(here))}
        for utterance, text in _texts(path).items():
            speaker, dash, _ = utterance.partition("-")
            yield {
                "utterance": utterance,
                "path": os.path.join(here, names.pop(utterance, f"{utterance}.flac")),
                "text": text,
                "speaker": speaker if dash else None,
            }
        for name in names.values():
            if name.endswith(SUFFIXES["audio"]):
                skipped.add("recordings without a transcript", os.path.join(here, name))
    skipped.log()


def _of(more: Mapping[str, Mapping[str, str]], utterance: str) -> dict[str, str | None]:
    return {column: values.get(utterance) for column, values in more.items()}


def _texts(path: str) -> dict[str, str]:
    """Return the rest of each line by its first word. ValueError for the same word twice."""
    found: dict[str, str] = {}
    for name, rest in _pairs(path):
        if name in found:
            raise ValueError(f"{path}: {name} occurs twice: each utterance needs its own name")
        found[name] = rest
    return found


def _pairs(path: str) -> Iterator[tuple[str, str]]:
    """Yield the first word and the rest of each line."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            if words := line.split(maxsplit=1):
                yield words[0], words[1].strip() if len(words) > 1 else ""
