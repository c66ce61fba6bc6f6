"""Batches of a Loader: a dict of tensors for each device."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from readers.worker.read_report import ReadReport

Batch = dict[str, torch.Tensor]


def next_batch(iterator: Iterator[list[Batch]]) -> Batch:
    """Return the next batch of a DALIGenericIterator; ValueError if its images differ in size."""
    try:
        return next(iterator)[0]
    except RuntimeError as error:
        if "representable as a tensor" in str(error) or "uniform" in str(error):
            raise ValueError(
                "the images of one batch differ in size: give crop or resize, or leave images of "
                "other sizes out of the Index; what a transform returns must be of one size, too"
            ) from error
        raise


def reported(batch: Batch) -> Iterator[tuple[int, ReadReport]]:
    """Yield the row and the report of each slot."""
    reports = ReadReport.unpack(batch["report"].numpy())
    return zip(batch["row"].tolist(), reports, strict=True)


def valid_only(batch: Batch) -> Batch:
    """Return the batch without the slots that are not valid."""
    valid = batch["valid"]
    count = int(valid.sum())
    if bool(valid[:count].all()):  # only the end is left out: views, no copies
        return {name: tensor[:count] for name, tensor in batch.items()}
    slots = valid.nonzero()[:, 0]
    return {name: tensor[slots.to(tensor.device)] for name, tensor in batch.items()}
