"""MixUp and CutMix of delivered batches, against torchvision's formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from dali_pipelines import Index, Loader, Step, cutmix, mixup, npy_pipeline

NUM_CLASSES = 5
BATCH, HEIGHT, WIDTH = 6, 30, 40
LABELS = np.array([0, 2, 4, 1, 3, 2])
"""No two neighbours are equal, nor the last and the first."""
MAKERS: dict[str, Callable[[Any], Any]] = {
    "torch": torch.from_numpy,
    "numpy": np.asarray,
    "jax": jnp.asarray,
}


def batch(make: Callable[[Any], Any] = torch.from_numpy, **changes: Any) -> dict[str, Any]:
    """Return a batch of noise."""
    images = np.random.default_rng(0).random((BATCH, 3, HEIGHT, WIDTH), np.float32)
    arrays: dict[str, Any] = {"image": images, "label": LABELS.astype(np.int32)}
    arrays |= {"row": np.arange(BATCH), "valid": np.ones(BATCH, bool), "flux": np.arange(6.0)}
    arrays |= changes
    kept = ("row", "valid")
    return {name: one if name in kept else make(one) for name, one in arrays.items()}


def share_of(mixed: dict[str, Any], plain: dict[str, Any]) -> float:
    """Return lam, by the labels."""
    own = np.asarray(mixed["label"])[range(BATCH), np.asarray(plain["label"])]
    assert np.ptp(own) < 1e-6
    return float(own[0])


def torchvision_labels(labels: NDArray[Any], share: float) -> NDArray[Any]:
    """``label.roll(1, 0).mul_(1.0 - lam).add_(label.mul(lam))`` of v2's _BaseMixUpCutMix."""
    one_hot = torch.nn.functional.one_hot(torch.tensor(labels).long(), NUM_CLASSES).float()
    return one_hot.roll(1, 0).mul_(1.0 - share).add_(one_hot.mul(share)).numpy()


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_mixup_is_that_of_torchvision(make: Callable[[Any], Any]) -> None:
    plain = batch(make)
    for step in range(20):
        mixed = mixup(plain, NUM_CLASSES, key=(0, 0, step))
        share = share_of(mixed, plain)
        images = torch.from_numpy(np.asarray(plain["image"]).copy())
        expected = images.roll(1, 0).mul_(1.0 - share).add_(images.mul(share))
        assert type(mixed["image"]) is type(plain["image"])
        np.testing.assert_allclose(np.asarray(mixed["image"]), expected, atol=1e-6)
        labels = torchvision_labels(np.asarray(plain["label"]), share)
        np.testing.assert_allclose(np.asarray(mixed["label"]), labels, atol=1e-6)
        assert all(mixed[name] is plain[name] for name in ("row", "valid", "flux"))
        assert np.asarray(mixed["label"]).dtype == np.float32


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_cutmix_is_that_of_torchvision(make: Callable[[Any], Any], dtype: str) -> None:
    noise = np.random.default_rng(0).random((BATCH, 3, HEIGHT, WIDTH)) * 255
    plain = batch(make, image=noise.astype(dtype))
    before = np.asarray(plain["image"]).copy()
    sizes = set()
    for step in range(30):
        mixed = cutmix(plain, NUM_CLASSES, key=(0, 0, step))
        share, images = share_of(mixed, plain), np.asarray(mixed["image"])
        assert images.dtype == dtype
        changed = np.any(images != before, axis=(0, 1))
        rows, columns = np.flatnonzero(changed.any(1)), np.flatnonzero(changed.any(0))
        assert changed.sum() == len(rows) * len(columns)
        if len(rows):
            box = (..., slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1))
            np.testing.assert_array_equal(images[box], np.roll(before, 1, 0)[box])
        # lam_adjusted = float(1.0 - (x2 - x1) * (y2 - y1) / (W * H))
        assert abs(share - (1 - changed.sum() / (WIDTH * HEIGHT))) < 1e-6
        labels = torchvision_labels(np.asarray(plain["label"]), share)
        np.testing.assert_allclose(np.asarray(mixed["label"]), labels, atol=1e-6)
        sizes.add(int(changed.sum()))
    np.testing.assert_array_equal(np.asarray(plain["image"]), before)
    assert len(sizes) > 10


def test_both_against_torchvision_itself() -> None:
    v2 = pytest.importorskip("torchvision.transforms.v2")
    plain = batch(label=LABELS)
    mixed = mixup(plain, NUM_CLASSES, key=(1,))
    share = float(mixed["label"][0, 0])
    theirs, labels = _torchvision(v2.MixUp, {"lam": share}, plain)
    torch.testing.assert_close(mixed["image"], theirs)
    torch.testing.assert_close(mixed["label"], labels)
    cut = cutmix(plain, NUM_CLASSES, key=(2,))
    rows, columns = (cut["image"] != plain["image"]).any(0).any(0).nonzero(as_tuple=True)
    box = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    params = {"box": tuple(map(int, box)), "lam_adjusted": float(cut["label"][0, 0])}
    theirs, labels = _torchvision(v2.CutMix, params, plain)
    torch.testing.assert_close(cut["image"], theirs, rtol=0, atol=0)
    torch.testing.assert_close(cut["label"], labels)


