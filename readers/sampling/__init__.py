"""Which row comes when, and its random numbers: pure functions."""
