"""The parts of a Loader: its place in the epochs, its pipelines, its batches, its statistics."""
