"""Decode files through the DALI pipeline and through astropy or Pillow; say whether they agree.

    python scripts/verify.py archive/ --window 100,200,512,512 --json agreement.json

FITS files are compared with astropy, and all whose suffix is that of an encoded image (.jpg, .png,
...) with Pillow. Prints a line a file, FITS first: path, codec (RICE_1, ..., or plain; JPEG, ...),
shape and dtype as astropy or Pillow gives them, the largest difference between the pipeline's
float32 and their values as float32, and

    OK        all pixels are equal, NaN to NaN; of JPEG, WebP and the like within 2 grey levels
    DIFFERS   some are not; or only one of the two can read the file
    REJECTED  neither can read it, or the window does not lie in its image; the reason follows

astropy only warns of a file that ends early: where the pipeline refuses such a file, they agree.
Pillow is silent about damage within a JPEG: the entropy-coded data are gone through for it, and
what they do not hold together is REJECTED. Damage that only changes pixels is not seen.
The exit status is 0 if no file DIFFERS, else 1; 2 for wrong usage, 130 if interrupted.
"""

# Reader processes import this file again: what is heavy is imported in the functions.
from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import sys
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dali_pipelines.cli.errors import Refusal, command, one_line
from dali_pipelines.cli.options import Parser, hdu_name, log_errors
from dali_pipelines.cli.paths import check_output, index_of, write_file
from dali_pipelines.cli.process_pool import Crash, isolated_map

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence, Sized

    import numpy as np
    from numpy.typing import NDArray

    from dali_pipelines import Index, Loader
    from dali_pipelines.cli.verify.astropy_truth import Truth
    from dali_pipelines.cli.verify.placed import Place, PlacedReader
    from dali_pipelines.config import PipelineConfig
    from dali_pipelines.graph.decode import Decoded
    from dali_pipelines.graph.pipeline import ReaderPipeline
    from readers.contract import Row

# For each of the two decoders.
MOST_PROCESSES = 4
# Rows that readers may have begun before the first of them is delivered; more do no harm.
READ_AHEAD = 16


@dataclass(slots=True)
class Record:
    """One file: what astropy or Pillow says of it, and how the pipeline compares."""

    path: str
    hdu: int | None
    """HDU that was read, or asked for by its number; None if there is none."""
    plane: int | None = None
    """Plane that the Index names."""
    codec: str | None = None
    """None, as for all that follows, if they cannot tell."""
    shape: tuple[int, ...] | None = None
    """Of the window, or of the whole image."""
    dtype: str | None = None
    max_difference: float | None = None
    """Infinite or NaN where only one of the two is."""
    verdict: str = ""
    reason: str = ""
    """Why the verdict is not OK."""

    def line(self) -> str:
        """Give the line that is printed."""
        facts = (
            self.path,
            self.codec or "-",
            "x".join(map(str, self.shape)) if self.shape else "-",
            self.dtype or "-",
            "-" if self.max_difference is None else f"{self.max_difference:g}",
            self.verdict,
            self.reason,
        )
        return "  ".join(filter(None, facts))


