"""Answers of a model of Triton to several requests; `tests/triton_models.py` has its server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from image_files import pillow
from numpy.typing import NDArray

from dali_pipelines import Preprocessor, jpeg_pipeline
from dali_pipelines.serving.triton import answers

CONTENTS = [pillow(np.full((16, 24, 3), shade, np.uint8)) for shade in (0, 60, 120, 180)]
BAD = b"neither JPEG nor PNG"
BAD_ONE = len(CONTENTS)


@pytest.fixture(scope="module")
def preprocessor() -> Iterator[Preprocessor]:
    with Preprocessor(jpeg_pipeline, crop=8, framework="numpy", dtype="uint8") as made:
        yield made


def request(numbers: Sequence[int]) -> dict[str, NDArray[Any]]:
    """Return a request for some contents, filled up to the longest."""
    contents = [[*CONTENTS, BAD][number] for number in numbers]
    longest = max(map(len, contents))
    filled = [np.frombuffer(one.ljust(longest, b"\0"), np.uint8) for one in contents]
    lengths = np.array([[len(one)] for one in contents], np.int32)
    return {"content": np.stack(filled), "nbytes": lengths}


@given(st.lists(st.lists(st.integers(0, BAD_ONE), min_size=1, max_size=3), min_size=1, max_size=4))
def test_each_request_gets_its_own(preprocessor: Preprocessor, asked: list[list[int]]) -> None:
    """Whatever others of the same batch have asked for, and although theirs cannot be read."""
    found = answers(preprocessor, [request(numbers) for numbers in asked])
    for numbers, answer in zip(asked, found, strict=True):
        if BAD_ONE in numbers:
            assert f"content {numbers.index(BAD_ONE)}: " in answer
        else:
            assert isinstance(answer, dict)
            shades = answer["image"].reshape(len(numbers), -1)
            assert abs(shades - 60.0 * np.array(numbers)[:, None]).max() <= 2
