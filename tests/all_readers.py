"""All Readers of tests: to import this module is to import what they need."""

from __future__ import annotations

from fakes import FakeReader

from readers import (
    AiaReader,
    AudioReader,
    ChannelsReader,
    ChunkedReader,
    FitsReader,
    JpegReader,
    NpyReader,
    VideoReader,
)
from readers.chunks.filters import MODULES as OF_CHUNKS
from readers.fits.tiles.codecs import Hcompress
from readers.jpeg.reader import MODULES_TO_CUT

MODULES = (*MODULES_TO_CUT, *Hcompress.MODULES, *OF_CHUNKS, "soundfile", "av")
"""Modules that they import when they first need them."""

KINDS = (
    *(AiaReader, AudioReader, ChannelsReader, ChunkedReader, FitsReader, JpegReader, NpyReader),
    VideoReader,
)


class AnyReader(FakeReader):
    """Its module is this one, which is what the fork server asks for."""
