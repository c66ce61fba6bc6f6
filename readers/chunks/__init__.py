"""Windows of arrays that are stored in chunks, such as those of Zarr."""
