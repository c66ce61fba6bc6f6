"""Codes of the filters of a resize, in a module without numba, which takes long to import."""

LINEAR, CUBIC, LANCZOS = range(3)
"""A triangle, Keys's cubic (a = -0.5), and Lanczos (a = 3). They reach 1, 2 and 3 pixels."""
