"""Settings of all pipeline factories: defaults, descriptions and checks."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from numbers import Real
from threading import TIMEOUT_MAX
from typing import Any, Literal, Unpack, get_args

import numpy as np

from dali_pipelines.keywords import check_names, documents
from dali_pipelines.runtime.devices import device_of
from dali_pipelines.settings import (
    Augmentation,
    DType,
    MemoryFormat,
    Mode,
    PipelineSettings,
    Ragged,
    StartMethod,
    Transform,
)
from dali_pipelines.stretch import LEAST_STD, Stretch
from dali_pipelines.values import (
    are_all,
    check_choice,
    check_several_names,
    check_type,
    holds,
    pair_of,
    shuffle_of,
    torch_name,
)
from readers.places.storage import Storage
from readers.sampling.geometry import (
    ASPECT_RATIOS,
    Flip,
    Geometry,
    Interpolation,
    WindowMode,
)
from readers.sampling.order import Shuffle
from readers.sampling.placement import PlacementOutput
from readers.sampling.row_window import Outside
from readers.sampling.schedule import Tail
from readers.targets.contract import Target
from readers.values import check_integer, check_number, is_integer, is_number

NAMES = frozenset(PipelineSettings.__annotations__)
"""Names of all settings."""

_LEAST = {
    **dict.fromkeys(("batch_size", "num_shards", "num_threads", "prefetch", "block_rows"), 1),
    **dict.fromkeys(("epoch_steps", "resize_shorter", "cache_bytes", "read_threads"), 1),
    **dict.fromkeys(("shard_id", "seed", "epoch", "position", "first_step"), 0),
    **dict.fromkeys(("num_epochs", "num_read_processes"), 0),
}
"""Minimum value of each integer."""
_CHOICES = {
    "tail": Tail,
    "mode": Mode,
    "window": WindowMode,
    "outside": Outside,
    "flip": Flip,
    "interpolation": Interpolation,
    "dtype": DType,
    "memory_format": MemoryFormat,
    "ragged": Ragged,
    "start_method": StartMethod,
}
FLOATS = ("float32", "float16", "bfloat16")
"""Element types in which the graph does arithmetic."""
_INTEGERS_AS_STORED = ("uint16", "int16", "int32")
_LARGEST = float(np.finfo(np.float32).max)


@documents(PipelineSettings)
@dataclass(frozen=True, slots=True, init=False)
class PipelineConfig:
    """Keywords of all pipeline factories, checked. Names are those of DALI, if it has one.

    Parameters
    ----------
    **settings
        The fields.

    Raises
    ------
    TypeError
        If a name is unknown, or there is no batch_size.
    ValueError
        If a value makes no sense, or contradicts others.
    """

    # Rows to read, and their order.
    batch_size: int
    """Samples per device and step."""
    shard_id: int = 0
    """Part of each step that this pipeline reads, see `readers.Shard`."""
    num_shards: int = 1
    """Pipelines that share the epoch, over all devices and nodes."""
    seed: int = 0
    """Integer in [0, 2**64) that determines the order of rows and all random numbers."""
    shuffle: Shuffle = None  # type: ignore[assignment] # never None once checked
    """True for a new order in each epoch, False for the order of the Index. By default (None) rows
    are shuffled, except in mode ``eval``. ``"blocks"`` keeps neighbouring rows, such as the rows of
    one file, near each other, see `readers.BlockOrder`. ``"buckets"`` makes each step of
    neighbouring rows, such as recordings of similar duration, see `readers.BucketOrder`."""
    block_rows: int | None = None
    """Rows of a block. For ``shuffle="blocks"`` about the number of rows in a file, by default 256.
    For ``"buckets"`` the rows of a step (`batch_size` times the number of devices) or a
    multiple."""
    weights: str | None = None
    """Numeric column of the Index. Each sample is drawn in proportion to it, with replacement. An
    epoch has as many samples as the Index has rows: some rows come several times, others never."""
    tail: Tail = "partial"
    """Treatment of the last, incomplete step of an epoch, see `readers.Tail`. With ``fill`` some
    samples are not ``valid``; with the others all are."""
    epoch_steps: int | None = None
    """Steps of an epoch, for archives that are huge or tiny; by default one pass through the rows.
    Each epoch continues where the last one stopped, through as many passes as needed. All steps are
    full: the step that ends a pass is filled from the next pass, so `tail` only matters for bad
    rows."""
    epoch: int = 0
    """First epoch; with epoch_steps, the first pass through the rows."""
    position: int = 0
    """First position in that epoch, to resume."""
    first_step: int = 0
    """With epoch_steps: number of steps before this pipeline, since the start of epoch 0."""
    num_epochs: int | None = None
    """Number of epochs; nothing is read ahead after the last. By default there is no end. A Loader
    stops after them; a pipeline without a Loader continues with samples that are not valid."""
    rejected: Mapping[int, str] = field(default_factory=dict)
    """Rows that are not read, with reasons. A Loader adds rows that it cannot decode."""
    columns: tuple[str, ...] = ()
    """Columns of the Index that become outputs: numbers of shape (batch,), or (batch, n) for lists
    of a fixed length n. A Loader also delivers text and lists of other lengths, as lists."""
    outputs: tuple[PlacementOutput, ...] = ()
    """More outputs, ``window``, ``flip`` and ``matrix``: the position of each sample in the image
    of its file, see `readers.Placement`."""
    targets: Mapping[str, Target] = field(default_factory=dict)
    """Masks and boxes by name: `Mask`, `Boxes`, or a `readers.Target` of your own. They get the
    geometry of the images, and become outputs."""

    # Processing of each image.
    mode: Mode = "train"
    """With ``eval`` nothing is random, whatever the other settings: a ``random`` window becomes the
    middle of the image, and nothing is flipped, rotated, zoomed or augmented."""
    crop: tuple[int, int] | None = None
    """Height and width in pixels of the window to cut, or one number for a square. By default the
    whole image is delivered, or in a Loader the windows of the Index, if it has windows."""
    window: WindowMode = "center"
    """Position of the crop in the image: ``center``, ``random``, or ``row``. For ``row`` columns
    ``y`` and ``x`` of the Index have the first row and column of the window. If they are floats,
    the image is resampled (bilinear)."""
    grid: tuple[int, int] | None = None
    """Height and width of a grid, or one number: ``random`` windows begin at multiples of it, or at
    the last position, and so need fewer tiles or chunks of the file. By default they begin
    anywhere. `chunked_pipeline` also takes ``"chunks"``."""
    outside: Outside = "reject"
    """Treatment of windows that are not completely inside the image: ``reject`` them; ``fill`` the
    missing pixels; or, for window ``row``, ``shift`` them inside. With ``fill`` a ``center`` or
    ``random`` window is centred along each axis where it is larger than the image."""
    missing: float | None = None
    """Value of filled pixels, in units of the decoded image, before mean and std; by default NaN.
    It must be set for integer dtypes."""
    flip: Flip = ""
    """Axes that are flipped at random, independently of each other."""
    flip_probability: float = 0.5
    """Probability of the flip of each axis, from 0 to 1."""
    rotate: float = 0.0
    """Largest random rotation of a window in degrees, in both directions."""
    zoom: tuple[float, float] = (1.0, 1.0)
    """Range of the random enlargement of a window, log-uniform, within 0.001 to 1000."""
    random_area: tuple[float, float] | None = None
    """Range of the area of a random region, as a share of the image, e.g. (0.08, 1). Instead of a
    crop, a region of random area, shape and position is read, and resized to `resize`."""
    random_aspect_ratio: tuple[float, float] = ASPECT_RATIOS
    """Range of width / height of random regions, log-uniform."""
    resize_shorter: int | None = None
    """Pixels of the image's shorter side after a resize that comes before the crop; by default
    there is no such resize."""
    resize: tuple[int, int] | None = None
    """Height and width in pixels to which the crop or the random region is resized, or one number
    for a square."""
    interpolation: Interpolation = "bilinear"
    """Filter of `resize` and `resize_shorter`, antialiased unless it is ``nearest``. Windows that
    are rotated, zoomed or between pixels are resampled by nearest pixels with ``nearest``, and
    bilinearly with all other filters. Masks are always resampled by nearest pixels."""
    mean: tuple[float, ...] | None = None
    """Mean to subtract, in units of the decoded image: one number for all channels, or one for
    each channel."""
    std: tuple[float, ...] | None = None
    """Standard deviation to divide by, after the mean is subtracted, in units of the decoded image:
    one number for all channels, or one for each channel."""
    augment: tuple[Augmentation, ...] = ()
    """Random changes of the images after the flips, in this order, such as
    `dali_pipelines.ColorJitter`; none in mode eval."""
    stretch: tuple[Stretch, ...] | None = None
    """Curve from pixel values to the input of a network, in place of mean and std: one `Stretch`,
    or one for each channel. It comes after the geometry and before `augment` and `transform`, and
    is in units of the decoded image."""
    transform: Transform | None = None
    """Function that adds operators of your own to the graph, after `augment` and before mean and
    std; see `dali_pipelines.Chance`."""
    dtype: DType = "float32"
    """Element type of the output, also as a dtype of NumPy, PyTorch or JAX. Integer types deliver
    the stored values of files of that type: FITS integers are not scaled, and mean, std and stretch
    are not allowed. ``uint8`` can be resized, rotated and zoomed, and the results are rounded;
    other integers only with interpolation ``nearest``. DALI has no ``bfloat16``: a Loader for
    PyTorch or JAX rounds float32 to bfloat16; a pipeline without a Loader delivers float32."""
    memory_format: MemoryFormat = "contiguous_format"
    """Order of the images in memory, for PyTorch, also as torch.channels_last. With
    ``channels_last`` the shape stays (batch, channels, height, width), but the channels of a pixel
    are adjacent, as convolutions on GPUs prefer. A pipeline without a Loader then delivers the
    layout HWC."""
    ragged: Ragged = None
    """Treatment of images of several sizes in a batch. ``list`` delivers a list of arrays. ``pad``
    delivers one array of the largest height and width, 0 beyond each image, and the output
    ``size``, int32. By default such a batch is an error."""

    # How it runs.
    device_id: int | None = None
    """CUDA device, or None for the CPU; also as "cpu", "cuda:1" or torch.device."""
    num_threads: int = 2
    """DALI's threads in this pipeline, for operators on the CPU."""
    num_read_processes: int = 1
    """Reader processes of this pipeline (DALI: py_num_workers); 0 to read in this process."""
    start_method: StartMethod = "forkserver"
    """Start method of reader processes. ``forkserver`` imports DALI once for all of them. ``fork``
    only works before CUDA is initialised in this process."""
    read_timeout: float | None = None
    """Maximum time in seconds to read a sample, e.g. from a server that does not answer; after that
    the sample is rejected. By default there is no limit."""
    storage: Storage = field(default_factory=Storage)
    """Settings for requests to S3, Google Cloud Storage and web servers."""
    cache: str | None = None
    """Folder on local disk to cache the bytes of remote objects, for all processes of the machine;
    by default nothing is cached."""
    cache_bytes: int | None = None
    """Maximum size of the cache in bytes; required with `cache`."""
    read_threads: int | None = None
    """Number of samples that a reader process reads concurrently. By default 16 if the Index has
    URLs, otherwise 1."""
    prefetch: int | None = None
    """Batches that the readers keep ready; the graph keeps as many again. By default 2, or 1 if a
    batch takes more than 256 MiB of shared memory."""

    def __init__(self, **settings: Unpack[PipelineSettings]) -> None:
        check_names("PipelineConfig", settings, NAMES)
        if "batch_size" not in settings:
            raise TypeError("PipelineConfig needs a batch_size")
        values: dict[str, Any] = {}
        for one in fields(self):
            default = one.default if one.default_factory is MISSING else one.default_factory()
            values[one.name] = settings.get(one.name, default)
        if values["shuffle"] is None:
            values["shuffle"] = values["mode"] != "eval"
        _check_each(values)
        _check_together(values)
        if values["mode"] == "eval":
            values |= _without_chance(values)
        _check_moving(values["augment"], followed=bool(values["targets"] or values["outputs"]))
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def is_window(self) -> bool:
        """Whether readers read windows instead of whole images."""
        return self.crop is not None or self.random_area is not None

    @property
    def has_own_operators(self) -> bool:
        """Whether the graph has operators between the geometry and mean and std."""
        has_stretch = self.stretch is not None
        return has_stretch or bool(self.augment) or self.transform is not None

    @property
    def layout(self) -> Literal["CHW", "HWC"]:
        """Layout of the images that the graph makes."""
        return "HWC" if self.memory_format == "channels_last" else "CHW"

    @property
    def resized_to(self) -> tuple[int, int] | None:
        """(height, width) of images after the resize in the graph; None if there is no resize."""
        return self.resize if self.resize_shorter is None else self.crop


