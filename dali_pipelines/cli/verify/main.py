"""Decode files by the DALI pipeline and by other libraries, and compare the values.

    dali-pipelines verify archive/ --window 100,200,512,512 --json agreement.json

FITS files are compared with astropy, files with the suffix of an encoded image (.jpg, .png, ...)
with Pillow, recordings (.wav, .flac, ...) with soundfile, and videos (.mp4, .mkv, ...) with PyAV.
Rows of Zarr stores, HDF5 and netCDF4 files, or an Index of arrays are compared with xarray. PyAV
decodes a video from its beginning, the pipeline decodes frames from their key frames. The command
prints a line for each file, FITS first, or each row of arrays: path (with its HDU, except 0), codec
(RICE_1, ..., or plain; JPEG, ...; zlib, ...; FLAC PCM_16, ...; h264, ...), shape and dtype of the
other decoder, the largest difference between the values of both as float32, and

    OK        all pixels are equal, NaN to NaN; JPEG, WebP and the like within 2 grey levels;
              all samples are equal; MP3 within 3e-7, segments of Opus within 0.002
    DIFFERS   some pixels differ, or only one of the two can read the file
    REJECTED  neither can read it, or the image does not contain the window; the reason follows

astropy only warns if a file ends early: it is REJECTED if the pipeline rejects it. If all pixels of
the image exist, the file is OK, and its line has a remark. Pillow does not report damage within a
JPEG. So its entropy-coded data are checked, too, and the file is REJECTED if they are inconsistent.
Damage that only changes pixels is not found. A recording has channels and samples: --window 0,X,1,W
is a segment. Samples of FLAC are compared with the MD5 in the header. soundfile reads the rest of a
recording that was cut off, so the file DIFFERS. All frames of a video must be equal, and shown at
equal times.

--config also accepts a file for `run`: its data are compared, as they are stored.

Many machines can compare, by --executor, or as jobs of an array with --num_shards=N --shard_id=I.

The exit status is 0; 1 if a file DIFFERS, or if all are REJECTED, since then nothing was compared;
2 for wrong usage, 130 if interrupted.
"""

# Reader processes import the calling script: heavy modules are imported in the functions.
from __future__ import annotations

import dataclasses
import importlib.util
import math
import sys
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any, get_args

from dali_pipelines.cli.errors import CommandError, command, count, refusing
from dali_pipelines.cli.executors import executor_of
from dali_pipelines.cli.options import config_files, parse
from dali_pipelines.cli.paths import check_outputs, check_unread, index_of, write_json
from dali_pipelines.cli.run_config import of_run
from dali_pipelines.cli.verify.arrays import array_rows
from dali_pipelines.cli.verify.compare import records_of, records_of_workers
from dali_pipelines.cli.verify.config import VerifyConfig
from dali_pipelines.cli.verify.videos import video_rows
from dali_pipelines.runtime.ranks import Ranks
from readers.sampling.geometry import WindowMode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor

    from dali_pipelines import Index
    from dali_pipelines.cli.verify.compare import Record

_WINDOWS_OF_RUN = [("window", mode) for mode in get_args(WindowMode)]


@command("verify")
def main(argv: Sequence[str] | None = None, *, executor: Executor | None = None) -> int:
    """Run the command; return 0, 1 if a file differs or all are rejected, 2 for wrong usage.

    With an `executor` its workers decode and compare.
    """
    config = parse(VerifyConfig, argv, __doc__, "verify", translate=_of_run)
    from readers.index.table import SUFFIXES

    report = config.json and config.own_file(config.json)
    if report is not None:
        check_outputs(config, config_files(argv), json=report)
    device = None
    if config.executor is None and executor is None:
        with refusing(ValueError):
            (device,) = Ranks().choose_devices(config.device)
    index = array_rows(config.files, config.storage)
    if index is None and config.hdu is None:
        index = video_rows(config.files)
    if index is None:
        kinds = ["fits", "jpeg", "audio"]
        if importlib.util.find_spec("av"):
            kinds.append("video")
        suffixes = [suffix for kind in kinds for suffix in SUFFIXES[kind]]
        index = index_of(config.files, suffixes, config.storage, config.hdu)
    elif config.hdu is not None:
        raise CommandError("--hdu is for FITS files, and these are arrays")
    check_unread(index.table, report)
    names = (f"{index.name(row)} {index.plane(row) or 0}" for row in range(len(index)))
    of_shard = [row for row, name in enumerate(names) if config.in_shard(name)]
    compared: list[tuple[str, Record]] = []
    if of_shard:
        with executor_of(config.executor, executor) as workers:
            compared = _compare(index.select(of_shard), config, workers, device)
    records = [record for _, record in compared]
    counts = Counter(record.verdict for record in records)
    words = ", ".join(f"{counts[word]} {word}" for word in ("OK", "DIFFERS", "REJECTED"))
    name = " and ".join(sorted({name for name, _ in compared})) or "CPU"
    cut = sum(record.verdict == "OK" and bool(record.reason) for record in records)
    words += f"; {count(cut, 'OK file')} {'ends' if cut == 1 else 'end'} early" * bool(cut)
    print(f"{len(records)} files on the {name}: {words}", file=sys.stderr)
    if report is not None:
        _save(report, name, records)
    if records and counts["REJECTED"] == len(records):
        raise CommandError("all files were rejected: nothing was compared", 1)
    return 1 if counts["DIFFERS"] else 0


def _of_run(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings of a file for `run` that matter here; its windows do not."""
    kept = of_run(VerifyConfig, settings)
    return {name: one for name, one in kept.items() if (name, one) not in _WINDOWS_OF_RUN}


def _compare(
    index: Index, config: VerifyConfig, executor: Executor | None, device: int | None
) -> list[tuple[str, Record]]:
    """Print the Records, and return them with the names of the devices."""
    from dali_pipelines.cli.progress import Bar
    from readers.messages import printable

    if executor is None:
        found = records_of(index, config, device)
    else:
        found = records_of_workers(index, config, executor)
    compared = []
    try:
        with closing(found), Bar(total=len(index), unit="files") as bar:
            for device_name, record in found:
                bar.write(printable(record.line()))
                compared.append((device_name, record))
                bar.update()
        return compared
    except BrokenPipeError:
        raise
    except (OSError, RuntimeError, MemoryError) as error:
        raise CommandError(f"stopped after {len(compared)} files: {error}", 1) from error


def _save(path: str, device: str, records: Sequence[Record]) -> None:
    from dali_pipelines.cli.environment import versions

    files = [dataclasses.asdict(record) for record in records]
    for file in files:
        if file["max_difference"] is not None and not math.isfinite(file["max_difference"]):
            file["max_difference"] = str(file["max_difference"])  # JSON has no such numbers
    report = {"versions": versions(), "device": device, "files": files}
    with refusing(OSError, status=1, doing=f"{path} could not be written"):
        write_json(path, report, indent=1)
