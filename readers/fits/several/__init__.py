"""Several images of one row: HDUs of its file, planes of a cube, and files of its parts."""
