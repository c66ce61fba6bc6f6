"""Order of rows, their distribution over shards, and random numbers: pure functions."""
