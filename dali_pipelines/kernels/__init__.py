"""Kernels: one algorithm per file, shared by CPUs and GPUs if possible."""
