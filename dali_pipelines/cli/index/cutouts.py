"""Cutouts of a catalogue: the flags of ``--cutouts``, their use, and their report."""

from __future__ import annotations

import argparse
import functools
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, get_args

from dali_pipelines.cli.errors import CommandError, count, one_line, refusing
from dali_pipelines.cli.options import option
from readers.index.catalogue.cutouts import Cutouts
from readers.sampling.row_window import Outside

if TYPE_CHECKING:
    import pyarrow as pa

    from readers.index.catalogue.cutouts import SkippedObjects
    from readers.index.catalogue.tables import Objects
    from readers.places.storage import Storage

SETTINGS = ("size", "outside", "subpixel", "origin", "x", "y", "ra", "dec", "columns")
"""Flags that need ``--cutouts``; the names are those of `Cutouts`."""


def _size(text: str) -> tuple[int, ...]:
    sides = [side.strip() for side in text.split(",")]
    if len(sides) > 2 or not all(side.isdecimal() and int(side) for side in sides):
        raise argparse.ArgumentTypeError(
            f"expected pixels, as 64 or 64,48 (rows first), got {text!r}"
        )
    return tuple(map(int, sides * (3 - len(sides))))


def _columns(text: str) -> dict[str, str]:
    """Return the new name of each column to keep, from ``ra,dec,mag=MAG_AUTO``."""
    names = [part.strip().rpartition("=") for part in text.split(",")]
    found = {old.strip(): (new or old).strip() for new, _, old in names}
    if len(found) < len(names) or not all((*found, *found.values())):
        raise argparse.ArgumentTypeError(
            f"expected names of columns, each once, as ra,dec,mag=MAG_AUTO, got {text!r}"
        )
    return found


@dataclass(frozen=True, kw_only=True)
class CutoutFlags:
    """Flags of ``--cutouts``."""

    cutouts: str | None = option(
        None,
        "catalogue (CSV, ECSV, Parquet, FITS table, VOTable): make a row for each object on each "
        "image that shows it, with y and x of a window around it",
        metavar="CATALOGUE",
    )
    size: tuple[int, int] | None = option(
        None,
        "--cutouts: height and width of the windows in pixels, or one number for both",
        type=_size,
        metavar="N|H,W",
    )
    outside: Outside = option(
        Cutouts.outside,
        "--cutouts: the windows to keep at edges: with reject those wholly inside the image, with "
        "fill those that overlap it, with shift those whose object is on it; run and show follow "
        "the Index",
        choices=get_args(Outside),
    )
    subpixel: bool = option(
        Cutouts.subpixel, "--cutouts: put objects exactly in the middle, with fractions in y and x"
    )
    origin: int = option(
        Cutouts.origin,
        "--cutouts: number of the first pixel in the columns of pixels; 1 as in FITS",
        choices=(0, 1),
    )
    x: str = option(Cutouts.x, "--cutouts: column of x in pixels", metavar="COLUMN")
    y: str = option(Cutouts.y, "--cutouts: column of y in pixels", metavar="COLUMN")
    ra: str = option(
        Cutouts.ra, "--cutouts: column of right ascension, in degrees or its unit", metavar="COLUMN"
    )
    dec: str = option(
        Cutouts.dec, "--cutouts: column of declination, in degrees or its unit", metavar="COLUMN"
    )
    columns: Mapping[str, str] | None = option(
        None,
        "--cutouts: columns of the catalogue to keep (default: all); --variables: variables or "
        "attributes that become columns (default: the coordinate of --dim); NEW=OLD gives a new "
        "name",
        type=_columns,
        metavar="A,NEW=OLD,...",
    )

    @cached_property
    def settings(self) -> Cutouts | None:
        """Settings of the cutouts; None without ``--cutouts``."""
        if self.cutouts is None:
            return None
        if self.size is None:
            raise ValueError("--cutouts needs --size, the size of the windows in pixels")
        return Cutouts(**{name: getattr(self, name) for name in SETTINGS})

    @cached_property
    def objects(self) -> Objects | None:
        """The catalogue; None without ``--cutouts``."""
        if self.cutouts is None:
            return None
        from readers.index.catalogue.tables import Objects

        return Objects(self.cutouts)


def check(config: CutoutFlags) -> None:
    """Raise CommandError, before a scan, if the catalogue cannot be read or lacks columns."""
    with refusing(OSError, ValueError, TypeError, KeyError, doing="--cutouts"):
        settings, objects = config.settings, config.objects
        if settings is not None and objects is not None:
            settings.check(objects)


def cut(
    config: CutoutFlags, table: pa.Table, storage: Storage
) -> tuple[pa.Table | None, SkippedObjects | None]:
    """Return the table of the cutouts, or None if there are none, and the objects left out.

    Without ``--cutouts`` return the table itself.
    """
    if config.settings is None or config.objects is None:
        return table, None
    from dali_pipelines.cli.progress import Bar
    from readers.places.opener import Places

    progress = functools.partial(Bar, unit="images")
    try:
        return config.settings.apply(table, config.objects, progress, Places(storage))
    except (ValueError, TypeError, KeyError) as error:  # it has columns= in place of --columns
        message = re.sub(
            r"\bcolumns= (.*), as a mapping to rename them, e.g. \{'(.*)': '(.*)'\}",
            r"--columns \1, e.g. \3=\2",
            one_line(error),
        )
        raise CommandError(f"--cutouts: {message.replace('columns=', '--columns')}", 1) from error


def report(config: CutoutFlags, left_out: SkippedObjects | None) -> list[tuple[str, str]]:
    """Print how many objects are left out; return the path and the reason of each."""
    if not left_out or config.objects is None:
        return []
    print(f"--cutouts: {one_line(left_out.message())}", file=sys.stderr)
    rows = [(config.objects.name, f"catalogue row {row}: {why}") for row, why in left_out.each()]
    return [*rows, *((name, one_line(why)) for name, why in left_out.images.items())]


def told(config: CutoutFlags, cutouts: pa.Table) -> str:
    """Describe how many cutouts there are."""
    assert config.objects is not None
    from readers.index.catalogue.tables import ROW

    shown = cutouts[ROW].unique()
    return (
        f"{count(cutouts.num_rows, 'cutout')} made of them, showing {len(shown)} of "
        f"{count(len(config.objects), 'object')}"
    )
