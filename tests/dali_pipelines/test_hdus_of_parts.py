"""`hdus` and samples of several files."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dali_pipelines import Index, fits_pipeline


def test_samples_of_several_files_need_the_part_of_an_hdu() -> None:
    index = Index(pa.table({"path": ["a.fits"], "path_mask": ["b.fits"]}))
    with pytest.raises(ValueError, match=r"\(mask\), .*give Hdu\(part='mask'\)"):
        fits_pipeline(index, hdus={"image": 0}, batch_size=1)
