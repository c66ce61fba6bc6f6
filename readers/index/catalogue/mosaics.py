"""Rows for several HDUs of each file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from readers.errors import ReadError
from readers.places.opener import Places
from readers.values import is_integer

if TYPE_CHECKING:
    import pyarrow as pa

    from readers.index.catalogue.naming import Images


def with_hdus(
    table: pa.Table, hdus: int | str | Sequence[int | str], places: Places
) -> tuple[pa.Table, dict[str, str]]:
    """Return a table with a row for each of these HDUs of each row, in a column ``hdu``.

    Parameters
    ----------
    table : pyarrow.Table
        Without a column ``hdu``.
    hdus : int, str or sequence of these
        Numbers, and EXTNAMEs with ``*`` for any characters.
    places : Places
        Opens the files.

    Returns
    -------
    table : pyarrow.Table
    bad : dict of str to str
        Why a file is left out, by its path: it cannot be read, or lacks one of the HDUs.

    Raises
    ------
    ValueError
        If the table has a column ``hdu``, these are no HDUs, or no file is left.
    """
    import pyarrow as pa

    from readers.fits.metadata import image_metadata

    if "hdu" in table.column_names:
        raise ValueError("hdus= is for images without a column 'hdu'; these have one")
    wanted = list(hdus) if isinstance(hdus, Sequence) and not isinstance(hdus, str) else [hdus]
    if not wanted or not all(isinstance(one, str) or is_integer(one, 0) for one in wanted):
        raise ValueError(f"hdus must be 0 or more, an EXTNAME, or several of these, got {hdus!r}")
    bad: dict[str, str] = {}
    rows, numbers = [], []
    for row, path in enumerate(table["path"].to_pylist()):
        try:
            found = image_metadata(places.at(path), hdus=wanted)
        except ReadError as error:
            bad[path] = error.reason
            continue
        rows += [row] * len(found)
        numbers += [facts["hdu"] for facts in found]
    if not rows:
        path, reason = next(iter(bad.items()))
        raise ValueError(f"none of {len(bad)} files has such HDUs, the first: {path}: {reason}")
    return table.take(pa.array(rows)).add_column(1, "hdu", pa.array(numbers, pa.int64())), bad


def not_searched(images: Images) -> str:
    """Return a hint if the first file has images beside the one that was searched; else ''."""
    from readers.fits.metadata import ALL, image_metadata

    path, hdu = images.images[0]
    if hdu >= 0:
        return ""
    try:
        numbers = [str(facts["hdu"]) for facts in image_metadata(images.places.at(path), hdu=ALL)]
    except ReadError:  # as the image itself, which is told
        return ""
    if len(numbers) == 1:
        return ""
    return (
        f"of each file only the first image was searched, and {path} has images in HDUs "
        f"{', '.join(numbers)}: hdus= searches others, by numbers or EXTNAMEs"
    )
