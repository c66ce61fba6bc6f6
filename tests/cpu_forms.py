"""The forms of the CPU's kernels that can run here, by the variables with which numba makes them.

numba compiles for one kind of CPU in a process, so another form needs another process.
"""

from __future__ import annotations

from dali_pipelines.kernels.vectors import FORM, FORMS

WITHOUT_VECTORS = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
_VARIABLES = {
    "AVX2": {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": "+avx2"},
    "no vectors": WITHOUT_VECTORS,
}
"""A CPU for which a form is made: its name and features, as LLVM calls them."""


def forms_here() -> dict[str, dict[str, str]]:
    """Return the variables of a process by the name of the form that it uses; ours is first."""
    others = [form.name for form in FORMS[FORMS.index(FORM) + 1 :]]
    return {FORM.name: {}} | {name: _VARIABLES[name] for name in others}
