"""AIA level 1 and HMI: positions of pixels on the Sun, and calibration factors.

Modules are named after their counterparts in aiapy, and tests compare the two. Pixels are not
processed here: `reader.AiaReader` adds a matrix and a factor to the bytes of
`readers.fits.reader.FitsReader`. The graph resamples by the matrix and multiplies by the factor.
"""
