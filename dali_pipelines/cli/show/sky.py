"""Position on the sky of what a picture shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from readers.contract import Row


def sky_position(file: Row, matrix: torch.Tensor, shape: Sequence[int]) -> str:
    """Return the sky coordinates of the middle of a sample, such as ``RA 150.1 DEC +2.2 deg``.

    Empty if the file has none. `matrix`, shape (2, 3), leads from pixels (x, y) of the sample, of
    `shape` (..., height, width), to those of the file's image.
    """
    import numpy as np

    from readers.index.catalogue.headers import image_facts

    image = file.path, -1 if file.hdu is None else file.hdu
    (facts,) = image_facts([image], with_wcs=True, places=file.places)
    if isinstance(facts, str) or facts.wcs is None:
        return ""
    *_, height, width = shape
    place = matrix.numpy() @ ((width - 1) / 2, (height - 1) / 2, 1)
    (world,) = facts.wcs.all_pix2world(place[None], 0)
    if not np.isfinite(world).all():
        return ""
    axes = facts.wcs.wcs
    longitude, latitude = world[axes.lng], world[axes.lat]
    # wcslib has made degrees of all units.
    return f"{axes.lngtyp.strip()} {longitude:.5f} {axes.lattyp.strip()} {latitude:+.5f} deg"
