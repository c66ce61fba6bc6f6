"""Calibration of SDO/AIA level 1 images: settings, presets, PSF, level 1.5 files."""