def _check_each(values: dict[str, Any]) -> None:
    """Check each value by itself, and convert it to the type of its field; or raise ValueError."""
    values["device_id"] = device_of(values["device_id"])
    for name in ("dtype", "memory_format"):
        values[name] = torch_name(values[name])
    defaults = {one.name: one.default for one in fields(PipelineConfig)}
    for name, least in _LEAST.items():
        if values[name] is not None or defaults[name] is not None:
            check_integer(name, values[name], least)
            values[name] = int(values[name])  # DALI rejects some of NumPy's
    if values["seed"] >= 2**64:
        raise ValueError(f"seed must be an integer below 2**64, got {values['seed']}")
    for name, choices in _CHOICES.items():
        check_choice(name, values[name], get_args(choices))
    for name, most in (("rotate", 180), ("flip_probability", 1)):
        check_number(name, values[name], 0, most)
        values[name] = float(values[name])
    check_type("weights", values["weights"], str | None, "the name of a column, or None")
    values["shuffle"] = shuffle_of("shuffle", values["shuffle"])
    if (seconds := values["read_timeout"]) is not None:
        if not is_number(seconds) or not 0 < float(seconds) <= TIMEOUT_MAX:
            raise ValueError(
                f"read_timeout must be positive, in seconds, or None for no limit, got {seconds!r}"
            )
        values["read_timeout"] = float(seconds)
    for name in ("crop", "resize", "grid"):
        values[name] = pair_of(name, values[name])
    for name in ("mean", "std"):
        values[name] = _numbers_of(name, values[name])
    _check_mean_and_std(values["mean"], values["std"])
    for name in ("zoom", "random_area", "random_aspect_ratio"):
        value = values[name]
        is_none = value is None and name == "random_area"
        if not is_none and (not are_all(value, Real) or len(value) != 2):
            raise ValueError(f"{name} must be (least, most), two numbers, got {value!r}")
    _check_transform(values["transform"])
    values["stretch"] = _stretches(values["stretch"])
    _check_rejected(values["rejected"])
    _check_targets(values["targets"])
    _check_augment(values["augment"])
    values["augment"] = tuple(values["augment"])
    check_several_names("columns", values["columns"], "label")
    check_several_names("outputs", values["outputs"], "window")
    check_type("storage", values["storage"], Storage, "Storage(...)")
    check_type("cache", values["cache"], str | None, "the path of a folder, or None")


