"""Cache of byte ranges on local disk, shared by the threads, readers and ranks of a node.

`DiskCache` (disk.py) is what places use; the other modules are its parts. A folder holds:

``CACHEDIR.TAG``
    Marks the folder as a cache; a folder with files but without this one is rejected (room.py).
``locks``
    Empty; ranges of it are locked, each for a range of one object (locks.py).
``usage-{boot}``
    Bytes that the files in each of the 256 folders take (room.py).
``{2 digits of a hash}/{the other 22}``
    Blocks of one cell, which is 1 MiB of one object, with their checksums (cells.py).

Only hashes of URLs and ETags are stored, beside the bytes themselves.
"""
