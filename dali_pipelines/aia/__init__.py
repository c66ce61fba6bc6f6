"""SDO/AIA level 1 to calibrated images: settings, presets, PSF, level 1.5 files."""