def _stretches(given: Any) -> tuple[Stretch, ...] | None:
    """Return the stretches of a setting that takes one or several; ValueError for other values."""
    several = [given] if isinstance(given, Stretch) else given
    if several is None:
        return None
    is_list = isinstance(several, Sequence) and not isinstance(several, str)
    if not is_list or not several or not all(isinstance(one, Stretch) for one in several):
        raise ValueError(
            "stretch must be a Stretch, such as Stretch(kind='asinh', unit=100), or one for each "
            f"channel, got {given!r}"
        )
    return tuple(several)


def _check_transform(transform: Any) -> None:
    """Raise ValueError unless this is callable with an image, random numbers and settings."""
    if transform is None:
        return
    torch = sys.modules.get("torch")  # need not be imported
    # A module can be called with any arguments.
    is_module = torch is not None and isinstance(transform, torch.nn.Module)
    if callable(transform) and not is_module:
        try:
            inspect.signature(transform).bind(None, None, None)
            return
        except TypeError:  # it takes other arguments
            pass
        except ValueError:  # a function that is not in Python
            return
    given = f"the module {type(transform).__name__}" if is_module else repr(transform)
    raise ValueError(
        "transform must be a function of (image, chance, config) that adds DALI operators, or "
        f"None, got {given}; apply transforms of torchvision to the delivered batch"
    )


