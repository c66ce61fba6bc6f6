"""NVDEC, the decoder of videos on a GPU: whether its library is there, and which decoder to use."""

from __future__ import annotations

import ctypes
import functools
import logging
from typing import Literal

from readers.video.in_graph import GraphDecoder

logger = logging.getLogger(__name__)

_LIBRARIES = ("libnvcuvid.so.1", "libnvcuvid.so")
_REMEDY = (
    "NVDEC cannot decode videos, because libnvcuvid.so is missing: install it with the driver, in "
    "containers by NVIDIA_DRIVER_CAPABILITIES=compute,utility,video"
)


def graph_decoder(
    decode: Literal["readers", "graph"] | None, device_id: int | None
) -> GraphDecoder | None:
    """Return the decoder of the graph by the setting ``decode``; None to decode in the readers.

    Raises
    ------
    ValueError
        If the graph must decode on a GPU, and NVDEC is missing. By default the readers then decode,
        and the log says it once.
    """
    if decode == "readers" or (decode is None and device_id is None):
        return None
    if device_id is None:
        return "cpu"
    if _has_nvdec():
        return "gpu"
    if decode == "graph":
        raise ValueError(f"decode='graph': {_REMEDY}; or set decode='readers'")
    _warn()
    return None


def _has_nvdec() -> bool:
    for name in _LIBRARIES:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


@functools.cache
def _warn() -> None:
    """Log a warning that all pipelines of a Loader would repeat."""
    logger.warning("%s. So PyAV decodes in the readers", _REMEDY)
