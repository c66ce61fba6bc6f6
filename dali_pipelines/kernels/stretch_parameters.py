"""Parameters of a stretch, in a module that does not import numba."""

KIND, SCALE, LOW, HIGH, STEEPNESS, MEAN, FACTOR, FLOOR, CEILING = range(9)
"""Indices of the parameters: curve, 1/unit, clip, 1/a, mean, 1/std, clip_output."""
NUM_PARAMETERS = 9

NONE, SQRT, LOG1P, SIGNED_LOG1P, ASINH = range(5)
"""Values of KIND."""
