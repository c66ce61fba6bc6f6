"""Where SpecAugment masks features, against the algorithm of its paper."""

from __future__ import annotations

import numpy as np
import pytest
from augmented import augmented
from numpy.typing import NDArray
from scipy import stats

from dali_pipelines import SpecAugment

BANDS, FRAMES, COUNT = 40, 60, 4000


def masks(one: SpecAugment, axis: int) -> NDArray[np.int64]:
    """Return start and width of the only mask along an axis, of each sample that has one."""
    found = np.array(augmented(one, [np.zeros((BANDS, FRAMES, 1), np.float32)] * COUNT))
    lines = (found[..., 0] == 1).all(axis=2 - axis)
    assert ((found[..., 0] == 1).any(axis=2 - axis) == lines).all()
    places = [line.nonzero()[0] for line in lines]
    return np.array([(place[0] if len(place) else -1, len(place)) for place in places])


@pytest.mark.parametrize("axis", [0, 1])
def test_masks_are_anywhere(axis: int) -> None:
    """The width is uniform from 0 on, and the start where the mask fits, whatever the width."""
    most, length = 10, (BANDS, FRAMES)[axis]
    one = SpecAugment(int(axis == 0), most, int(axis == 1), most, value=1)
    starts, widths = masks(one, axis).T
    assert stats.chisquare(np.bincount(widths, minlength=most + 1)).pvalue > 1e-3
    starts, widths = starts[widths > 0], widths[widths > 0]
    assert (starts + widths).max() == length
    random = np.random.default_rng(1)
    expected = np.floor(random.random(len(widths)) * (length - widths + 1))
    assert stats.ks_2samp(starts, expected).pvalue > 1e-3
    relative = (starts + 0.5) / (length - widths + 1)
    assert abs(stats.spearmanr(relative, widths).statistic) < 5 / np.sqrt(len(widths))


@pytest.mark.parametrize(("share", "most"), [(0.1, 6), (0.5, 10), (0.0, 0)])
def test_a_mask_covers_at_most_a_share_of_the_frames(share: float, most: int) -> None:
    found = masks(SpecAugment(0, 5, 1, 10, time_share=share, value=1), 1)
    assert found[:, 1].max() == most


def test_masks_are_independent_of_each_other() -> None:
    image = np.zeros((BANDS, FRAMES, 1), np.float32)
    found = np.array(augmented(SpecAugment(1, 10, 1, 10, value=1), [image] * COUNT))[..., 0] == 1
    bands, frames = found.all(axis=2), found.all(axis=1)
    both = bands.any(axis=1) & frames.any(axis=1)
    firsts = bands[both].argmax(axis=1), frames[both].argmax(axis=1)
    assert abs(stats.spearmanr(*firsts).statistic) < 5 / np.sqrt(both.sum())
    widths = bands[both].sum(axis=1), frames[both].sum(axis=1)
    assert abs(stats.spearmanr(*widths).statistic) < 5 / np.sqrt(both.sum())
