"""Values outside the images of `hdus`: turned floats take those of their `Hdu`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits

from dali_pipelines import Hdu, Index, Loader, fits_pipeline


@pytest.fixture
def index(tmp_path: Path) -> Index:
    pixels = np.full((40, 40), 7, np.float32)
    images = [fits.ImageHDU(pixels, name="SCI"), fits.ImageHDU(pixels + 1, name="ERR")]
    fits.HDUList([fits.PrimaryHDU(), *images]).writeto(tmp_path / "a.fits")
    return Index.scan(tmp_path)


def loader(index: Index, hdus: dict[str, Hdu], **settings: Any) -> Loader:
    one: Any = {"batch_size": 1, "num_read_processes": 1, "devices": [None]}
    return Loader(fits_pipeline, index, hdus=hdus, crop=39, **one, **settings)


@pytest.mark.parametrize(
    ("settings", "corner"),
    [({"zoom": (0.4, 0.4)}, -5), ({"zoom": (0.4, 0.4), "resize": 13}, -5), ({"mode": "eval"}, 8)],
)
def test_floats_outside_a_turned_image_have_the_value_of_their_hdu(
    index: Index, settings: dict[str, Any], corner: float
) -> None:
    hdus = {"image": Hdu("SCI"), "err": Hdu("ERR", outside=-5)}
    with loader(index, hdus, **settings) as batches:
        ((batch,),) = list(batches)
    err, image = batch["err"][0, 0], batch["image"][0, 0]
    values = err[[0, -1, err.shape[0] // 2], [0, -1, err.shape[1] // 2]]
    assert values.tolist() == pytest.approx([corner, corner, 8])
    assert image[0, 0] == pytest.approx(7 if corner == 8 else 0)


@pytest.mark.parametrize(
    ("hdus", "words"),
    [
        ({"image": Hdu("SCI", outside=5)}, "outside 'image' pixels are 0"),
        (
            {"image": Hdu("SCI"), "err": Hdu("ERR", outside=1e300)},
            r"outside=1e\+300 of 'err' is no float32",
        ),
    ],
)
def test_a_value_that_pixels_outside_cannot_have_is_an_error(
    index: Index, hdus: dict[str, Hdu], words: str
) -> None:
    with pytest.raises(ValueError, match=words), loader(index, hdus) as batches:
        batches.start()