def _check_together(values: Mapping[str, Any]) -> None:
    """Raise ValueError if values contradict each other."""
    _check_order(values["shuffle"], values["block_rows"], values["weights"])
    _check_dtype(values)
    Geometry(**{one.name: values[one.name] for one in fields(Geometry)})
    if values["stretch"] is not None and not (values["mean"] is None is values["std"]):
        raise ValueError(
            "stretch replaces mean and std of the pipeline: leave out mean and std, and set those "
            "of the Stretch, which apply after its curve"
        )
    _check_missing(values["missing"], values["outside"], values["dtype"], values["augment"])
    if values["random_area"] is not None and values["resize"] is None:
        raise ValueError("random_area needs resize, the size of the delivered regions: set both")
    if values["resize_shorter"] is not None and values["resize"] is not None:
        raise ValueError("resize_shorter and resize exclude each other: leave out one")
    if values["memory_format"] == "channels_last" and values["ragged"] is not None:
        raise ValueError(
            f"memory_format 'channels_last' is for images of one size: set crop or resize, and "
            f"leave out ragged={values['ragged']!r}"
        )
    if values["flip_probability"] != 0.5 and not values["flip"]:
        raise ValueError(
            f"flip_probability={values['flip_probability']!r} needs flip: set flip to 'h', 'v' or "
            "'hv', or leave out flip_probability"
        )
    resizes = values["resize"] is not None or values["resize_shorter"] is not None
    if values["interpolation"] in ("bicubic", "lanczos") and not resizes:
        raise ValueError(
            f"interpolation {values['interpolation']!r} needs resize or resize_shorter: set one of "
            "them, or leave out interpolation; aia_pipeline has order instead"
        )
    cache, cache_bytes = values["cache"], values["cache_bytes"]
    if (cache is None) != (cache_bytes is None):
        raise ValueError(
            f"set both cache, a folder, and cache_bytes, its maximum size, or neither; got "
            f"cache={cache!r} and cache_bytes={cache_bytes!r}"
        )


