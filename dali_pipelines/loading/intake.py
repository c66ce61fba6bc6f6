"""Accept batches from the graph: count reports, reject bad rows, trim."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from dali_pipelines.frameworks.contract import Batch, Framework
from dali_pipelines.loading.bad_samples import BadSamplePolicy, damage_of, image_names
from dali_pipelines.loading.batches import bad_slots, pixels_of, reports_of, valid_only
from dali_pipelines.loading.stats import LoaderStats
from readers.index.rows.values import RowValues


class Intake:
    """Count what the readers report, reject bad rows, and trim batches.

    Rows that pipelines must not try again are added to ``rejected`` of their settings.
    """

    def __init__(
        self,
        policy: BadSamplePolicy,
        settings: dict[str, Any],
        stats: LoaderStats,
        framework: Framework,
        values: RowValues,
    ) -> None:
        self.policy, self._stats, self._framework = policy, stats, framework
        self._values = values
        self._fills = settings["tail"] == "fill"
        self._known: dict[int, str] = settings["rejected"]
        self._images = image_names(settings.get("hdus"))
        self._shapes: dict[str, tuple[int, ...]] = {}

    def check_names(self, outputs: Collection[str]) -> None:
        """Raise ValueError if columns that are looked up have the name of an output."""
        if taken := sorted(set(self._values.names) & set(outputs)):
            raise ValueError(f"columns {taken} have the name of another output: rename them")

    def must_repeat(self, batches: list[Batch]) -> bool:
        """Reject the rows that the graph found damaged, if batches must be full of real pixels.

        If there are any, the step must be read again, with other rows in their slots.
        """
        if not self._fills:
            return False
        damaged = {
            row: self._damage(row, report.image)
            for batch in batches
            for _, row, report in bad_slots(batch, reports_of(batch))
            if report.damaged and row not in self._known
        }
        for row, reason in damaged.items():
            self.reject_for_good(row, reason)
        return bool(damaged)

    def _damage(self, row: int, image: int | None) -> str:
        """Return why a row is rejected after the graph could not decode one of its images."""
        return damage_of(image, self._images) if self._images else self.policy.damage(row, image)

    def reject_for_good(self, row: int, reason: str) -> bool:
        """Reject a row that pipelines must not try again; return False if it is known as such."""
        if row in self._known:
            return False
        self.policy.reject(row, reason)
        self._known[row] = reason
        return True

    def accept(self, batch: Batch) -> Batch:
        """Note what the readers reported, apply the bad-sample policy, trim, and look up by row."""
        self._note_reports(batch)
        batch = {name: array for name, array in batch.items() if name != "report"}
        valid = np.asarray(batch["valid"])
        count = int(valid.sum())
        if not self._fills and count < len(valid):
            batch = valid_only(batch, valid, self._framework)
        if count:
            arrays = ((name, array) for name, array in batch.items() if not isinstance(array, list))
            self._shapes = {name: array.shape[1:] for name, array in arrays}
        elif len(batch["row"]) == 0:
            # A batch without rows was made of the smallest image, and of masks of its size.
            for name, shape in self._shapes.items():
                batch[name] = batch[name].reshape((0, *shape))
        return batch | self._values.of(batch["row"].tolist())

    def count(self, batches: list[Batch]) -> None:
        """Count the samples of a step that was delivered."""
        for batch in batches:
            self._stats.samples += int(np.asarray(batch["valid"]).sum())
            self._stats.output_pixels += pixels_of(batch)

    def _note_reports(self, batch: Batch) -> None:
        reports = reports_of(batch)
        self._stats.add(reports.sum())
        blank = None
        for _, row, report in bad_slots(batch, reports):
            if report.damaged:
                report.reject(row, self._damage(row, report.image))
            if report.rejected_row is not None:
                self.policy.reject(report.rejected_row, report.reason, report.is_of_store)
            if report.is_blank:
                blank = report
        if blank is not None:
            self.policy.refuse_blank(blank)
