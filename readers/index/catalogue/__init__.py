"""Cutouts of a catalogue: which images show its positions, and where."""
