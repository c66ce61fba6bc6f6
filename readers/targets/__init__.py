"""Masks and boxes, which belong to an image and follow the geometry of its sample."""
