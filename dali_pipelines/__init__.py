"""DALI pipelines fed by parallel readers of FITS and JPEG archives.

`Index` says what is read, a factory (`fits_pipeline`, `jpeg_pipeline`, `aia_pipeline`,
`npy_pipeline`) makes a DALI pipeline for one device, and `Loader` gives epochs of batches over
several of them. For a format of your own, write a Reader (see `readers.npy`) and give it to
`reader_pipeline`.

Importing does nothing: no CUDA context, no process, no environment variable.
"""

import lazy_loader

import readers

if getattr(readers, "DISTRIBUTION", None) != "dali-pipelines":
    raise ImportError(
        f"dali_pipelines needs its own package 'readers', but Python found {readers.__file__}: "
        "rename that file or folder, or put it behind the installed packages on sys.path"
    )

# Listed in __init__.pyi and imported on first use: DALI takes long, and processes that only decode
# and calibrate do not need it.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
