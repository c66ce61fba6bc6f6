"""DALI pipelines fed by parallel readers of FITS and JPEG archives.

`Index` lists what to read, a factory (`fits_pipeline`, `jpeg_pipeline`, `aia_pipeline`,
`npy_pipeline`) makes a DALI pipeline for one device, and `Loader` yields epochs of batches from
several of them. For your own format, write a Reader (see `readers.npy`) and pass it to
`reader_pipeline`.

Importing does nothing: no CUDA context, no process, no environment variable.
"""

import lazy_loader

import readers

if getattr(readers, "DISTRIBUTION", None) != "dali-pipelines":
    raise ImportError(
        f"dali_pipelines needs its own package 'readers', but Python found {readers.__file__}: "
        "rename that file or folder, or put it after the installed packages on sys.path"
    )

# Names are listed in __init__.pyi and imported on first use: DALI takes long to import, and
# processes that only decode and calibrate do not need it.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
