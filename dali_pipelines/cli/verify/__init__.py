"""dali-pipelines verify: compare decoded pixels with astropy's and Pillow's."""
