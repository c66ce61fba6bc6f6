"""FITS: the Reader, headers, and byte plans of compressed and plain images."""
