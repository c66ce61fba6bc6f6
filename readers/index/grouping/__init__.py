"""Samples of several files: grouping of files, and names of the parts."""
