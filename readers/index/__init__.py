"""The Index: the table of what can be read, its files, and how archives are scanned."""
