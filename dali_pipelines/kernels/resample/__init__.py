"""Resample images: resize, and affine maps with B-splines; on CPUs and GPUs."""
