"""Settings that `make check` tests: mypy --strict reports an ignore on a line without an error."""

from dali_pipelines import (
    Index,
    Loader,
    PipelineConfig,
    aia_pipeline,
    chunked_pipeline,
    fits_pipeline,
    jpeg_pipeline,
    npy_pipeline,
)


def check(index: Index) -> None:
    Loader(fits_pipeline, index, batch_size=4, crop=(2, 2), hdu=("SCI", 1), planes="all")
    Loader(jpeg_pipeline, index, batch_size=4, crop=2, channels=1, dtype="uint8")
    Loader(npy_pipeline, index, batch_size=4, file_dtype="int16", mean=1, std=[2, 3])
    Loader(aia_pipeline, index, batch_size=4, preset="sdoml", correction_table="table.txt")
    Loader(chunked_pipeline, index, batch_size=4, variables=("aia171",), stretch="surya")
    chunked_pipeline(index, batch_size=4, variables=("aia171",), stretch="surya")
    PipelineConfig(batch_size=4, crop=2)
    Loader(fits_pipeline, index, batch_size=4, crp=(2, 2))  # type: ignore[call-arg]
    Loader(fits_pipeline, index, batch_size=4, crop="all")  # type: ignore[arg-type]
    Loader(fits_pipeline, index, batch_size=4, device_id=0)  # type: ignore[call-arg]
    fits_pipeline(index, batch_size=4, crp=(2, 2))  # type: ignore[call-arg]
    aia_pipeline(index, batch_size=4, sise=256)  # type: ignore[call-arg]
    PipelineConfig(batch_size=4, crp=(2, 2))  # type: ignore[call-arg]
    PipelineConfig(batch_size=4, crop="all")  # type: ignore[arg-type]
