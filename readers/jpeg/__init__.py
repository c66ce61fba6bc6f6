"""JPEG and other encoded images: the Reader, checks for damage, and windows cut by MCU rows."""
