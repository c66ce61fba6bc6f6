"""Choosing rows: conditions, joined Indexes, splits and weights."""
