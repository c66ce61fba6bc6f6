"""AIA level 1, and HMI: where the pixels of a file lie on the Sun, and what they are divided by.

Each module is named for its counterpart in aiapy, and its tests compare the two. Nothing here looks
at pixels: `reader.AiaReader` sends, along with the bytes that `readers.fits.reader.FitsReader`
sends, the matrix and the factor that the graph resamples and multiplies with.
"""
