from __future__ import annotations

import pickle
from typing import Any

import pytest

from readers import ReadError

TEXTS = [
    ({"hdu": 1, "row": 17}, "/d/a.fits[1] (row 17): NAXIS is 3"),
    ({"row": 0}, "/d/a.fits (row 0): NAXIS is 3"),
    ({"hdu": 0}, "/d/a.fits[0]: NAXIS is 3"),
    ({}, "/d/a.fits: NAXIS is 3"),
]


@pytest.mark.parametrize(("place", "text"), TEXTS)
def test_text(place: Any, text: str) -> None:
    error = ReadError("/d/a.fits", "NAXIS is 3", **place)
    assert str(error) == text
    assert isinstance(error, OSError)


@pytest.mark.parametrize("place", [{"hdu": 1, "row": 17}, {}])
def test_pickles(place: Any) -> None:
    error = ReadError("/d/a.fits", "NAXIS is 3", **place)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is ReadError
    assert str(again) == str(error)
    assert (again.path, again.reason) == (error.path, error.reason)
    assert (again.hdu, again.row) == (error.hdu, error.row)
