"""Index files of tars that NVIDIA's wds2idx writes: where each member is."""

from __future__ import annotations

from collections.abc import Sequence

from readers.index.containers.forward import ForwardReader
from readers.index.containers.tar.members import BLOCK, Member, members

_VERSION = "v1.2"
"""Older ones have no names of members."""


def listed_members(reader: ForwardReader, idx: str, content: str) -> list[Member] | None:
    """Return the members that an index file lists.

    Parameters
    ----------
    reader : ForwardReader
        The tar.
    idx : str
        Path of the index file, for messages.
    content : str
        Text of the index file.

    Returns
    -------
    list of Member or None
        None if the headers of the tar have to be read: it is of another version, or names have
        spaces, which it does not tell apart.

    Raises
    ------
    ValueError
        If it is of another tar: the headers of the first, middle and last member, and what follows
        that, are compared.
    """
    version, _, count = content.partition("\n")[0].partition(" ")
    samples = [line.split(" ") for line in content.splitlines()[1:] if line]
    if version != _VERSION or any(len(each) % 4 for each in samples):
        return None
    try:
        found = [
            Member(each[at + 3], int(each[at + 1]), int(each[at + 2]))
            for each in samples
            for at in range(0, len(each), 4)
        ]
        if len(samples) != int(count):
            raise ValueError(f"{len(samples)} samples are listed, {count} announced")
        _check(reader, found)
    except ValueError as error:
        raise ValueError(
            f"{idx}: it is stale or damaged ({error}); make it again by wds2idx, or delete it: "
            f"then the headers of {reader.place.name} are read"
        ) from error
    return found


def _check(reader: ForwardReader, listed: Sequence[Member]) -> None:
    """Raise ValueError unless some headers agree, and no file follows the last member."""
    for member in [listed[number] for number in (0, len(listed) // 2, -1)] if listed else []:
        found = next(members(reader, member.offset - BLOCK), None) if member.offset > 0 else None
        # The header of a long or special name has a part of it only.
        is_plain = member.name.isascii() and len(member.name) < 100
        if found is None or found.nbytes != member.nbytes or (is_plain and found != member):
            raise ValueError(f"{member.name!r} is not at {member.offset}")
    end = listed[-1].offset + -(-listed[-1].nbytes // BLOCK) * BLOCK if listed else 0
    for member in members(reader, end):
        if not member.name.rpartition("/")[2].startswith("."):  # hidden files are not listed
            raise ValueError(f"{member.name!r} is not listed")
