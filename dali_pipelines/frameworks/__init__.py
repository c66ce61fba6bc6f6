"""Frameworks of training code, which turn the outputs of pipelines into batches."""
