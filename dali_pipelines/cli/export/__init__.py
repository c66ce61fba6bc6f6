"""dali-pipelines export: a model of the preprocessing for a server."""
