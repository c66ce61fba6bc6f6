"""The Makefile names tests that exist."""

from __future__ import annotations

import subprocess

from jobs import ROOT


def test_the_short_suite_exists() -> None:
    found = subprocess.run(
        ["make", "--dry-run", "test-python-3.12"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    named = [word for word in found.stdout.split() if word.startswith("tests/")]
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []
