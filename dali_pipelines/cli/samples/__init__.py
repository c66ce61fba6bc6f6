"""Synthetic sample sets that the commands read when no data are given."""
