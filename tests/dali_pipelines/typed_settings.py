"""What mypy is given by `test_settings`: lines that must be errors say so."""

from dali_pipelines import (
    Index,
    Loader,
    PipelineConfig,
    aia_pipeline,
    fits_pipeline,
    jpeg_pipeline,
    npy_pipeline,
)


def check(index: Index) -> None:
    Loader(fits_pipeline, index, batch_size=4, crop=(2, 2), hdu=("SCI", 1), planes="all")
    Loader(jpeg_pipeline, index, batch_size=4, crop=2, channels=1, dtype="uint8")
    Loader(npy_pipeline, index, batch_size=4, file_dtype="int16", mean=1, std=[2, 3])
    Loader(aia_pipeline, index, batch_size=4, preset="sdoml", correction_table="table.txt")
    PipelineConfig(batch_size=4, crop=2)
    Loader(fits_pipeline, index, batch_size=4, crp=(2, 2))  # error
    Loader(fits_pipeline, index, batch_size=4, crop="all")  # error
    Loader(fits_pipeline, index, batch_size=4, device_id=0)  # error
    fits_pipeline(index, batch_size=4, crp=(2, 2))  # error
    aia_pipeline(index, batch_size=4, sise=256)  # error
    PipelineConfig(batch_size=4, crp=(2, 2))  # error
    PipelineConfig(batch_size=4, crop="all")  # error
