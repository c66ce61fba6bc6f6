"""Codes of the filters of a resize, in a module that does not import numba, which takes long."""

LINEAR, CUBIC, LANCZOS = range(3)
"""Triangle, Keys's cubic (a = -0.5), and Lanczos (a = 3). They reach 1, 2 and 3 pixels."""
