"""Kernels of augmentations."""