@command("verify")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 if a file differs, 2 for wrong usage, 130 if interrupted."""
    log_errors()
    options = _options(argv)
    from tqdm import tqdm

    from readers.index.table import SUFFIXES
    from readers.messages import printable

    if options.json is not None:
        check_output(options.json)
    options.device = _device(options.device)
    suffixes = (*SUFFIXES["fits"], *SUFFIXES["jpeg"])
    number = options.hdu if isinstance(options.hdu, int) else None
    index = index_of(options.files, suffixes, number)
    records = []
    try:
        with (
            closing(_records(index, options)) as made,
            tqdm(total=len(index), unit=" files", disable=not sys.stderr.isatty()) as bar,
        ):
            for record in made:
                tqdm.write(printable(record.line()))
                records.append(record)
                bar.update()
    except (OSError, RuntimeError, MemoryError) as error:
        raise Refusal(f"stopped after {len(records)} files: {error}", 1) from error
    counts = Counter(record.verdict for record in records)
    words = ", ".join(f"{counts[word]} {word}" for word in ("OK", "DIFFERS", "REJECTED"))
    device = "CPU" if options.device is None else "GPU"
    print(f"{len(records)} files on the {device}: {words}", file=sys.stderr)
    if options.json is not None:
        _save(options.json, device, records)
    return 1 if counts["DIFFERS"] else 0


# ---- The command line --------------------------------------------------------------------------


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="dali-pipelines verify",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="file, folder, glob in quotes, or Index file")
    add(
        "--hdu",
        type=hdu_name,
        metavar="N|NAME",
        help="HDU of the image: number, EXTNAME, or EXTNAME,EXTVER; default: first with one",
    )
    add("--window", type=_place, metavar="Y,X,H,W", help="rows Y to Y+H-1, columns X to X+W-1")
    choices = ("auto", "gpu", "cpu")
    add("--device", choices=choices, default="auto", help="auto: the GPU, or the CPU if none")
    add("--json", metavar="OUT.json", help="write the same facts, and the versions")
    return parser.parse_args(argv)


def _place(text: str) -> Place:
    from dali_pipelines.cli.verify.placed import Place

    numbers = [int(part) if part.isdecimal() else -1 for part in text.split(",")]
    if len(numbers) != 4 or min(numbers) < 0 or min(numbers[2:]) < 1:
        raise argparse.ArgumentTypeError(
            f"expected Y,X,H,W in pixels, from 0,0,1,1 on, as 0,0,512,512; got {text!r}"
        )
    return Place(*numbers)


def _device(name: str) -> int | None:
    from dali_pipelines.runtime.devices import visible_gpus

    if name != "cpu" and visible_gpus():
        return 0
    if name == "gpu":
        raise Refusal("--device=gpu, but no GPU is visible: check nvidia-smi, or say --device=cpu")
    return None


def _save(path: str, device: str, records: Sequence[Record]) -> None:
    from dali_pipelines.cli.run.report import versions

    files = [dataclasses.asdict(record) for record in records]
    for file in files:
        if file["max_difference"] is not None and not math.isfinite(file["max_difference"]):
            file["max_difference"] = str(file["max_difference"])  # JSON has no word for it
    try:
        report = {"versions": versions(), "device": device, "files": files}
        write_file(path, json.dumps(report, indent=1) + "\n")
    except OSError as error:
        raise Refusal(f"{path} could not be written: {error}", 1) from error


# ---- The two decoders --------------------------------------------------------------------------


def _records(index: Index, options: argparse.Namespace) -> Generator[Record, None, None]:
    """Compare the FITS files, then the encoded images."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from dali_pipelines.cli.full_decode import is_image

    are_images = pa.array([is_image(path) for path in index.table["path"].to_pylist()])
    for kind, table in (
        ("fits", index.table.filter(pc.invert(are_images))),
        ("image", index.table.filter(are_images)),
    ):
        if table.num_rows:
            yield from _records_of(kind, type(index)(table), options)


def _records_of(
    kind: str, index: Index, options: argparse.Namespace
) -> Generator[Record, None, None]:
    """Compare file by file, both decoders running ahead of it."""
    from dali_pipelines.cli.verify.astropy_truth import Truth, by_astropy
    from dali_pipelines.cli.verify.pillow_truth import by_pillow

    columns = index.columns()
    rows = [columns.row(number) for number in range(len(index))]
    decoder, truth_of = ("astropy", by_astropy) if kind == "fits" else ("Pillow", by_pillow)
    hdus = [options.hdu if row.hdu is None else row.hdu for row in rows]
    tasks = (
        (row.path, hdu, options.window, row.plane) for row, hdu in zip(rows, hdus, strict=True)
    )
    with (
        closing(isolated_map(truth_of, tasks, _num_processes(rows))) as truths,
        closing(_decoded(kind, index, rows, options)) as decoded,
    ):
        for row, truth, (pixels, refusal) in zip(rows, truths, decoded, strict=True):
            if isinstance(truth, Crash):
                complaint = f"a process was killed while {decoder} read it"
                truth = Truth(row.hdu, complaint=complaint, decoder=decoder)
            yield _judge(row, truth, pixels, refusal)


