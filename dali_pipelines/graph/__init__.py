"""Operators and fragments of DALI graphs, and the pipeline that combines them."""
