"""Ways to the same pixels: this toolkit's and those of its peers."""
