"""HCOMPRESS_1: its streams to the pixels of tiles, by numba; imported when the first is read."""
