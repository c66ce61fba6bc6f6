"""Cache of byte ranges on local disk, shared by the threads, readers and ranks of a node.

`DiskCache` (disk.py) is what places use; the other modules are its parts. A folder holds:

``CACHEDIR.TAG``
    The mark of a cache; a folder with other files and without it is rejected (folder.py).
``locks``
    Empty; ranges of it are locked, each for some bytes of one object (locks.py).
``usage-{boot}``
    Bytes that are used, for each of 256 shelves of 16 folders (room.py, shelves.py).
``{3 digits of a hash}/{the rest}-{start}-{stop}-{crc}-{boot}``
    A segment: bytes of one cell of 4 MiB of one object (ranges.py), written once and renamed
    (segments.py). There are 4096 such folders at most, and they stay: to make one takes longer than
    to write a small segment.

Only hashes of URLs and ETags are stored, beside the bytes themselves.
"""
