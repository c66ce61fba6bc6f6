"""Each form of the RICE_1 decoder that this CPU can run, on sound and on damaged streams.

``FUZZED_STREAMS=100000 pytest tests/dali_pipelines/kernels/fits/test_forms.py`` damages as many.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import fuzz_rice
import pytest
from cpu_forms import forms_here
from jobs import run

from dali_pipelines.kernels.vectors import FORMS, form_of

pytestmark = pytest.mark.slow

logger = logging.getLogger(__name__)

STREAMS = int(os.environ.get("FUZZED_STREAMS", 300))
PART = min(STREAMS, 5000)
"""Damaged streams of a test; a third of all streams is damaged."""
BATCHES = 3 * PART // fuzz_rice.PER_BATCH


def by_form(variables: dict[str, str], part: int) -> Any:
    """Return what `fuzz_rice` prints in a process of its own."""
    seeds = (str(number * BATCHES) for number in (part, part + 1))
    found = run(
        [sys.executable, "-m", "fuzz_rice", *seeds],
        env={**os.environ, **variables, "PYTHONPATH": str(Path(fuzz_rice.__file__).parent)},
    )
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


@pytest.mark.parametrize("part", range(STREAMS // PART))
def test_all_forms_find_the_same(part: int) -> None:
    """The pixels of astropy, or none; and in each form the same streams are refused."""
    found = [by_form(variables, part) for variables in forms_here().values()]
    assert [one["form"] for one in found] == list(forms_here())
    kinds = found[0]["damaged"]
    logger.info("%s: %d damaged streams: %s", [*forms_here()], sum(kinds.values()), kinds)
    assert sum(kinds.values()) >= PART
    assert min(kinds["same"], kinds["refused"]) > 0.1 * sum(kinds.values())
    assert kinds.get("strict", 0) < 0.01 * sum(kinds.values())
    assert [one["digest"] for one in found] == [found[0]["digest"]] * len(found)


@pytest.mark.parametrize(
    ("features", "name"),
    [
        ("+avx2,+avx512f,+avx512bw", "AVX-512"),
        ("+avx2,+avx512f,-avx512bw", "AVX2"),
        ("+neon,+sve2", "no vectors"),
        ("", "no vectors"),
    ],
)
def test_the_form_of_a_cpu(features: str, name: str) -> None:
    assert form_of(features).name == name
    assert name in {form.name for form in FORMS}
