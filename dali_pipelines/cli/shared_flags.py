"""Flags that several commands have, each declared once: base classes of their configurations."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dali_pipelines.cli.options import at_least, hdu_name, option


@dataclass(frozen=True, kw_only=True)
class FileFlags:
    """Files to read, as positional arguments."""

    files: Sequence[str] = option(
        None, "file, folder, glob in quotes, or Index file", positional=True, nargs="+"
    )


@dataclass(frozen=True, kw_only=True)
class HduFlags:
    """Which image of a FITS file is read."""

    hdu: int | str | tuple[str, int] | None = option(
        None,
        "fits: HDU to read, its number, EXTNAME, or EXTNAME,EXTVER (default: the Index's, or the "
        "first that holds an image)",
        type=hdu_name,
        metavar="N|NAME",
    )


@dataclass(frozen=True, kw_only=True)
class DeviceFlags:
    """Device on which the graph runs."""

    device: Literal["auto", "gpu", "cpu"] = option(
        "auto",
        "auto: the GPUs, or the CPU if none is visible; gpu never falls back",
        choices=("auto", "gpu", "cpu"),
    )


@dataclass(frozen=True, kw_only=True)
class ProcessFlags:
    """Number of child processes."""

    num_processes: int = option(
        len(os.sched_getaffinity(0)), "child processes", type=at_least(1), metavar="N"
    )


@dataclass(frozen=True, kw_only=True)
class TableFlags:
    """Tables for the calibration of AIA."""

    pointing_table: str | None = option(
        None, "aia: take the pointing from this master table, CSV or ECSV", metavar="FILE"
    )
    correction_table: str | None = option(
        None, "aia: divide by the degradation in this response table", metavar="FILE"
    )


@dataclass(frozen=True, kw_only=True)
class CalibrationFlags(TableFlags):
    """The calibration of AIA and HMI in a pipeline."""

    preset: str | None = option(
        None, "aia: calibrate and stretch by this recipe, a name or a .toml file", metavar="NAME"
    )
    exposure: bool | None = option(
        None,
        "aia: divide by the exposure time (default: as the preset says, or not)",
        action=argparse.BooleanOptionalAction,
    )
    psf: tuple[int, ...] | None = option(
        None,
        "aia: deconvolve these channels, which all files must be of",
        type=int,
        nargs="+",
        metavar="ANGSTROM",
    )
