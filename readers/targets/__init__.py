"""Masks and boxes of images, which follow the geometry of the sample."""
