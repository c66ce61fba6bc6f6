"""FITS: headers, byte plans of compressed and plain images, and the Reader."""
