"""Operators after the geometry and before mean and std: augmentations, and operators of users."""