def _decoded(
    kind: str, index: Index, rows: Sequence[Row], options: argparse.Namespace
) -> Generator[tuple[NDArray[np.float32] | None, str], None, None]:
    """Give what the pipeline makes of each file, or None and why it makes nothing of it."""
    from dali_pipelines.cli.verify.placed import PlacedReader
    from dali_pipelines.runtime.reader_processes import ReaderProcessError
    from readers.fits.reader import FitsReader
    from readers.jpeg.reader import JpegReader

    of_kind = FitsReader(options.hdu) if kind == "fits" else JpegReader(check_entropy=True)
    reader = PlacedReader(of_kind, options.window)
    killers: dict[int, str] = {}
    done = 0
    loader = _loader(index, reader, options, killers)
    while done < len(rows):
        try:
            with loader:
                for (batch,) in loader:
                    rejected = loader.stats.rejected.get(done)
                    done += 1
                    if rejected is None:
                        image = batch["image"][0].cpu().numpy()
                        yield image[0] if kind == "fits" else image, ""
                    else:
                        yield None, one_line(rejected.reason)
                    del batch  # what is held here cannot be reused for the next one
        except ReaderProcessError:
            found = _killers(reader, rows[done : done + READ_AHEAD])
            if not found:
                raise
            killers |= found
            state = loader.state_dict()
            loader = _loader(index, reader, options, killers)
            loader.load_state_dict(state)


def _killers(reader: PlacedReader, rows: Sequence[Row]) -> dict[int, str]:
    """Give the rows that kill the process that reads them."""
    from dali_pipelines.cli.verify.placed import try_read

    reads = isolated_map(try_read, ((reader, row) for row in rows), _num_processes(rows))
    return {
        row.number: "it kills the process that reads it"
        for row, outcome in zip(rows, reads, strict=True)
        if isinstance(outcome, Crash)
    }


def _loader(
    index: Index, reader: PlacedReader, options: argparse.Namespace, killers: dict[int, str]
) -> Loader:
    """Make a Loader that gives a batch a row, in the order of the Index."""
    from dali_pipelines import Loader
    from dali_pipelines.config import PipelineConfig
    from dali_pipelines.graph.decode import decode_fits, decode_jpeg
    from dali_pipelines.graph.pipeline import reader_pipeline
    from dali_pipelines.memory import estimate_memory

    def decode_image(arrays: Mapping[str, Any], config: PipelineConfig) -> Decoded:
        # The window is not the pipeline's, but the reader's.
        crop = None if reader.place is None else (reader.place.height, reader.place.width)
        return decode_jpeg(arrays, dataclasses.replace(config, crop=crop))

    decode = decode_fits if reader.channels == 1 else decode_image

    def factory(index: Index, **config: Any) -> ReaderPipeline:
        return reader_pipeline(index, reader, decode, PipelineConfig(**config))

    loader = Loader(
        factory,
        index,
        batch_size=1,  # images of all sizes
        num_read_processes=_num_processes(index),
        devices=[options.device],
        shard_id=0,
        num_shards=1,
        shuffle=False,
        bad_sample="skip",
        num_epochs=1,
        rejected=killers,
    )
    estimate_memory(loader.make_pipelines()).check()
    return loader


def _num_processes(rows: Sized) -> int:
    """Count the processes for one of the decoders."""
    return min(len(os.sched_getaffinity(0)), MOST_PROCESSES, len(rows))


# ---- The verdict -------------------------------------------------------------------------------


def _judge(row: Row, truth: Truth, pixels: NDArray[np.float32] | None, refusal: str) -> Record:
    """Compare what the pipeline made of a file, or why it refused it, with the other decoder's."""
    record = Record(row.path, truth.hdu, row.plane, truth.codec, truth.shape, truth.dtype)
    if pixels is None:
        if truth.complaint:
            record.verdict, record.reason = "REJECTED", refusal
        else:
            record.verdict, record.reason = (
                "DIFFERS",
                f"read by {truth.decoder}, but not here: {refusal}",
            )
    elif truth.values is None:
        record.verdict = "DIFFERS"
        record.reason = f"read here, but not by {truth.decoder}: {truth.complaint}"
    elif pixels.shape != truth.values.shape[-pixels.ndim :] or pixels.size != truth.values.size:
        record.verdict, record.reason = "DIFFERS", f"the shape here is {pixels.shape}"
    else:
        _compare(record, pixels, truth.values.reshape(pixels.shape), truth.tolerance)
    return record


def _compare(
    record: Record,
    found: NDArray[np.float32],
    expected: NDArray[np.float32],
    tolerance: float,
) -> None:
    import numpy as np

    differ = (found != expected) & ~(np.isnan(found) & np.isnan(expected))
    with np.errstate(invalid="ignore"):
        differences = np.abs(found[differ].astype(np.float64) - expected[differ])
    record.max_difference = float(differences.max(initial=0.0))
    count = len(differences) - np.count_nonzero(differences <= tolerance)
    if count == 0:
        record.verdict = "OK"
        return
    record.verdict, record.reason = "DIFFERS", f"{count} of {differ.size} pixels"
