"""Kernels: one algorithm per file, one definition for every device."""
