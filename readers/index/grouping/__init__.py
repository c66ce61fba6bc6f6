"""Samples of several files: which files belong together, and the names of their parts."""
