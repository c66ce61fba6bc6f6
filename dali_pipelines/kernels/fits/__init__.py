"""Decode FITS images: RICE_1, dithering, scaling; on CPUs and GPUs."""
