"""User's cache: its folder, and compiled code."""
