"""Frameworks of training code: they turn outputs of pipelines into batches."""
