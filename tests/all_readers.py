"""All Readers of tests: to import this module is to import what they need."""

from __future__ import annotations

from fakes import FakeReader

from readers import AiaReader, ChannelsReader, FitsReader, JpegReader, NpyReader

MODULES = (
    "readers.cache.loaded",
    "readers.jpeg.mcu.cut",
    "readers.fits.tiles.hcompress.stream",
)
"""What they import when they first need it."""

KINDS = (AiaReader, ChannelsReader, FitsReader, JpegReader, NpyReader)


class AnyReader(FakeReader):
    """Its module is this one, which is what the fork server asks for."""
