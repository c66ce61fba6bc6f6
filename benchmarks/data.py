"""What the suites read: the user's files or the sample sets, and what there is to say of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from dali_pipelines import Index

Kind = Literal["fits", "jpeg"]
_SMALL_QUALITY = 93


class Settings(Protocol):
    """What the suites need of bench.py's flags."""

    @property
    def data(self) -> str | None:
        """Folder, glob or Index file; None for the sample sets."""
        ...

    @property
    def quick(self) -> bool:
        """Whether to do as little as possible."""
        ...

    @property
    def rounds(self) -> int:
        """Timed rounds."""
        ...

    @property
    def num_read_processes(self) -> int:
        """Reader processes, and workers of the peers."""
        ...

    @property
    def num_threads(self) -> int:
        """DALI threads."""
        ...

    @property
    def against(self) -> str:
        """Commit of an older version."""
        ...

    @property
    def correction_table(self) -> str | None:
        """Degradation for AIA; None for the table of aiapy's tests."""
        ...


@dataclass(frozen=True)
class Files:
    """The first files of an archive."""

    kind: Kind
    index: Index
    paths: list[str]
    described: str
    """How many there are, of what size, and where they lie."""


def find_files(settings: Settings, kind: Kind, most: int) -> Files:
    """Take the first files of `settings.data`, or of the sample set, at most so many."""
    from dali_pipelines import Index
    from dali_pipelines.cli.samples import sets
    from readers.index.table import SUFFIXES

    data = settings.data
    if data is None:
        data = str(sets.fits_samples() if kind == "fits" else sets.jpeg_samples())
    index = Index.scan(data, suffixes=SUFFIXES[kind])
    index = index.select(range(min(len(index), most)))
    paths = index.table["path"].to_pylist()
    sample = "synthetic " if settings.data is None else ""
    return Files(kind, index, paths, f"{len(paths)} {sample}{_described(index, paths, kind)}")


def small_photographs(settings: Settings, folder: Path, most: int) -> Files:
    """Make photographs of the size and the bits per pixel of ImageNet's, out of the sample set."""
    from PIL import Image

    from dali_pipelines import Index

    folder.mkdir()
    for path in map(Path, find_files(settings, "jpeg", most).paths):
        with Image.open(path) as photo:
            exif = photo.getexif()
            photo.thumbnail((500, 500), Image.Resampling.LANCZOS)
            if exif:  # most have none, as in ImageNet
                photo.save(folder / path.name, quality=_SMALL_QUALITY, exif=exif)
            else:
                photo.save(folder / path.name, quality=_SMALL_QUALITY)
    index = Index.scan(folder)
    paths = index.table["path"].to_pylist()
    described = f"{len(paths)} synthetic {_described(index, paths, 'jpeg')}"
    return Files("jpeg", index, paths, described)


def _described(index: Index, paths: list[str], kind: Kind) -> str:
    from dali_pipelines import FitsReader, JpegReader

    reader = FitsReader() if kind == "fits" else JpegReader()
    peek = reader.peek(index.columns().row(0), None)
    nbytes = sum(Path(path).stat().st_size for path in paths)
    each = nbytes / len(paths)
    bits = 8 * each / (peek.height * peek.width)
    return (
        f"{kind.upper()} files, the first {peek.height}x{peek.width}, {each / 1e6:.2f} MB each, "
        f"{bits:.1f} bits per pixel; all in the page cache after the comparison"
    )
