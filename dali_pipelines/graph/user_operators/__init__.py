"""Operators between geometry and normalisation: augmentations, and operators of users."""
