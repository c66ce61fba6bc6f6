"""Decoding of FITS images on CPUs and GPUs: RICE_1, dithering, scaling."""
