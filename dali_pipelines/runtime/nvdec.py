"""NVDEC, the decoder of videos on a GPU: whether its library is installed."""

from __future__ import annotations

import ctypes
from typing import Literal

from readers.video.in_graph import GraphDecoder

_LIBRARIES = ("libnvcuvid.so.1", "libnvcuvid.so")


def graph_decoder(
    decode: Literal["readers", "graph"], device_id: int | None
) -> GraphDecoder | None:
    """Return the decoder of the graph for the setting ``decode``; None if the readers decode.

    Raises
    ------
    ValueError
        If the graph must decode on a GPU, and the library of NVDEC is missing.
    """
    if decode == "readers":
        return None
    if device_id is None:
        return "cpu"
    if not any(map(_is_installed, _LIBRARIES)):
        raise ValueError(
            "decode='graph' needs NVDEC, but libnvcuvid.so is missing: install it with the driver, "
            "in containers by NVIDIA_DRIVER_CAPABILITIES=compute,utility,video, or set "
            "decode='readers'"
        )
    return "gpu"


def _is_installed(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
