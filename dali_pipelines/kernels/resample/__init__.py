"""Resampling of images on CPUs and GPUs: resize, and affine maps with B-splines."""
