"""What Hypothesis draws Stretches from."""

from __future__ import annotations

import math
from typing import get_args

from hypothesis import strategies as st

from dali_pipelines.stretch import Kind, Stretch


@st.composite
def stretches(draw: st.DrawFn) -> Stretch:
    """Return Stretches with every curve and clip."""
    kind = draw(st.sampled_from(get_args(Kind)))
    lows = {"sqrt": [0, 0.5], "log1p": [-0.9, 0]}.get(kind, [-math.inf, -3, 0])
    return Stretch(
        kind=kind,
        unit=draw(st.sampled_from([0.25, 1, 100, 8600])),
        clip=(draw(st.sampled_from(lows)), draw(st.sampled_from([1, 50, math.inf]))),
        a=draw(st.sampled_from([0.001, 0.3, 5])) if kind == "asinh" else 1,
        mean=draw(st.floats(-2, 2)),
        std=draw(st.floats(0.01, 10)),
        clip_output=draw(st.sampled_from([(-math.inf, math.inf), (-1, 1), (0, math.inf)])),
    )
