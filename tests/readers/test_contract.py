import numpy as np
import pytest

from readers import Sample, SampleSpec

SPEC = SampleSpec(name="image", dtype="float32", ndim=2)


def test_a_sample_gives_its_arrays_by_name() -> None:
    array = np.zeros(3)
    sample = Sample({"image": array})
    assert sample["image"] is array
    assert sample.input_bytes == 0
    with pytest.raises(KeyError, match="other"):
        sample["other"]


@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (3, 5)])
def test_check_accepts(shape: tuple[int, int]) -> None:
    SPEC.check(np.zeros(shape, np.float32))


REFUSED = [
    (np.zeros((2, 3), np.float64), "2-D <f8"),
    (np.zeros((2, 3), ">f4"), "2-D >f4"),
    (np.zeros((2, 3), np.int32), "2-D <i4"),
    (np.zeros(3, np.float32), "1-D <f4"),
    (np.zeros((1, 2, 3), np.float32), "3-D <f4"),
]


@pytest.mark.parametrize(("array", "found"), REFUSED, ids=[found for _, found in REFUSED])
def test_check_refuses(array: np.ndarray, found: str) -> None:
    message = (
        "^array 'image' of the Sample must be 2-D float32 in native byte order, "
        rf"got {found}: fix the Reader's read\(\)$"
    )
    with pytest.raises(TypeError, match=message):
        SPEC.check(array)
