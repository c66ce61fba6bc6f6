"""Values of LMDB files."""
