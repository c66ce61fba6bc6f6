"""CUDA kernels without a GPU: compiled for each architecture, and run on the CPU with checks."""
