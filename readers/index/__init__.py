"""The Index: the table of samples, its files, and the scan of archives."""
