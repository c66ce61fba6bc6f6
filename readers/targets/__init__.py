"""Masks and boxes: what belongs to an image, and follows the geometry of its sample."""
