"""Places: sources of the bytes of rows, i.e. files, objects of a store, and spans of both."""
