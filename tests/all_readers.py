"""All Readers of tests: to import this module is to import what they need."""

from __future__ import annotations

from typing import ClassVar

from fakes import FakeReader

from readers import AiaReader, ChannelsReader, FitsReader, JpegReader, NpyReader

KINDS = (AiaReader, ChannelsReader, FitsReader, JpegReader, NpyReader)


class AnyReader(FakeReader):
    """Its module is this one, which is what the fork server asks for."""

    preload: ClassVar[tuple[str, ...]] = JpegReader.preload
