"""Tars of members that are given as bytes."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable


def packed(members: Iterable[tuple[str, bytes]], format: int = tarfile.GNU_FORMAT) -> bytes:
    """Return a tar of (name, content) each."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=format) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()
