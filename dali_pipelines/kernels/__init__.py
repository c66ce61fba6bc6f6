"""Kernels: one algorithm a file, one definition for every device."""
