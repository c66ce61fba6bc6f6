"""Operators between the geometry and mean and std: augmentations, and those of users."""
