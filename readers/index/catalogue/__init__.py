"""Cutouts: the images that show the objects of a catalogue, and their pixel positions."""
