"""Pipeline factories for FITS, AIA, JPEG and other images, npy, chunks, recordings and videos."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack

from dali_pipelines.aia.calibration import NOT_OF_AIA, Calibration, check_aia
from dali_pipelines.aia.preset import Preset
from dali_pipelines.augment.audio import RecordedNoise
from dali_pipelines.config import FLOATS, PipelineConfig
from dali_pipelines.features import Features, features_of
from dali_pipelines.fits_index import check_hdu
from dali_pipelines.graph.audio import AudioGraph
from dali_pipelines.graph.decode import (
    Decode,
    aia_decoder,
    decode_array,
    decode_fits,
    decode_jpeg,
    need_8_bits,
)
from dali_pipelines.graph.images import check_extnames, decode_images, decode_parts, hdus_reader
from dali_pipelines.graph.pipeline import ReaderPipeline, reader_pipeline
from dali_pipelines.graph.source import check_index, look_at_first, places_of
from dali_pipelines.graph.video import decode_clips
from dali_pipelines.keywords import check_names, documents, names_of
from dali_pipelines.runtime.nvdec import graph_decoder
from dali_pipelines.settings import AiaSettings, AudioSettings, PipelineSettings
from dali_pipelines.stretch import Stretches
from dali_pipelines.values import check_choice, check_type, pair_of, warn_of_fractions
from dali_pipelines.variables import channels_of, stretches_of
from readers.audio.reader import AudioReader, sound_facts
from readers.channels import ChannelsReader
from readers.chunks.array import NOTE
from readers.chunks.reader import ChunkedReader
from readers.contract import Reader, Short
from readers.fits.headers import HduName
from readers.fits.multi_hdu import Hdu
from readers.fits.planes import Planes, check_num_planes
from readers.fits.reader import FitsReader
from readers.index.grouping.frames import check_frames, lacks_files
from readers.index.table import Index
from readers.jpeg.reader import JpegReader
from readers.npy import NpyReader
from readers.values import check_integer, check_number
from readers.video.packets import NOTE as PACKETS
from readers.video.packets import Clip
from readers.video.packets import unpacked as unpacked_packets
from readers.video.reader import VideoReader

_LARGEST_GPU_TILE = 1 << 16
"""Pixels of the largest RICE_1 tile decoded on a GPU. One thread decodes a tile, in an estimated
13 s for 4096x4096 pixels; astropy takes 0.2 s in a reader process."""


@documents(PipelineSettings, PipelineConfig)
def fits_pipeline(
    index: Index,
    *,
    hdu: HduName | None = None,
    planes: Planes | None = None,
    num_planes: int | None = None,
    hdus: Mapping[str, HduName | Hdu] | None = None,
    **config: Unpack[PipelineSettings],
) -> ReaderPipeline:
    """Make a pipeline of FITS images.

    Parameters
    ----------
    index : Index
        Each row is a FITS file. A column ``hdu`` makes it an HDU of a file, and a column ``plane``
        a plane of an image with more than two axes. A row can also be a sample of several files,
        see Returns.
    hdu : int, str or (str, int), optional
        HDU to read if the Index names none: its number (0 for the primary HDU), its EXTNAME, or
        both EXTNAME and EXTVER. By default the first HDU with an image.
    planes : int, sequence of int or "all", optional
        Planes to read from images with more than two axes, counted from 0, see `FitsReader`.
        Several planes become the channels of the image, in this order.
    num_planes : int, optional
        With planes "all": number of planes of each image; images with another number are rejected.
        By default the number in the first readable image.
    hdus : mapping of str to int, str, (str, int) or Hdu, optional
        Several images of each row, by the names of their outputs, in place of the settings above:
        ``{"image": "SCI", "err": "ERR", "dq": Hdu("DQ", dtype="int16")}``. "image" is required.
        The dtype, mean, std, augmentations and transform of the settings apply only to "image".
        Each other image is an output of shape (batch, planes, height, width), with the same window,
        region, flips, rotation, zoom and resize. Integers keep their values and are resampled by
        nearest pixels, with 0 outside the image. Floats become physical values in float32, and are
        resampled like "image". Rows whose images differ in size are rejected. See `Hdu`.
    **config
        Keyword arguments of `PipelineConfig`; ``batch_size`` is required.

    Returns
    -------
    ReaderPipeline
        Its ``image`` has shape (batch, planes, height, width) and holds physical values (BSCALE and
        BZERO applied, NaN for BLANK), unless mean, std or resize change them. With an integer dtype
        it holds the stored integers, and images of another BITPIX are rejected. Without crop,
        resize or `ragged` all images of a batch must have the same size.

        For samples of several files, see `Index.group`, the shape is (batch, files * planes,
        height, width), or with offsets (batch, times, files of a time * planes, height, width);
        mean and std then list the channels of one time. ``present``, bool, shape (batch, files) or
        (batch, times, files of a time), is True for files that exist. Missing files are NaN, or 0
        in integers. All files of a sample must have the same size, and get the same window, flips
        and rotation. Augmentations and a transform see the files as channels, ordered by time. With
        offsets a transform must return the same number of channels for each time.

    Raises
    ------
    ValueError
        If several planes are requested but the Index has one per row, if an HDU is requested but
        the Index names another, or if settings contradict each other.
    ReadError
        If none of the first rows can be read to find the number of all planes, or the dtypes of
        `hdus`.
    """
    check_index(index)
    settings = PipelineConfig(**config)
    if settings.dtype == "uint16":
        raise ValueError("FITS has no uint16: set dtype 'int16', or 'float32' for the values")
    stored = settings.dtype if settings.dtype in ("uint8", "int16", "int32") else None
    if hdus is not None:
        if hdu is not None or planes is not None or num_planes is not None:
            raise ValueError(
                "set hdu, planes and num_planes in hdus, such as {'image': Hdu(1, planes=0)}"
            )
        several = hdus_reader(index, hdus, settings, stored, _largest_tile(settings))
        images = functools.partial(decode_images, kinds=several.kinds, planes=several.channels)
        return reader_pipeline(index, several, images, settings)
    check_hdu(index, hdu)
    if isinstance(hdu, str) and not index.parts and "hdu" not in index.table.column_names:
        columns = index.columns().with_places(places_of(settings))
        check_extnames(columns, {"image": Hdu(hdu)}, settings)
    is_all = isinstance(planes, str) and planes == "all"  # not ==: arrays compare element-wise
    check_num_planes(planes, num_planes)
    count = num_planes
    if is_all and count is None:
        count = look_at_first(index, FitsReader(hdu).shape, settings).planes
    reader = FitsReader(hdu, stored, planes, count, _largest_tile(settings))
    if reader.channels > 1 and "plane" in index.table.column_names:
        raise ValueError(
            f"the Index has a column 'plane', one for each row, but planes={planes!r} asks for "
            "several: leave out one of them"
        )
    decode = functools.partial(decode_fits, planes=reader.channels)
    return _of_files(index, reader, decode, settings)


def _of_files(
    index: Index,
    reader: Reader,
    decode: Decode,
    config: PipelineConfig,
    blank_is_nan: bool = False,
) -> ReaderPipeline:
    """Make the pipeline of a Reader, for single files or for samples of several files."""
    if NOTE in index and not isinstance(reader, ChunkedReader):
        raise ValueError(
            f"the Index describes arrays of Zarr or HDF5, in its column {NOTE!r}: use "
            "chunked_pipeline, or --pipeline=chunked in commands"
        )
    if not index.parts:
        return reader_pipeline(index, reader, decode, config)
    check_frames(frames := index.frames, index.parts)
    _check_located(index, reader)
    several = ChannelsReader(reader, frames.parts)
    missing = not blank_is_nan and lacks_files(index.table, frames.parts)
    joined = decode_parts(decode, several, len(frames.offsets) or None, missing=missing)
    return reader_pipeline(index, several, joined, config)


def _check_located(index: Index, reader: Reader) -> None:
    """Raise ValueError if columns name the HDUs or planes of ``path``, but not of the parts."""
    for name, setting in (("hdu", "hdu"), ("plane", "planes")):
        lacking = [each for part in index.parts if (each := f"{name}_{part}") not in index]
        is_used = name in index and index.table[name].null_count < len(index)
        if is_used and lacking and getattr(reader, setting, None) is None:
            raise ValueError(
                f"column {name!r} of the Index is only for the file in 'path', but each row is a "
                f"sample of several files: add columns {', '.join(lacking)} with with_column, set "
                f"{setting}, or drop {name!r}: Index(index.table.drop_columns([{name!r}]))"
            )


def _largest_tile(config: PipelineConfig) -> float:
    """Return the number of pixels in the largest RICE_1 tile that the graph decodes."""
    return math.inf if config.device_id is None else _LARGEST_GPU_TILE


@documents(AiaSettings, PipelineConfig, Calibration, left_out=NOT_OF_AIA)
def aia_pipeline(
    index: Index,
    *,
    calibration: Calibration | None = None,
    preset: str | Preset | None = None,
    **settings: Unpack[AiaSettings],
) -> ReaderPipeline:
    """Make a pipeline of SDO/AIA or HMI level 1 files as calibrated images on one grid.

    Each frame is registered by its own header or by the pointing table. One affine transform
    rotates, scales and centres the frame. It includes the random window, flip, rotation and zoom,
    so pixels are interpolated only once.

    Parameters
    ----------
    index : Index
        Each row is a file, or a sample of several files, which become the channels of the image,
        see `Index.group`.
    calibration : Calibration, optional
        Settings of the calibration.
    preset : str, path or Preset, optional
        Recipe for the calibration, see `dali_pipelines.aia.preset`.
    **settings
        Fields of `Calibration`, unless a calibration is passed; they override the preset.
        ``pointing_table`` and ``correction_table`` may be paths. Also keyword arguments of
        `PipelineConfig`; ``crop`` is in pixels of the registered image.

    Returns
    -------
    ReaderPipeline
        Its ``image`` has shape (batch, channels, height, width), or (batch, times, channels,
        height, width) with offsets. For samples of several files ``present``, bool, of that shape
        without height and width, is True for files that exist; missing files are NaN.

    Raises
    ------
    ValueError
        If settings contradict each other.
    """
    check_index(index)
    check_names("aia_pipeline", settings, names_of(aia_pipeline) or (), NOT_OF_AIA)
    names = {field.name for field in dataclasses.fields(Calibration)}
    rest: dict[str, Any] = dict(settings)
    own = {name: rest.pop(name) for name in settings if name in names}
    check_type("calibration", calibration, Calibration | None, "a Calibration, or None")
    if calibration is None:
        calibration = Calibration.of(preset, **own)
    elif own or preset is not None:
        given = sorted(own) + ["preset"] * (preset is not None)
        raise ValueError(f"pass a calibration or {', '.join(given)}, not both")
    check_aia(rest)
    config = PipelineConfig(**rest)
    _check_registered(config, *calibration.size)
    calibration = calibration.of_channels(index.frames.channels or ())
    reader: Reader = dataclasses.replace(calibration.reader(), largest_tile=_largest_tile(config))
    decode = aia_decoder(calibration, len(index.frames.parts))
    return _of_files(index, reader, decode, config, blank_is_nan=True)


def _check_registered(config: PipelineConfig, height: int, width: int) -> None:
    """Raise ValueError if settings do not suit registered images of this size."""
    if config.interpolation != "bilinear":
        raise ValueError(
            f"aia_pipeline interpolates by splines, and has no interpolation "
            f"{config.interpolation!r}: set order, 1 or 3, instead"
        )
    if config.dtype not in FLOATS:
        raise ValueError(
            f"calibrated images are bfloat16, float32 or float16, got dtype {config.dtype!r}"
        )
    if config.outside == "fill":
        raise ValueError(
            "outside='fill' is not for aia_pipeline: set a larger size of the registered image, "
            "where pixels beyond the frame have the value missing; or outside='shift' for window "
            "'row'"
        )
    if config.crop is not None and (config.crop[0] > height or config.crop[1] > width):
        raise ValueError(
            f"crop {config.crop[0]}x{config.crop[1]} is larger than the registered image "
            f"{height}x{width} (height x width): set a smaller crop, or a larger image, as "
            f"size={config.crop}"
        )


@documents(PipelineSettings, PipelineConfig)
def jpeg_pipeline(
    index: Index,
    *,
    channels: int = 3,
    check_entropy: bool = False,
    **config: Unpack[PipelineSettings],
) -> ReaderPipeline:
    """Make a pipeline of encoded images: JPEG, PNG, and all other formats that Pillow reads.

    Parameters
    ----------
    index : Index
        Each row is an image file.
    channels : {3, 1}
        3 for RGB, 1 for gray. The gray value of a colour image is the luma: the stored Y of a
        JPEG, otherwise 0.299 R + 0.587 G + 0.114 B. The two differ where RGB values are clipped.
    check_entropy : bool
        Whether the readers check the entropy-coded data of each JPEG. This finds nearly all damage,
        see `readers.jpeg.entropy.check_entropy`, and takes about half as long as DALI's decoding of
        whole images. Rows of MCUs in the Index have checksums, and need no check.
    **config
        Keyword arguments of `PipelineConfig`; ``batch_size`` is required.

    Returns
    -------
    ReaderPipeline
        Its ``image`` has shape (batch, channels, height, width) and holds the values of the file: 0
        to 255 for depths up to 8 bits, and the stored integers up to 65535 for greater depths; mean
        and std use these units. With dtype ``uint8`` or ``uint16`` images of another depth are
        rejected. With a float type a batch may hold both depths, each in its own units (float16
        ends at 65504); augmentations of colours, however, need 8 bits. Alpha is dropped; palettes,
        CMYK and Lab become RGB. Images that cannot be decoded at full depth, and images of 32 bits
        (integer or floating-point), are rejected. Without crop, resize or `ragged` all images of a
        batch must have the same size. `fits_pipeline` describes samples of several files.

    Raises
    ------
    ValueError
        If settings contradict each other, or dtype is an integer type that images never have.
    """
    check_index(index)
    settings = PipelineConfig(**config)
    stored = settings.dtype if settings.dtype in ("uint8", "uint16") else None
    needed_by: str | None = None
    if names := need_8_bits(config.get("augment", ())):  # in mode eval, too
        stored, needed_by = "uint8", f"{', '.join(names)}: leave that out, or convert the file"
    if settings.transform is None:  # a transform may scale the images first
        warn_of_fractions(settings.mean, settings.std)
    reader = JpegReader(channels, stored, check_entropy, needed_by)
    decode = functools.partial(decode_jpeg, channels=channels)
    return _of_files(index, reader, decode, settings)


@documents(PipelineSettings, PipelineConfig)
def npy_pipeline(
    index: Index,
    *,
    file_dtype: str = "float32",
    channels: int = 1,
    **config: Unpack[PipelineSettings],
) -> ReaderPipeline:
    """Make a pipeline of .npy files of shape (height, width[, channels]).

    Parameters
    ----------
    index : Index
        Each row is a .npy file.
    file_dtype : str
        NumPy name of the element type of all files; files of other types are rejected.
    channels : int
        Size of the last axis, 1 for two-dimensional arrays.
    **config
        Keyword arguments of `PipelineConfig`; ``batch_size`` is required.

    Returns
    -------
    ReaderPipeline
        Its ``image`` has shape (batch, channels, height, width), float32 or float16. With an
        integer dtype, which must equal `file_dtype`, it holds the stored integers. `fits_pipeline`
        describes samples of several files.

    Raises
    ------
    ValueError
        If settings contradict each other, or dtype is another integer type than `file_dtype`.
    """
    check_index(index)
    reader = NpyReader(file_dtype, channels)
    decode = functools.partial(decode_array, stored=file_dtype)
    return _of_files(index, reader, decode, PipelineConfig(**config))


@documents(AudioSettings, PipelineConfig)
def audio_pipeline(
    index: Index,
    *,
    duration: float | None = None,
    window: Literal["center", "random"] = "center",
    short: Short = "reject",
    rate: int | None = None,
    channels: int = 1,
    speeds: tuple[float, ...] = (),
    features: Features = "waveform",
    **config: Unpack[AudioSettings],
) -> ReaderPipeline:
    """Make a pipeline of recordings: waveforms, spectrograms, log mel features or MFCC.

    Parameters
    ----------
    index : Index
        Each row is a recording, or with columns ``start`` and ``duration``, in seconds, a part of
        one; see `Index.scan_audio`.
    duration : float, optional
        Length in seconds of the segment to deliver. Only this part of the file is read, if its
        format allows. By default recordings are whole, and padded to the longest of a batch.
    window : {"center", "random"}
        Position of the segment in the recording; in mode ``eval`` always ``center``.
    short : {"reject", "pad"}
        Treatment of recordings that are shorter than `duration`: ``pad`` adds silence at the end.
    rate : int, optional
        Samples per second; recordings of other rates are resampled. By default the rate of the
        first readable recording, and recordings of other rates are rejected.
    channels : int
        1 averages the channels of each recording. With another number, recordings with a different
        number of channels are rejected.
    speeds : tuple of float
        Factors of speed, such as (0.9, 1, 1.1); one is drawn for each sample, and changes its pitch
        as well. In mode ``eval`` the factor is 1.
    features : {"waveform", "spectrogram", "log_mel", "mfcc"} or Spectrogram
        Output of the pipeline, by name, or as a `Spectrogram`, `LogMel` or `Mfcc` with settings.
    **config
        Keyword arguments of `PipelineConfig`; ``batch_size`` is required.

    Returns
    -------
    ReaderPipeline
        Its first output is ``audio``, float32 in [-1, 1), shape (batch, channels, samples), or
        ``features``, shape (batch, channels, bands, frames). ``length``, int32, shape (batch,), is
        the number of samples or frames without padding. ``start``, float64, is the beginning of the
        segment in seconds from the beginning of the file.

    Raises
    ------
    ReadError
        If no rate is set, and none of the first recordings can be read to find it.
    ValueError
        If settings contradict each other.
    """
    check_names("audio_pipeline", config, names_of(audio_pipeline) or ())
    check_index(index)
    check_choice("window", window, ("center", "random"))
    check_choice("short", short, ("reject", "pad"))
    kind = features_of(features)
    options: dict[str, Any] = dict(config)
    options.setdefault("ragged", "pad" if duration is None else None)
    settings = PipelineConfig(**options)
    if settings.dtype not in ("float32", "float16"):
        raise ValueError(f"recordings are float32 or float16, got dtype {settings.dtype!r}")
    reader = AudioReader(1 if rate is None else rate, channels, rate is not None, short, speeds)
    if duration is not None:
        check_number("duration", duration, 1e-6, 1e6)
    elif window != "center" or short != "reject":
        raise ValueError("window and short are for segments: set duration, in seconds")
    if rate is None:
        rate = look_at_first(index, sound_facts, settings).rate
        reader = dataclasses.replace(reader, rate=rate)
    if kind is not None:
        kind.sizes(rate)
    if duration is not None:
        options |= {"crop": (1, max(1, round(duration * rate))), "window": window}
    noises = [one for one in settings.augment if isinstance(one, RecordedNoise)]
    if len(noises) > 1:
        raise ValueError("augment takes RecordedNoise once: put its recordings into one Index")
    if noises and settings.mode == "train":
        reader = dataclasses.replace(reader, noise=noises[0].read_by(places_of(settings)))
    in_graph = [one for one in settings.augment if not isinstance(one, RecordedNoise)]
    on_features = tuple(one for one in in_graph if getattr(one, "of_features", False))
    on_waveform = [one for one in in_graph if one not in on_features]
    if on_features and kind is None:
        name = type(on_features[0]).__name__
        raise ValueError(f"{name} is for features: set features, such as 'log_mel'")
    graph = AudioGraph(rate, channels, kind, on_features, settings.transform)
    if kind is not None:
        options["transform"] = graph.add
    options["augment"] = on_waveform
    return reader_pipeline(index, reader, graph.decode, PipelineConfig(**options))


@documents(PipelineSettings, PipelineConfig)
def chunked_pipeline(  # type: ignore[misc] # its stretch may be a mapping or a preset
    index: Index,
    *,
    variables: Sequence[str] | None = None,
    stretch: Stretches | Preset | str | os.PathLike[str] | None = None,
    grid: int | tuple[int, int] | Literal["chunks"] | None = None,
    **config: Unpack[PipelineSettings],
) -> ReaderPipeline:
    """Make a pipeline of chunked arrays of Zarr, HDF5 and netCDF4.

    Parameters
    ----------
    index : Index
        Each row is a position along one axis of the arrays, or a file; see `Index.from_zarr` and
        `Index.scan_arrays`. A row can also be a sample of several positions or files, see
        `Index.group`.
    variables : sequence of str, optional
        Variables that become the channels, in this order. By default all variables of the Index
        that are not read by masks. A variable with several levels has a channel for each: name the
        channel, such as ``z_500``, or the variable for all of its levels.
    stretch : Stretch, sequence or mapping of str to Stretch, or preset, optional
        As in `PipelineConfig`, or by variable, such as ``{"t2m": Stretch(mean=280, std=10)}``, for
        all of its levels; the values of other variables stay as they are. Or a preset: its name
        such as ``"surya"``, its path, or a `Preset`. Each variable then gets the curve of the
        channel in its name (171 for ``aia171`` and ``171A``; ``hmi_m``), for means over pixels.
        Nothing else of the preset is applied, because the arrays are already calibrated.
    grid : int, (int, int) or "chunks", optional
        As in `PipelineConfig`, or the grid of the chunks, so that each window needs as few chunks
        as possible.
    **config
        Keyword arguments of `PipelineConfig`; ``batch_size`` is required.

    Returns
    -------
    ReaderPipeline
        Its ``image`` has shape (batch, variables, height, width) and holds the values that xarray
        delivers, in float32: ``scale_factor`` and ``add_offset`` are applied, and ``_FillValue``
        and ``missing_value`` are NaN. With an integer dtype, in which all variables must be stored,
        it holds the stored elements. `fits_pipeline` describes samples of several rows, such as
        sequences; all variables of a row are channels.

    Raises
    ------
    OSError
        If the file of a preset cannot be read.
    ValueError
        If the Index does not describe chunks, or lacks a variable, if a preset has no numbers for
        a variable, or if settings contradict each other.
    """
    check_index(index)
    channels = channels_of(index, variables, config.get("targets", {}))
    if grid == "chunks":
        crop = pair_of("crop", config.get("crop"))
        if crop is None:
            raise ValueError("grid='chunks' needs crop: (height, width) of the windows")
        grid = channels.grid(crop)
    given: Any = {**config, "stretch": stretches_of(stretch, channels), "grid": grid}
    settings = PipelineConfig(**given)
    stored = None if settings.dtype in ("float32", "float16") else settings.dtype
    reader = ChunkedReader(channels.names, stored or "float32", channels.count)
    return _of_files(index, reader, functools.partial(decode_array, stored=stored), settings)


@documents(PipelineSettings, PipelineConfig)
def video_pipeline(
    index: Index,
    *,
    frames: int | None = None,
    stride: int | None = None,
    short: Short = "reject",
    decode: Literal["readers", "graph"] = "readers",
    **config: Unpack[PipelineSettings],
) -> ReaderPipeline:
    """Make a pipeline of clips of videos.

    Parameters
    ----------
    index : Index
        Each row is a video, see `Index.scan_videos`, or a part of one, by the columns ``start`` and
        ``duration`` in seconds. The clip of a row is random, or in the middle in mode ``eval``.
        With a column ``frame`` it begins at that frame, see `Index.each_clip`.
    frames : int, optional
        Frames of a clip. By default as in `Index.each_clip`; other rows have no default.
    stride : int, optional
        Frames of the video from one frame of the clip to the next; by default 1, or that of
        `Index.each_clip`.
    short : {"reject", "pad"}
        Treatment of videos that are shorter than a clip: their last frame is repeated with ``pad``.
    decode : {"readers", "graph"}
        Where clips are decoded: in the readers by PyAV, or in the graph by DALI. In the graph,
        NVDEC decodes H.264, HEVC, VP8 and VP9 on a GPU; on the CPU DALI decodes VP8, VP9 and MJPEG.
        PyAV still decodes clips that DALI cannot decode exactly. DALI's colours differ from PyAV's.
        No GPU has run this yet.
    **config
        Keyword arguments of `PipelineConfig`; ``batch_size`` is required. All frames of a clip get
        the same window, flips and other random choices.

    Returns
    -------
    ReaderPipeline
        Its ``image`` has shape (batch, frames, 3, height, width) and holds red, green and blue from
        0 to 255; mean and std use these units, for each colour. ``frame``, int64, shape (batch,),
        is the number of the first frame, ``time``, float64, shape (batch, frames), when each frame
        is shown, in seconds from the first frame of the video, and ``length``, int32, shape
        (batch,), the number of frames without those that were repeated. See `VideoReader` for the
        numbers of frames.

    Raises
    ------
    ValueError
        If settings contradict each other, or if ``decode="graph"`` lacks NVDEC on a GPU.
    """
    check_index(index)
    settings = PipelineConfig(**config)
    clip = clip_of(index, frames, stride)
    check_choice("short", short, ("reject", "pad"))
    check_choice("decode", decode, ("readers", "graph"))
    decoder = graph_decoder(decode, settings.device_id)
    reader = VideoReader(clip.frames, clip.stride, short, decoder)
    if settings.transform is None:  # else it may scale the images first
        warn_of_fractions(settings.mean, settings.std)
    return reader_pipeline(index, reader, functools.partial(decode_clips, reader=reader), settings)


def has_clips(index: Index) -> bool:
    """Return whether rows are clips, as of `Index.each_clip`."""
    return _clip_in(index) is not None


def _clip_in(index: Index) -> Clip | None:
    noted = index[PACKETS][0].as_py() if PACKETS in index else None
    return unpacked_packets(noted).stream.clip if noted else None


def clip_of(index: Index, frames: int | None, stride: int | None) -> Clip:
    """Return the clip of the settings, by default that of the first row; ValueError if wrong."""
    own = _clip_in(index)
    for name, value in (("frames", frames), ("stride", stride)):
        if value is not None:
            check_integer(name, value, 1)
    if frames is None:
        if own is None:
            raise ValueError("set frames, the number of frames of a clip, such as 16")
        frames = own.frames
    if stride is None:
        stride = 1 if own is None else own.stride
    return Clip(frames, stride)
