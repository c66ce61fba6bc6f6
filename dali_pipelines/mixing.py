"""MixUp and CutMix of delivered batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dali_pipelines.frameworks.contract import Array, Batch
from dali_pipelines.loading.step import Step
from readers.messages import did_you_mean
from readers.values import check_integer, check_positive, is_integer

Delivered = TypeVar("Delivered", Step, dict[str, Any])

Mix = Callable[[Array, Array, np.random.Generator], tuple[Array, float]]
"""Function of images, their partners and a random generator. It returns the mixed images, and the
share of the images (not the partners) in them."""


def mixup(
    batch: Delivered,
    num_classes: int | None = None,
    *,
    alpha: float = 1.0,
    image: str = "image",
    label: str = "label",
    key: Sequence[int] | None = None,
) -> Delivered:
    """Mix each image, and its label, with the previous image of the batch.

    Like torchvision.transforms.v2.MixUp: each image becomes ``lam * image + (1 - lam) * partner``,
    and each label, too. ``lam`` is the same for the whole batch, and is drawn from Beta(alpha,
    alpha). The partner of the first image is the last image. Samples that are not ``valid`` stay as
    they are.

    Parameters
    ----------
    batch : Step or dict
        Batches of a Loader. Images are floats of one size, shape (batch, ..., height, width), of
        PyTorch, NumPy, JAX or CuPy. Labels are integers of shape (batch,), or floats with any
        further axes.
    num_classes : int, optional
        Number of classes, for integer labels. They become one-hot, float32 of shape (batch,
        num_classes). Labels that are floats, such as probabilities or the targets of a regression,
        are mixed directly.
    alpha : float
        Parameter of the Beta distribution, above 0. Near 0 most images are hardly mixed; with 1 all
        shares are equally likely.
    image, label : str
        Names of the arrays to mix. Other arrays stay as they are.
    key : sequence of int, optional
        Integers from 0 on that determine ``lam``; required if `batch` is a dict. By default (seed,
        epoch, step) of the Step, and the first row of the batch.

    Returns
    -------
    Step or dict
        New object with all arrays of `batch`. For the same seed, epoch and step the result is the
        same in each run, also after a resume. NumPy draws ``lam``, so another version of NumPy may
        change it.

    Raises
    ------
    KeyError
        If the batch lacks an array.
    TypeError
        If images are lists or integers, labels are text, or a dict comes without a key.
    ValueError
        If a value is invalid, or if integer labels come without `num_classes`.

    Notes
    -----
    Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018.
    """
    mix = partial(_blended, alpha, image)
    return _mixed(batch, mix, 1, alpha, num_classes, image, label, key)


def cutmix(
    batch: Delivered,
    num_classes: int | None = None,
    *,
    alpha: float = 1.0,
    image: str = "image",
    label: str = "label",
    key: Sequence[int] | None = None,
) -> Delivered:
    """Paste a rectangle of the previous image of the batch into each image, and mix their labels.

    Like torchvision.transforms.v2.CutMix: the rectangle is the same for the whole batch. It has a
    random centre, and covers ``1 - lam`` of an image unless the edge cuts it off. ``lam`` is drawn
    from Beta(alpha, alpha). Labels are mixed in proportion to the area. Parameters, results and
    errors are those of `mixup`, but images may also be integers.

    Notes
    -----
    Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable
    Features", 2019.
    """
    return _mixed(batch, partial(_pasted, alpha), 2, alpha, num_classes, image, label, key)


def _mixed(
    batch: Any,
    mix: Mix,
    which: int,
    alpha: float,
    num_classes: int | None,
    image: str,
    label: str,
    key: Sequence[int] | None,
) -> Any:
    check_positive("alpha", alpha)
    if num_classes is not None:
        check_integer("num_classes", num_classes, 1)
    if key is not None and not (
        isinstance(key, Sequence) and all(is_integer(number, 0) for number in key)
    ):
        raise ValueError(
            f"key must be integers from 0 on, such as (seed, epoch, step), got {key!r}"
        )
    if not isinstance(batch, Step | Mapping):
        raise TypeError(
            f"mixup and cutmix take a Step or a dict of a Loader, got {type(batch).__name__}"
        )
    step = batch if isinstance(batch, Step) else Step([batch])
    mixed = []
    for one in step:
        own = (which, *(_key_of(step, one) if key is None else map(int, key)))
        mixed.append(_mixed_one(one, mix, own, num_classes, image, label))
    return Step(mixed, step.epoch, step.step, step.seed) if step is batch else mixed[0]


def _key_of(step: Step, batch: Batch) -> Sequence[int]:
    """Return the key of one batch of a step: its first row distinguishes devices."""
    if step.seed is None or step.epoch is None or step.step is None:
        raise TypeError(
            "a dict has no seed, epoch and step, which determine the random numbers: pass the Step "
            "that the Loader yields, or key=(seed, epoch, step)"
        )
    return (step.seed, step.epoch, step.step, *(int(row) for row in batch["row"][:1]))


def _mixed_one(
    batch: Any,
    mix: Mix,
    key: Sequence[int],
    num_classes: int | None,
    image: str,
    label: str,
) -> Batch:
    for name in (image, label):
        if name not in batch:
            raise KeyError(
                f"no array {name!r} in the batch: {did_you_mean(name, batch)}it has "
                f"{', '.join(batch)}; a label is one of the columns of the Loader"
            )
    images, labels = batch[image], batch[label]
    if isinstance(images, list):
        raise TypeError(f"{image!r} is a list of images of several sizes: set crop or resize")
    if isinstance(labels, list):
        raise TypeError(
            f"{label!r} is a list, of text or of lists of several lengths: convert it to an array "
            "of numbers"
        )
    labels = _probabilities(label, labels, num_classes)
    partners = _partners(len(images), batch.get("valid"))
    images, share = mix(images, images[partners], np.random.default_rng(key))
    return {**batch, image: images, label: _blend(labels, labels[partners], share)}


def _partners(count: int, valid: Any) -> NDArray[np.int64]:
    """Return the number of each sample's partner; an invalid sample is its own partner."""
    partners = np.arange(count)
    mixed = partners if valid is None else np.flatnonzero(np.asarray(valid))
    partners[mixed] = np.roll(mixed, 1)
    return partners


