"""Where the bytes of rows lie: files, objects of a store, and spans of both."""
