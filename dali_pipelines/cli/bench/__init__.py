"""``dali-pipelines bench``: run the benchmarks of a clone."""
