"""Frameworks of training code: how the outputs of pipelines become their batches."""
