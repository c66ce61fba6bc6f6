"""Flags of `run` for a sample set: those of a typical training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# With 4 shards of 16, an epoch of 64 frames is one step; rates are steady from 10 steps on.
SAMPLE_JOBS = {
    "fits": "--crop=1024 --window=random --flip=hv --mean=100 --std=200 --epochs=12",
    "jpeg": "--crop=512 --window=random --flip=h --mean=128 --std=64 --epochs=12",
    # Four frames of the set have bits of QUALITY that level 1.5 rejects.
    "aia": "--crop=256 --window=random --flip=hv --exposure --bad_sample=skip --epochs=2",
}
"""Flags of `run`, by its ``--pipeline``; others have no sample set."""


def sample_job(given: Mapping[str, Any]) -> list[str]:
    """Return the default flags of a run without ``--data``; given flags override them."""
    return [] if given.get("data") else SAMPLE_JOBS.get(given.get("pipeline", "fits"), "").split()
