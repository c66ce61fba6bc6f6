"""The kinds of containers, with their settings. They are sent to processes that scan containers.

Each has a name for messages, the suffixes of files to find in a folder, and `looked_for`, which
ends the message about missing images. `table` returns the table of a container. It raises
ValueError, with the path, if the container is damaged, truncated, or of another kind.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from readers.index.arrow import pa
from readers.index.containers.lmdb import lmdb_table
from readers.index.containers.recordio import recordio_table
from readers.index.containers.tar import tar_table
from readers.index.containers.tfrecord import tfrecord_table
from readers.index.scan import ALL_SUFFIXES
from readers.index.skipped import Skipped
from readers.places.contract import Place
from readers.places.opener import Places


@dataclass(frozen=True)
class Tar:
    """Tar files, see `readers.index.table.Index.from_tar`."""

    image: str | None = None
    image_suffixes: tuple[str, ...] = ALL_SUFFIXES
    name = "tar"
    suffixes = (".tar",)

    @property
    def looked_for(self) -> str:
        """Suffixes of the names of members."""
        ends = ", ".join(self.image_suffixes if self.image is None else (self.image,))
        return f"; no member ends in {ends}"

    def table(self, place: Place, places: Places, skipped: Skipped) -> pa.Table:
        """Return the table of a tar."""
        idx = _read_idx(place.name, places)
        return tar_table(place, idx, self.image_suffixes, self.image, skipped)


@dataclass(frozen=True)
class TFRecord:
    """TFRecord files, see `readers.index.table.Index.from_tfrecord`."""

    image: str = "image/encoded"
    columns: Mapping[str, str] | None = None
    name = "TFRecord"
    looked_for = ""
    suffixes = (".tfrecord", ".tfrecords", ".tfrec")

    def table(self, place: Place, places: Places, skipped: Skipped) -> pa.Table:
        """Return the table of a TFRecord file, which is read whole."""
        return tfrecord_table(place, self.image, self.columns, skipped)


@dataclass(frozen=True)
class RecordIO:
    """RecordIO files, see `readers.index.table.Index.from_recordio`."""

    name = "RecordIO"
    looked_for = ""
    suffixes = (".rec",)

    def table(self, place: Place, places: Places, skipped: Skipped) -> pa.Table:
        """Return the table of a RecordIO file."""
        idx = _read_idx(place.name, places)
        return recordio_table(place, idx and idx[1], skipped)


@dataclass(frozen=True)
class LMDB:
    """LMDB files, see `readers.index.table.Index.from_lmdb`."""

    name = "LMDB"
    looked_for = ""
    suffixes = ("data.mdb", ".lmdb")

    def table(self, place: Place, places: Places, skipped: Skipped) -> pa.Table:
        """Return the table of an LMDB file."""
        return lmdb_table(place, skipped)


Kind = Tar | TFRecord | RecordIO | LMDB


def _read_idx(path: str, places: Places) -> tuple[str, str] | None:
    """Return path and text of the index file beside a container, if there is one."""
    idx = f"{os.path.splitext(path)[0]}.idx"
    try:
        with places.at(idx) as place:
            return idx, place.read(0, place.nbytes).decode(errors="replace")
    except (FileNotFoundError, PermissionError):  # without permission to list, S3 answers 403
        return None
