"""Preprocessing of a Loader as a function of contents, saved beside a model, and in Triton."""
