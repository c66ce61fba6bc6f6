"""Operators for GPUs, made with CuPy, and an estimate of their memory."""
