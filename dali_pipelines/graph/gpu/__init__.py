"""Parts of the graph for GPUs: CuPy, its memory, and operators that launch kernels."""