def _torchvision(kind: Any, params: dict[str, Any], plain: dict[str, Any]) -> tuple[Any, Any]:
    class Fixed(kind):
        def make_params(self, _inputs: Any) -> dict[str, Any]:
            return params

    return Fixed(num_classes=NUM_CLASSES)(plain["image"], plain["label"])


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_shares_are_of_the_beta_distribution(alpha: float) -> None:
    plain = batch(np.asarray, image=np.zeros((BATCH, 1, 1, 1), np.float32))
    shares = [
        share_of(mixup(plain, NUM_CLASSES, alpha=alpha, key=(3, 0, step)), plain)
        for step in range(800)
    ]
    assert stats.kstest(shares, stats.beta(alpha, alpha).cdf).pvalue > 1e-3


def test_areas_of_cutmix_are_those_of_torchvision() -> None:
    plain = batch(np.asarray)
    ours = [share_of(cutmix(plain, NUM_CLASSES, key=(3, 0, step)), plain) for step in range(800)]
    random = np.random.default_rng(1)
    theirs: list[float] = []
    for _ in range(3000):  # torchvision's CutMix.make_params
        r = 0.5 * math.sqrt(1.0 - random.beta(1, 1))
        r_x, r_y = int(random.integers(WIDTH)), int(random.integers(HEIGHT))
        r_w_half, r_h_half = int(r * WIDTH), int(r * HEIGHT)
        x1, y1 = max(r_x - r_w_half, 0), max(r_y - r_h_half, 0)
        x2, y2 = min(r_x + r_w_half, WIDTH), min(r_y + r_h_half, HEIGHT)
        theirs.append(1.0 - (x2 - x1) * (y2 - y1) / (WIDTH * HEIGHT))
    assert stats.ks_2samp(ours, theirs).pvalue > 1e-3


@pytest.mark.parametrize("mix", [mixup, cutmix])
def test_invalid_samples_stay_and_are_nobodys_partner(mix: Any) -> None:
    valid = np.array([True, False, True, True, False, False])
    images = np.full((BATCH, 1, HEIGHT, WIDTH), 7, np.float32) * valid[:, None, None, None]
    mixed = mix(batch(image=images, valid=valid), NUM_CLASSES, key=(0,))
    np.testing.assert_allclose(mixed["image"], images, rtol=1e-6)
    assert (mixed["label"][~torch.from_numpy(valid)].max(1).values > 1 - 1e-6).all()
    # The partner of row 2 is row 0, that of row 0 is row 3.
    assert sorted(mixed["label"][2].nonzero().flatten().tolist()) == [0, 4]
    assert sorted(mixed["label"][0].nonzero().flatten().tolist()) == [0, 1]


def test_floats_are_mixed_as_they_are() -> None:
    """Labels of a regression, and soft labels, float16 images, and names of one's own."""
    plain = batch(image=np.ones((BATCH, 3, 2, 2), np.float16), soft=np.eye(BATCH)) | {"label": 0}
    mixed = mixup(plain, label="flux", key=(0,))
    share = float(mixed["flux"][1])
    expected = np.arange(1, 6) * share + np.arange(5) * (1 - share)
    np.testing.assert_allclose(mixed["flux"][1:], expected)
    assert mixed["image"].dtype == torch.float16
    assert mixup(plain, label="soft", key=(0,))["soft"].sum(1).tolist() == pytest.approx([1] * 6)
    renamed = mixup(
        {"picture": plain["image"], "flux": plain["flux"]}, image="picture", label="flux", key=(0,)
    )
    assert torch.equal(renamed["flux"], mixed["flux"])


@pytest.fixture
def labelled(tmp_path: Path) -> Index:
    for row in range(9):
        np.save(tmp_path / f"{row}.npy", np.full((4, 4), row, np.float32))
    index = Index.scan(tmp_path)
    return index.with_column("label", np.arange(9) % NUM_CLASSES)


def steps_of(
    index: Index, state: Any = None, **settings: Any
) -> tuple[dict[tuple[int, int], tuple[Any, Any]], Any]:
    """Return mixed images and labels of two epochs, or what is left of them; and a state.

    They are by epoch and step. The state is that after the second step.
    """
    given: dict[str, Any] = {"batch_size": 3, "num_read_processes": 1, "devices": "cpu"}
    given |= {"columns": ("label",), "num_epochs": 2}
    found = {}
    with Loader(npy_pipeline, index, **{**given, **settings}) as loader:
        if state is not None:
            loader.load_state_dict(state)
        while loader.epoch < 2:
            for step in loader:
                mixed = cutmix(mixup(step, NUM_CLASSES))
                assert isinstance(mixed, Step)
                assert (mixed.epoch, mixed.step, mixed.seed) == (step.epoch, step.step, step.seed)
                place = (step.epoch, step.step)
                found[place] = mixed["image"].numpy(), mixed["label"].numpy()
                if len(found) == 2:
                    after = loader.state_dict()
    return found, after


def test_steps_are_mixed_alike_in_each_run_and_after_a_resume(labelled: Index) -> None:
    (whole, state), (other, _) = steps_of(labelled, seed=4), steps_of(labelled, seed=5)
    assert len(whole) == 6
    resumed, _ = steps_of(labelled, state)
    for place in [*whole][2:]:
        for ours, again in zip(whole[place], resumed[place], strict=True):
            np.testing.assert_array_equal(ours, again)
    shares = {labels.max() for _, labels in whole.values()}
    assert len(shares) == 6
    assert not shares & {labels.max() for _, labels in other.values()}


@pytest.mark.parametrize("mix", [mixup, cutmix])
def test_seed_epoch_step_and_first_row_each_make_another_share(mix: Any) -> None:
    def share(*, seed: int = 1, epoch: int = 2, step: int = 3, row: int = 4) -> float:
        rows = batch(row=np.arange(row, row + BATCH))
        (mixed,) = mix(Step([rows], epoch, step, seed), NUM_CLASSES)
        return share_of(mixed, rows)

    plain, names = share(), ("seed", "epoch", "step", "row")
    assert share() == plain
    assert [name for name in names if share(**{name: 9}) == plain] == []
    assert share(epoch=3, step=2) != plain


def test_devices_of_a_step_are_mixed_each_in_its_own_way(labelled: Index) -> None:
    given: dict[str, Any] = {"batch_size": 3, "columns": ("label",), "devices": ["cpu"] * 2}
    with Loader(npy_pipeline, labelled, num_read_processes=2, **given) as loader:
        step = next(iter(loader))
    mixed = mixup(step, NUM_CLASSES)
    shares = {float(one["label"].max()) for one in mixed}
    assert len(shares) == len(mixed) == 2
    again = mixup(step, NUM_CLASSES, key=(1, 2))
    shares = {float(one["label"].sort(1).values[0, -1]) for one in again}
    assert len(shares) == 1


def test_an_empty_batch() -> None:
    empty = {name: one[:0] for name, one in batch().items()}
    for mix in (mixup, cutmix):
        mixed = mix(Step([empty], 0, 1, 2), NUM_CLASSES)
        assert mixed["label"].shape == (0, NUM_CLASSES)
        assert mixed["image"].shape == (0, 3, HEIGHT, WIDTH)


WRONG: list[tuple[dict[str, Any], dict[str, Any], type[Exception], str]] = [
    ({}, {"key": None}, TypeError, r"Step.*key=\(seed, epoch, step\)"),
    ({}, {"key": "abc"}, ValueError, r"key.*\(seed, epoch, step\).*'abc'"),
    ({}, {"key": (0, -1)}, ValueError, r"key.*-1"),
    ({}, {"alpha": 0}, ValueError, "alpha.*positive.*0"),
    ({}, {"num_classes": 0}, ValueError, "num_classes.*1.*0"),
    ({}, {"num_classes": None}, ValueError, "'label'.*int32.*num_classes"),
    ({}, {"num_classes": 3}, ValueError, "'label'.*num_classes=3"),
    ({"label": np.full(BATCH, -1)}, {}, ValueError, "'label'.*-1.*num_classes"),
    ({}, {"label": "labels"}, KeyError, "'labels'.*did you mean label.*columns"),
    ({"image": np.zeros((BATCH, 1, 2, 2), np.uint8)}, {}, TypeError, "'image'.*uint8.*float32"),
    ({"label": np.zeros((BATCH, 2), int)}, {}, ValueError, r"'label'.*\(6, 2\).*num_classes"),
]


@pytest.mark.parametrize("make", [torch.from_numpy, np.asarray])
@pytest.mark.parametrize(("arrays", "options", "error", "message"), WRONG)
def test_what_makes_no_sense(
    make: Any, arrays: dict[str, Any], options: dict[str, Any], error: Any, message: str
) -> None:
    given = {"num_classes": NUM_CLASSES, "key": (0,), **options}
    with pytest.raises(error, match=message):
        mixup(batch(make, **arrays), **given)


def test_lists_cannot_be_mixed() -> None:
    for name, remedy in (("image", "crop"), ("label", "numbers")):
        with pytest.raises(TypeError, match=f"'{name}' is a list.*{remedy}"):
            cutmix({**batch(), name: [1, 2]}, NUM_CLASSES, key=(0,))
    for key in ((0,), None):
        with pytest.raises(TypeError, match=r"Step or a dict.*list"):
            cutmix([], NUM_CLASSES, key=key)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="Step"):
        mixup(Step([batch()]), NUM_CLASSES)
