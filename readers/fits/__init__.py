"""FITS: headers, HDUs and metadata; plain, compressed and gzipped images; the Readers."""
