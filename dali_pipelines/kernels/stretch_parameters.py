"""Parameters of a stretch, importable without numba."""

KIND, SCALE, LOW, HIGH, STEEPNESS, MEAN, FACTOR, FLOOR, CEILING = range(9)
"""Indices of the parameters: curve, 1/unit, clip, 1/a, mean, 1/std, clip of the output."""
NUM_PARAMETERS = 9

NONE, SQRT, LOG1P, SIGNED_LOG1P, ASINH = range(5)
"""Values of KIND, the curve."""
