"""Draw a contact sheet of what a network will see: images as the pipeline delivers them.

    dali-pipelines show archive/ -o sheet.png
    dali-pipelines show archive/ -o sheet.png --pipeline aia --preset iti --correction_table V10.txt
    dali-pipelines show archive/ -o crop.png --pipeline aia --registered_size 512 --crop 128
    dali-pipelines show photos/ -o draws.png --pipeline jpeg --crop 224 --window random --draws 6
    dali-pipelines show clips.parquet -o clips.png --pipeline video --frames 8 --stride 4 --count 5
    dali-pipelines show archive/ -o sheet.png --config configs/aia_full_disk.toml
    dali-pipelines show photo.jpg -o each.png --pipeline jpeg --augment "Erase()" --each_augment
    dali-pipelines show frame.fits -o steps.png --pipeline aia --exposure --before_after
    dali-pipelines show speech/ -o speech.png --pipeline audio --duration 2 --features log_mel

FITS images have their first row at the bottom, and SunPy's colour tables if the header names a
channel of AIA. --display is the stretch of colours, from the 1st to the 99.9th percentile of each
image, or with --same_range of all images; zscale has an interval of its own. Magnetograms are
linear, with equal limits on both sides of 0. The range under an image includes all its pixels.
Pixels without a value are grey. Masks are laid over the images in colours, and
boxes are outlined, with the names of their classes. For a file that cannot be read, the reason
takes the place of the image. A sample of several files has a picture for each, in the order of the
channels; a sequence or a clip is a row of its frames. Arrays have a picture for each variable, in
colours of its own range; their first row is on top if the coordinate of this axis decreases, as a
latitude from north to south, else at the bottom. With --window row, FITS images show the sky
position of their middle. Recordings are drawn as waveforms, or with --features as bands over time,
low ones at the bottom, one channel below the other.

Flags of `run` mean the same here, except --size: here it is the width and height of a picture on
the sheet. The size of a registered frame of AIA, --size of `run`, is --registered_size.

--config also accepts a file for `run`, recognised by keys that only `run` has, such as data. Its
data become the files, its size becomes --registered_size, and keys that do not change the pictures,
such as batch_size, mean and columns, are ignored.

--before_after shows one file after each step of its calibration. Then it shows the limb at full
resolution, and the circle on which the limb should be according to the header.

The exit status is 0; 1 if no image could be shown, 2 for wrong usage, 130 if interrupted.
"""

# Reader processes import this file again: heavy modules are imported in the functions.
from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING

from dali_pipelines.cli.errors import CommandError, command, refusing
from dali_pipelines.cli.options import config_files, parse
from dali_pipelines.cli.paths import check_outputs, check_unread, samples_of
from dali_pipelines.cli.pipeline_flags import suffixes_of
from dali_pipelines.cli.show.config import COLUMNS, ShowConfig, of_run
from readers.places.opener import Places

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from dali_pipelines import Calibration
    from dali_pipelines.cli.show.pictures import Sketch
    from dali_pipelines.cli.show.sheet import Picture
    from readers import Index


@command("show")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 if no image was shown, 2 for wrong usage, 130 if interrupted."""
    config = parse(ShowConfig, argv, __doc__, "show", translate=of_run)
    check_outputs(config, config_files(argv), output=config.output)
    from dali_pipelines.cli.progress import Bar
    from dali_pipelines.cli.show.delivered import delivered_pictures
    from dali_pipelines.cli.show.own_folders import use_writable_folders
    from dali_pipelines.cli.show.pictures import LEFT_OUT, MISSING, drawn
    from dali_pipelines.cli.show.sheet import save_sheet
    from dali_pipelines.spread_rows import spread_rows

    with refusing(OSError, ValueError):
        calibration = config.calibration
    found = samples_of(config.files, suffixes_of(config.pipeline), config.storage)
    check_unread(found.table, config.output)
    if config.before_after and (len(found) > 1 or found.parts):
        raise CommandError(f"--before_after is for one file, got {len(found)}")
    use_writable_folders()
    count = 1 if config.each_augment else config.count
    index = found.select([0] if count == 1 else spread_rows(len(found), count, seed=0))
    cells: list[Picture | Sketch] = []
    try:
        if config.before_after:
            made = _steps(index, calibration, config)
        else:
            made = delivered_pictures(index, config)
        with closing(made):
            cells.extend(Bar(made, unit="pictures"))
        pictures = drawn(cells, config.display_of_pixels, same_range=config.same_range)
        several = _pictures_of_row(index, config) * config.draws
        beside = config.draws if config.draws > 1 else COLUMNS
        rows = _rows(pictures, config.columns or several or beside)
        heading = _heading(config, calibration, index, len(found))
        save_sheet(config.output, rows, heading=heading, size=config.size)
    except (KeyError, TypeError, ValueError) as error:  # wrong settings
        raise CommandError(error) from error
    except (OSError, RuntimeError, MemoryError) as error:
        raise CommandError(f"stopped after {len(cells)} images: {error}", 1) from error
    shown = sum(picture.pixels is not None for picture in pictures)
    unread = [picture for picture in pictures if picture.pixels is None]
    remarks = [picture.remark for picture in unread]
    left_out, missing = remarks.count(LEFT_OUT), remarks.count(MISSING)
    rejected = [picture for picture in unread if picture.remark not in (LEFT_OUT, MISSING, "")]
    counts = f"{shown} {config.noun}, {len(rejected)} rejected"
    counts += f", {left_out} left out with them" * (left_out > 0)
    counts += f", {missing} missing" * (missing > 0)
    print(f"{config.output}: {counts}", file=sys.stderr)
    if rejected:
        first = rejected[0]
        print(f"the first, {first.caption[0]}: {first.remark}", file=sys.stderr)
    return 0 if shown else 1


def _pictures_of_row(index: Index, config: ShowConfig) -> int:
    """Return the number of pictures of a sample with several files, frames or variables, else 0."""
    if config.pipeline == "video":
        from dali_pipelines.factories import clip_of

        return clip_of(index, config.frames, config.stride).frames
    parts = len(index.frames.parts) if index.parts else 0
    if config.pipeline == "chunked":
        from dali_pipelines.cli.show.delivered import variable_names

        variables = len(variable_names(index, config.factory_settings())[0])
        return max(parts, 1) * variables if variables > 1 else parts
    return parts


def _rows(pictures: Sequence[Picture], columns: int) -> list[Sequence[Picture]]:
    """Lay the pictures out in rows; those with a circle get separate rows."""
    groups = [
        [picture for picture in pictures if bool(picture.circle) is with_circle]
        for with_circle in (False, True)
    ]
    return [group[i : i + columns] for group in groups for i in range(0, len(group), columns)]


def _heading(config: ShowConfig, calibration: Calibration | None, index: Index, found: int) -> str:
    """Return a heading that describes the sheet."""
    if config.before_after:
        heading = index.path(0)
    else:
        noun = "samples" if index.parts else config.noun
        heading = f"{len(index)} of {found} {noun} by the {config.pipeline} pipeline"
    flags = config.image_flags("display", "same_range")
    if calibration is None:
        return "; ".join(filter(None, (heading, flags)))
    tables = (calibration.pointing_table, calibration.correction_table)
    names = [None if table is None else table.name for table in tables]
    steps = (
        f"pointing by {names[0]}" if names[0] else "",
        f"PSF of {', '.join(map(str, calibration.psf))}" if calibration.psf else "",
        f"order {calibration.order}",
        f"degradation by {names[1]}" if names[1] else "",
        "exposure" if calibration.exposure else "",
        flags,
    )
    return "; ".join((heading, *filter(None, steps)))


def _steps(
    index: Index, calibration: Calibration | None, config: ShowConfig
) -> Generator[Picture | Sketch, None, None]:
    """Yield a picture after each step of the one file's calibration."""
    from dali_pipelines.cli.show.pictures import rejected_picture
    from dali_pipelines.cli.show.steps import step_pictures
    from readers import ReadError

    assert calibration is not None  # since the pipeline is aia
    file = index.columns().with_places(Places(config.storage)).row(0)
    try:
        yield from step_pictures(file, calibration, config.size, config.display)
    except ReadError as error:
        yield rejected_picture(file, error.reason)
