"""Operators and fragments of DALI graphs, and the pipeline made of them."""
