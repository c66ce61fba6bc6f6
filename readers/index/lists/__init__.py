"""Columns of lists of numbers: boxes and labels, and where they come from."""
