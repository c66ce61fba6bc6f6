"""Places of the bytes of rows: files, objects of a store, and spans of both."""
