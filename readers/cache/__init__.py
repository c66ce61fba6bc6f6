"""The user's cache: its folder, and compiled code."""
