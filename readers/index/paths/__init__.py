"""Paths and URLs of rows: checks, and where they begin."""
