"""Facts of images from their headers, without astropy where these are usual."""
