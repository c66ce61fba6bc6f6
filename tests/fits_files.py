"""FITS files for tests, written without astropy where a header must be just so."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits
from strategies import StoredImage, bitpix

from readers.contract import Sample

BLOCK = 2880


def card(key: str, value: Any) -> str:
    text = {True: "T", False: "F"}[value] if isinstance(value, bool) else repr(value).upper()
    return f"{key:<8}= {text:>20}".ljust(80)


def plain_hdu(stored: np.ndarray, cards: dict[str, Any]) -> bytes:
    """Return a primary HDU of stored values, whatever the cards say (FITS Standard 4.0, 4.4.1)."""
    axes = {f"NAXIS{n}": size for n, size in enumerate(stored.shape[::-1], 1)}
    head = {"SIMPLE": True, "BITPIX": bitpix(stored), "NAXIS": stored.ndim, **axes, **cards}
    text = "".join(card(key, value) for key, value in head.items()) + "END".ljust(80)
    header = text.encode().ljust(-(-len(text) // BLOCK) * BLOCK)
    body = stored.astype(stored.dtype.newbyteorder(">")).tobytes()
    return header + body.ljust(-(-len(body) // BLOCK) * BLOCK, b"\0")


def write(path: Path, image: StoredImage) -> None:
    """Write an image, overwriting what is there; the compressed HDU is number 1."""
    if image.compression is None:
        path.write_bytes(plain_hdu(image.stored, image.cards))
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hdu = fits.CompImageHDU(image.stored, **image.compression)
        hdu.writeto(path, overwrite=True)
        if image.cards:
            # As a table, whose header is left as it is given.
            with fits.open(path, "update", disable_image_compression=True) as hdus:
                hdus[1].header.update(image.cards)


def truth(path: str | Path, hdu: int | None = None) -> np.ndarray:
    """Return what astropy makes of an image, as float32."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        extension = () if hdu is None else (hdu,)
        # astropy would leave a file open that it cannot read.
        with open(path, "rb") as file:
            return np.asarray(fits.getdata(file, *extension)).astype(np.float32)


class DamagedTile(Exception):
    """The decoder has found damage, which the graph reports, and the Loader by a ReadError."""


def decoded(sample: Sample, planes: int | None = None) -> np.ndarray:
    """Do what the graph does with a Sample: (height, width, 1), or (planes, height, width).

    Raises DamagedTile.
    """
    from dali_pipelines.kernels.fits.image import decode_image  # numba

    out = np.full((planes or 1, *sample["shape"].shape[:2], 1), 7, np.float32)
    no_flip, no_finish = np.zeros(2, np.int32), np.array((0, 1), np.float32)
    plans, scalings = (np.split(sample[name], len(out)) for name in ("plan", "scaling"))
    for plane, plan, scaling in zip(out, plans, scalings, strict=True):
        if decode_image(plane, sample["payload"], plan, scaling, no_flip, no_finish):
            raise DamagedTile
    return out[0] if planes is None else out[..., 0]
