"""The suites of bench.py, and what they are made of; helpers of the tests serve them, too."""

import sys
from pathlib import Path

# Here, as worker processes import a module of this package without its `main`.
_TESTS = str(Path(__file__).parents[1] / "tests")
if _TESTS not in sys.path:
    sys.path.append(_TESTS)