def _probabilities(name: str, labels: Array, num_classes: int | None) -> Array:
    """Return labels that can be mixed: floats as they are, integers as one-hot float32."""
    if _is_float(labels):
        return labels
    if labels.ndim != 1 or num_classes is None:
        raise ValueError(
            f"{name!r} is {labels.dtype} of shape {tuple(labels.shape)}: to mix it, set "
            "num_classes for integers of shape (batch,), or convert it to floats"
        )
    is_on_gpu = getattr(labels, "is_cuda", False)  # a check there would wait for the GPU
    if len(labels) and not is_on_gpu:
        least, most = int(labels.min()), int(labels.max())
        if not 0 <= least <= most < num_classes:
            raise ValueError(
                f"{name!r} has values from {least} to {most}, expected 0 to {num_classes - 1} as "
                f"num_classes={num_classes}"
            )
    if not hasattr(labels, "__array_namespace__"):
        import torch

        return torch.nn.functional.one_hot(labels.long(), num_classes).float()
    arrays = labels.__array_namespace__()
    return (labels[:, None] == arrays.arange(num_classes)).astype(arrays.float32)


def _is_float(array: Array) -> bool:
    return "float" in str(array.dtype)


def _blend(array: Array, other: Array, share: float) -> Array:
    """Return ``share * array + (1 - share) * other``; `other`, a copy, may be overwritten."""
    other *= 1.0 - share
    other += array * share
    return other


def _blended(
    alpha: float, name: str, images: Array, partners: Array, random: np.random.Generator
) -> tuple[Array, float]:
    if not _is_float(images):
        raise TypeError(
            f"mixup needs images of floats, but {name!r} is {images.dtype}: set dtype='float32', "
            "or convert the images first"
        )
    share = random.beta(alpha, alpha)
    return _blend(images, partners, share), share


def _pasted(
    alpha: float, images: Array, partners: Array, random: np.random.Generator
) -> tuple[Array, float]:
    height, width = images.shape[-2:]
    half = 0.5 * math.sqrt(1.0 - random.beta(alpha, alpha))
    x, y = int(random.integers(width)), int(random.integers(height))
    half_width, half_height = int(half * width), int(half * height)
    left, right = max(x - half_width, 0), min(x + half_width, width)
    top, bottom = max(y - half_height, 0), min(y + half_height, height)
    box = (..., slice(top, bottom), slice(left, right))
    share = 1.0 - (right - left) * (bottom - top) / (width * height)
    if hasattr(images, "at"):  # arrays of JAX cannot be written
        return images.at[box].set(partners[box]), share
    images = images.clone() if hasattr(images, "clone") else images.copy()
    images[box] = partners[box]
    return images, share
