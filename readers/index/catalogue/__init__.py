"""Cutouts of a catalogue: the images that show its positions, and the pixels of these."""
