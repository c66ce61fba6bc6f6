"""MCUs (minimum coded units) of JPEG files: where they lie, and windows cut out by them."""