def _check_dtype(values: Mapping[str, Any]) -> None:
    """Raise ValueError if the dtype keeps values as stored, and a setting would change them."""
    dtype = values["dtype"]
    calculated = [name for name in ("mean", "std", "stretch") if values[name] is not None]
    # Interpolated values of 8 bits are rounded, and nearest pixels are unchanged.
    if dtype != "uint8" and values["interpolation"] != "nearest":
        calculated += [name for name in ("resize", "resize_shorter") if values[name] is not None]
        calculated += ["rotate"] * (values["rotate"] != 0)
        calculated += ["zoom"] * (tuple(values["zoom"]) != (1, 1))
    if dtype not in FLOATS and calculated:
        raise ValueError(
            f"dtype {dtype!r} keeps values as stored: leave out {' and '.join(calculated)}, or "
            "choose float32"
        )
    own = ["augment"] * bool(values["augment"])
    own += ["transform"] * (values["transform"] is not None)
    if dtype in _INTEGERS_AS_STORED and own:
        raise ValueError(
            f"dtype {dtype!r} keeps values as stored: leave out {' and '.join(own)}, or choose "
            "float32, or uint8 for images of 8 bits"
        )


def _without_chance(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that mode ``eval`` replaces; ValueError if random_area is given."""
    if values["random_area"] is not None:
        raise ValueError(
            "random_area is random, and mode 'eval' is not: pass resize_shorter and crop, or crop "
            "and resize, instead"
        )
    least, most = values["zoom"]
    return {
        "window": "row" if values["window"] == "row" else "center",
        "grid": None,
        "flip": "",
        "flip_probability": 0.5,
        "rotate": 0.0,
        "zoom": (least, most) if least == most else (1.0, 1.0),
        "augment": (),
    }


def _check_order(shuffle: Shuffle, block_rows: int | None, weights: str | None) -> None:
    """Raise ValueError if settings of the order contradict each other."""
    if weights is not None and shuffle is not True:
        raise ValueError(
            f"weights={weights!r} draws rows at random, which needs shuffle=True, got {shuffle!r}: "
            "leave out shuffle and mode 'eval'"
        )
    if block_rows is not None and isinstance(shuffle, bool):
        raise ValueError(f"block_rows={block_rows} needs shuffle='blocks' or 'buckets'")
    if block_rows is None and shuffle == "buckets":
        raise ValueError(
            "shuffle='buckets' needs block_rows: the rows of a step (batch_size times the number "
            "of devices), or a multiple"
        )


def _numbers_of(name: str, value: float | tuple[float, ...] | None) -> tuple[float, ...] | None:
    """Return the numbers of a setting that takes one or several; ValueError for other values."""
    if value is None:
        return None
    values: Any = (value,) if isinstance(value, Real) else value
    if hasattr(values, "tolist"):  # an array or a tensor, also of shape (channels, 1, 1)
        array = np.asarray(values.tolist())
        if array.size == max(array.shape, default=1):
            values = array.ravel().tolist()
    if not are_all(values, Real):
        raise ValueError(f"{name} must be a number, or one for each channel, got {value!r}")
    return tuple(float(number) for number in values)


def _check_mean_and_std(mean: tuple[float, ...] | None, std: tuple[float, ...] | None) -> None:
    """Raise ValueError if a number, or 1 / std, is not finite in float32."""
    if mean is not None and not all(abs(value) <= _LARGEST for value in mean):
        raise ValueError(f"mean must be finite in float32, got {mean}")
    if std is not None and not all(LEAST_STD <= value <= 1 / LEAST_STD for value in std):
        raise ValueError(f"std must be positive, and 1 / std finite in float32, got {std}")


def _check_missing(missing: Any, outside: str, dtype: str, augment: Sequence[Any]) -> None:
    """Raise ValueError if this cannot be the value of filled pixels; None is NaN."""
    if outside != "fill":
        if missing is not None:
            raise ValueError(f"missing={missing!r} is for filled pixels: set outside='fill'")
        return
    if missing is not None and not is_number(missing):
        raise ValueError(f"missing must be a number, or None for NaN, got {missing!r}")
    kind = np.dtype("float32" if dtype == "bfloat16" else dtype)
    of_8_bits = [type(one).__name__ for one in augment if one.of_8_bits]
    if kind.kind == "f" and not of_8_bits:
        if missing is not None and abs(missing) > float(np.finfo(kind).max):
            raise ValueError(f"missing={missing!r} is not a value of {dtype}")
        return
    what = f"dtype {dtype!r}" if kind.kind != "f" else of_8_bits[0]
    limits = np.iinfo(kind if kind.kind != "f" else np.uint8)
    if missing is None or not holds(limits, missing):
        given = "" if missing is None else f", got {missing!r}"
        raise ValueError(
            f"{what} has no NaN for filled pixels: set missing to an integer from {limits.min} to "
            f"{limits.max} that is exact in float32, such as 0{given}"
        )


def _check_rejected(rejected: object) -> None:
    """Raise ValueError unless these are reasons by row."""
    if not isinstance(rejected, Mapping) or not all(is_integer(row, 0) for row in rejected):
        raise ValueError(f"rejected must be a mapping of rows to reasons, got {rejected!r}")


def _check_targets(targets: object) -> None:
    """Raise ValueError if this is not a mapping of names to targets."""
    if not isinstance(targets, Mapping):
        raise ValueError(
            f"targets must be a mapping, such as {{'mask': Mask('mask_path')}}, got {targets!r}"
        )
    for name, target in targets.items():
        if not isinstance(name, str) or isinstance(target, type) or not isinstance(target, Target):
            raise ValueError(
                "targets must map names to a Mask, Boxes or your own Target, got "
                f"{name!r}: {target!r}"
            )


def _check_augment(augment: Any) -> None:
    """Raise ValueError unless these are augmentations."""
    if not isinstance(augment, Sequence) or isinstance(augment, str):
        raise ValueError(
            f"augment must be a tuple of augmentations, such as (Blur(3),), got {augment!r}"
        )
    for one in augment:
        if isinstance(one, type) or not callable(getattr(one, "add", None)):
            instead = f": pass {one.__name__}(...)" if isinstance(one, type) else ""
            raise ValueError(
                f"augment must be augmentations, such as Blur(3) or ColorJitter(0.4), got {one!r}"
                f"{instead}"
            )


def _check_moving(augment: Iterable[Augmentation], *, followed: bool) -> None:
    """Raise ValueError if an augmentation moves pixels that outputs or targets describe."""
    moving = [type(one).__name__ for one in augment if one.moves_pixels]
    if moving and followed:
        raise ValueError(
            f"{moving[0]} also shears, shifts and rotates images, but not targets and outputs: set "
            "rotate and zoom, and a ColorJitter, instead"
        )
