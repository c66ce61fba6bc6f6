"""MCUs (minimum coded units) of JPEG files: their positions, and windows cut out by them."""
