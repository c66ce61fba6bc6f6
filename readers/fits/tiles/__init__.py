"""Tiled images: the tables of their tiles, and the bytes that windows need."""
