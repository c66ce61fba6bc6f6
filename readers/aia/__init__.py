"""AIA level 1, and HMI: the positions of pixels on the Sun, and the factors that calibrate them.

Each module is named after its counterpart in aiapy, and its tests compare the two. Pixels are not
processed here: to the bytes of `readers.fits.reader.FitsReader`, `reader.AiaReader` adds the matrix
by which the graph resamples, and the factor by which it multiplies.
"""
