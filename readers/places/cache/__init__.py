"""Cache of byte ranges on local disk, shared by the threads, readers and ranks of a node.

Places use `DiskCache` (disk.py); the other modules are its parts. The folder of a cache has:

``CACHEDIR.TAG``
    Marks the folder as a cache. A folder that has files but lacks this one is rejected (room.py).
``locks``
    An empty file. A lock on a range of this file is for a range of an object (locks.py).
``usage-{boot}``
    Number of bytes that each of the 256 folders takes (room.py).
``{2 digits of a hash}/{the other 22}``
    Blocks of one cell, i.e. of 1 MiB of an object, with their checksums (cells.py).

URLs and ETags are stored only as hashes.
"""
