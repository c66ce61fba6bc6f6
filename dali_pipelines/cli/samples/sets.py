"""The sample sets that `run` reads without `--data`. All of them are SYNTHETIC.

`fits_samples` makes frames that look like AIA level 1 (4096x4096 int16, RICE_1, the same header
keywords), `jpeg_samples` makes photograph-like colour images in class folders. For a reader they
are like real files (size, codec, entropy, number of header cards), and their geometry matches their
headers. But they are drawings, not observations, and say nothing about the Sun.

A set is made once, in the user's cache folder, from fixed seeds: the same versions of NumPy, Pillow
and astropy give the same bytes (between kinds of CPU, the last bit of `exp` may turn single
pixels). It appears there only when it is complete: files are written to a hidden sibling folder,
which is renamed at the end. Imports are light, because the child processes import the calling
script again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import shutil
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from dali_pipelines.cli.samples.photos import JPEG_CLASSES, save_photo
from dali_pipelines.cli.samples.sun import frame_name, save_frame
from dali_pipelines.parallel.task_map import process_map
from dali_pipelines.runtime.cgroup import whole_cores
from readers.cache.folder import cache_folder
from readers.values import check_integer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["fits_samples", "jpeg_samples"]

# Part of the folder names: raise it with any change of the contents, so that nobody keeps an old
# set.
FITS_VERSION = "aia-v3"
JPEG_VERSION = "jpeg-v1"

# Bytes of one file on disk, for the check of the free space. Measured means: 11.6 MB and 0.30 MB.
FRAME_BYTES = 11_800_000
JPEG_BYTES = 310_000

# More processes gain nothing, because the disk is the limit; each takes 450 MB of memory.
MAX_PROCESSES = 16


def fits_samples(folder: str | Path | None = None, num_frames: int = 64) -> Path:
    """Return the folder of synthetic AIA frames, made on first use.

    Parameters
    ----------
    folder : str or Path, optional
        Folder for sets, by default `cache_folder()`. The set gets its own folder in it.
    num_frames : int
        Number of files `aia_<time>_<channel>.fits`, about 11.6 MB each.

    Raises
    ------
    OSError
        If the disk has too little free space, or cannot be written.
    """
    check_integer("num_frames", num_frames, 1)
    target = Path(folder or cache_folder()) / f"{FITS_VERSION}-{num_frames}"
    files = {frame_name(number): number for number in range(num_frames)}
    return _sample_set(target, files, save_frame, FRAME_BYTES, "synthetic AIA frames")


def jpeg_samples(folder: str | Path | None = None, num_per_class: int = 24) -> Path:
    """Return the folder of synthetic photographs, `CLASS/NAME.jpg`, as `fits_samples` does.

    There are `num_per_class` images in each of the six class folders, about 0.3 MB each.
    """
    check_integer("num_per_class", num_per_class, 1)
    target = Path(folder or cache_folder()) / f"{JPEG_VERSION}-{num_per_class}"
    files = {
        f"{name}/{name}_{number:03d}.jpg": number
        for name in JPEG_CLASSES
        for number in range(num_per_class)
    }
    return _sample_set(target, files, save_photo, JPEG_BYTES, "synthetic photographs")


def _sample_set(
    target: Path,
    files: dict[str, int],
    save: Callable[[Path, int], None],
    file_bytes: int,
    what: str,
) -> Path:
    """Make the folder `target` with all `files` (name -> number), unless it exists."""
    if _is_complete(target, files):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _lock(target.with_name(f".{target.name}.lock")) as locked:
        if _is_complete(target, files):  # another process made it while this one waited
            return target
        if locked:  # no other process is at work: leftovers of a killed one
            for leftover in target.parent.glob(f".{target.name}.*.part"):
                shutil.rmtree(leftover, ignore_errors=True)
        size = len(files) * file_bytes
        _check_space(target.parent, size)
        making = f"making {len(files)} {what} in {target} (about {size / 1e6:.0f} MB)"
        print(making, file=sys.stderr)
        with TemporaryDirectory(".part", f".{target.name}.", target.parent) as part:
            made, replaced = Path(part, "made"), Path(part, "replaced")
            paths = {made / name: number for name, number in files.items()}
            for parent in {path.parent for path in paths}:
                parent.mkdir(parents=True, exist_ok=True)
            _save_all(paths, save)
            if target.exists() and not _is_complete(target, files):  # somebody deleted files
                target.replace(replaced)
            try:
                made.replace(target)
            except OSError:  # without locks, another process may have been first
                if not _is_complete(target, files):
                    raise
    return target


def _is_complete(target: Path, files: dict[str, int]) -> bool:
    return all((target / name).is_file() for name in files)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[bool]:
    """Hold the lock file `path`; yield False if the file system has no locks."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            yield False
        else:
            yield True


def _check_space(folder: Path, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise OSError(
            errno.ENOSPC,
            f"the sample set needs {needed_bytes} bytes, {free_bytes} are free. Make room, set "
            "XDG_CACHE_HOME to a larger disk, or set --data to your own files",
            str(folder),
        )


def _save_all(paths: dict[Path, int], save: Callable[[Path, int], None]) -> None:
    """Call `save(path, number)` for each of `paths` on all cores, with a progress bar."""
    from dali_pipelines.cli.progress import Bar

    num_processes = min(len(paths), whole_cores(), MAX_PROCESSES)
    with closing(process_map(save, paths.items(), num_processes)) as saved:
        for _ in Bar(saved, total=len(paths), unit="files"):
            pass
