"""Samples of tar files."""
