"""Catalogues with columns or names that are out of the ordinary."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from astropy.table import Table

from readers.index.catalogue.files import read_catalogue
from readers.index.catalogue.tables import Objects


@pytest.mark.parametrize("name", ["stars.csv", "STARS.CSV", "Stars.Txt"])
def test_the_format_follows_from_the_suffix_in_any_case(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("ra,dec\n10.5,20\n")
    assert np.array_equal(read_catalogue(str(tmp_path / name))[0]["ra"], [10.5])


@pytest.mark.parametrize("values", [np.array([1j]), np.zeros((1, 0)), np.zeros((1, 2, 2))])
def test_the_error_on_a_column_that_no_index_holds_says_what_to_do(values: np.ndarray) -> None:
    objects = Objects(Table({"flux": values}))
    with pytest.raises(TypeError, match=r"'flux' .* leave it out by columns="):
        objects.column("flux")
