"""Preprocessing of a Loader for inference: as a function, as a file beside a model, in Triton."""
