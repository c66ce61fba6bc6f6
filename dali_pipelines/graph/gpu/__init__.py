"""What only a GPU needs: CuPy in the graph, its memory, and operators that launch kernels."""
