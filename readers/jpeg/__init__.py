"""JPEG and other encoded images: the Reader, checks, and windows cut by rows of MCUs."""
