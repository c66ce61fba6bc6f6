"""The settings that all pipeline factories share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from numbers import Real
from typing import Unpack, get_args

from dali_pipelines.runtime.devices import check_device
from dali_pipelines.settings import (
    Augmentation,
    DType,
    Mode,
    PipelineSettings,
    Ragged,
    StartMethod,
    Transform,
    check_augment,
    check_moving,
    check_names,
)
from dali_pipelines.values import (
    are_all,
    check_cache,
    check_choice,
    check_mean_and_std,
    check_missing,
    check_order,
    check_rejected,
    check_several_names,
    check_targets,
    check_transform,
    check_type,
    numbers_of,
    pair_of,
    shuffle_of,
    time_limit,
)
from readers.places.storage import Storage
from readers.sampling.geometry import ASPECT_RATIOS, Flip, Geometry, WindowMode
from readers.sampling.order import Shuffle
from readers.sampling.placement import PlacementOutput
from readers.sampling.row_window import Outside
from readers.sampling.schedule import Tail
from readers.targets.contract import Target
from readers.values import check_integer, check_number

NAMES = frozenset(PipelineSettings.__annotations__)
"""Names of all settings."""

_OPTIONAL_COUNTS = (
    *("num_epochs", "prefetch", "epoch_steps", "resize_shorter", "block_rows"),
    *("cache_bytes", "read_threads"),
)


@dataclass(frozen=True, slots=True, init=False)
class PipelineConfig:
    """Keyword arguments of a pipeline factory, checked. Names are DALI's where DALI has one.

    Each is described below its field in the source, dali_pipelines/config.py, and in the reference.
    """

    # What is read, and in which order.
    batch_size: int
    """Samples per batch of this pipeline."""
    shard_id: int = 0
    """Part of each step that this pipeline reads, see `readers.sampling.shard.Shard`."""
    num_shards: int = 1
    """Pipelines that share the epoch, over all devices and nodes."""
    seed: int = 0
    """In [0, 2**64): determines the order and all random draws."""
    shuffle: Shuffle = True
    """A new order in each epoch; False reads the rows in the order of the Index, and is the default
    in mode eval. With ``"blocks"`` neighbouring rows stay near each other, see
    `readers.sampling.blocks.BlockOrder`."""
    block_rows: int | None = None
    """Rows of a block, about as many as a file has; None for 256. Only with shuffle "blocks"."""
    weights: str | None = None
    """Numeric column of the Index: each position draws a row in proportion to it, with replacement;
    see `dali_pipelines.Loader`."""
    tail: Tail = "partial"
    """Treatment of the last, incomplete step of an epoch."""
    epoch_steps: int | None = None
    """Steps of an epoch; None for one pass through the rows, see
    `readers.sampling.schedule.Schedule`."""
    epoch: int = 0
    """First epoch; with epoch_steps, the first pass through the rows."""
    position: int = 0
    """First position in that epoch, to resume."""
    first_step: int = 0
    """With epoch_steps: steps that came before, since the start of epoch 0."""
    num_epochs: int | None = None
    """Epochs, counted from 0, after which nothing is read ahead; None for no end. A Loader ends
    there; a pipeline without one goes on, with samples that are not valid."""
    rejected: Mapping[int, str] = field(default_factory=dict)
    """Rows that are known to be undecodable, and why; the Loader finds them when a graph fails."""
    columns: tuple[str, ...] = ()
    """Numeric columns of the Index that become outputs, shape (batch,), or (batch, n) of lists of a
    fixed length n. Loaders look up others."""
    outputs: tuple[PlacementOutput, ...] = ()
    """More outputs that say where each sample is in the image of its file, see
    `readers.sampling.placement.Placement`: ``window``, ``flip``, ``matrix``."""
    targets: Mapping[str, Target] = field(default_factory=dict)
    """Masks and boxes by name, which follow the geometry of the images and become outputs: `Mask`,
    `Boxes`, or a `readers.targets.contract.Target` of your own."""

    # What is done to each image.
    mode: Mode = "train"
    """``eval`` turns all chance off, whatever the settings for that are: windows ``random`` are
    centred, those of rows stay where they are; nothing is flipped, rotated, or zoomed at random."""
    crop: tuple[int, int] | None = None
    """(height, width) in pixels of the window to cut; None for the whole image; an int: square."""
    window: WindowMode = "center"
    """Position of the crop in the image: ``center``, ``random``, or ``row``, where columns ``y``
    and ``x`` of the Index give its first row and column; the image is resampled, bilinear, where
    these are floats."""
    outside: Outside = "reject"
    """Treatment of windows that are not wholly inside the image: ``reject`` them; ``fill`` what is
    missing, and read only the rest; or, for window ``row``, ``shift`` them inside. Windows
    ``center`` and ``random`` that are larger than the image are centred on it, axis by axis."""
    missing: float | None = None
    """Value of filled pixels, in units of the decoded image, before mean and std; by default NaN.
    It must be given for integer dtypes."""
    flip: Flip = ""
    """Axes that are flipped, each with probability 1/2."""
    rotate: float = 0.0
    """Largest random rotation of a window in degrees, either way."""
    zoom: tuple[float, float] = (1.0, 1.0)
    """Range of the random enlargement of a window, log-uniform, within 0.001 to 1000."""
    random_area: tuple[float, float] | None = None
    """Least and most share of the image's area, e.g. (0.08, 1): a region of random size, shape and
    place is read in place of a crop, and resized to `resize`. None for no such regions."""
    random_aspect_ratio: tuple[float, float] = ASPECT_RATIOS
    """Least and most width / height of these regions, log-uniform."""
    resize_shorter: int | None = None
    """Pixels of the image's shorter side, to which it is resized before the crop; the same filter
    as of `resize`. None to crop the image itself."""
    resize: tuple[int, int] | None = None
    """(height, width) in pixels after the crop or the random region, bilinear with antialiasing; an
    int: square."""
    mean: tuple[float, ...] | None = None
    """Subtracted from each channel, in units of the decoded image. A float is for all channels."""
    std: tuple[float, ...] | None = None
    """Each channel is divided by it after the mean was subtracted, in units of the image."""
    augment: tuple[Augmentation, ...] = ()
    """Random changes of the images after the flips, one after the other, such as
    `dali_pipelines.ColorJitter`; none in mode eval."""
    transform: Transform | None = None
    """Adds operators of your own to the graph, after `augment` and before mean and std; see
    `dali_pipelines.graph.own.chance.Chance`."""
    dtype: DType = "float32"
    """Element type of the output. Integer types give the values as stored in the files, which must
    be of that type: then there is no mean, std or resize, and FITS integers are not scaled."""
    ragged: Ragged = None
    """Images of several sizes in a batch: ``list`` makes a list of arrays; ``pad`` one array of the
    largest height and width, 0 beyond each image, and ``size``, int32; None an error."""

    # How it runs.
    device_id: int | None = None
    """CUDA device, or None to run the same graph on the CPU."""
    num_threads: int = 2
    """DALI's threads in this pipeline, for operators on the CPU."""
    num_read_processes: int = 1
    """Reader processes of this pipeline (DALI: py_num_workers); 0 to read in this process."""
    start_method: StartMethod = "forkserver"
    """Start of reader processes. `forkserver` imports DALI once for all of them; `fork` must come
    before CUDA is initialised in this process."""
    read_timeout: float | None = None
    """Seconds after which a sample is rejected whose read blocks (e.g. a server does not answer);
    None for no limit."""
    storage: Storage = field(default_factory=Storage)
    """Settings for requests of objects of S3, Google Cloud Storage and web servers."""
    cache: str | None = None
    """Folder on local disk that keeps the bytes of such objects, for all processes of the machine;
    None to keep nothing."""
    cache_bytes: int | None = None
    """Bytes that the cache may take."""
    read_threads: int | None = None
    """Samples that each reader process reads at the same time, of those that DALI has asked for. By
    default 16 if the Index has URLs, else 1."""
    prefetch: int | None = None
    """Batches that the readers keep ready, and the graph as well. By default 2, or 1 where a batch
    takes more than 256 MiB in shared memory."""

    def __init__(self, **settings: Unpack[PipelineSettings]) -> None:
        check_names("PipelineConfig", settings, NAMES)
        if "batch_size" not in settings:
            raise TypeError("PipelineConfig needs a batch_size")
        for one in fields(self):
            default = one.default if one.default_factory is MISSING else one.default_factory()
            object.__setattr__(self, one.name, settings.get(one.name, default))
        if self.mode == "eval" and "shuffle" not in settings:
            object.__setattr__(self, "shuffle", False)
        self._check()
        if self.mode == "eval":
            self._turn_chance_off()
        check_moving(self.augment, followed=bool(self.targets or self.outputs))

    def _check(self) -> None:
        self._check_types()
        for name in ("crop", "resize"):
            object.__setattr__(self, name, pair_of(name, getattr(self, name)))
        for name in ("mean", "std"):
            object.__setattr__(self, name, numbers_of(name, getattr(self, name)))
        for name in ("zoom", "random_area", "random_aspect_ratio"):
            value = getattr(self, name)
            if value is None and name == "random_area":
                continue
            if not are_all(value, Real) or len(value) != 2:
                raise ValueError(f"{name} must be (least, most), two numbers, got {value!r}")
        check_mean_and_std(self.mean, self.std)
        names = ("resize", "resize_shorter", "mean", "std")
        calculated = [name for name in names if getattr(self, name) is not None]
        calculated += ["rotate"] * (self.rotate != 0) + ["zoom"] * (tuple(self.zoom) != (1, 1))
        if self.dtype not in ("float32", "float16") and calculated:
            raise ValueError(
                f"dtype {self.dtype!r} gives the values as stored: "
                f"leave out {' and '.join(calculated)}, or choose float32"
            )
        check_order(self.shuffle, self.block_rows, self.weights)
        object.__setattr__(self, "read_timeout", time_limit("read_timeout", self.read_timeout))
        for name, choices in (
            ("tail", Tail),
            ("mode", Mode),
            ("window", WindowMode),
            ("outside", Outside),
            ("flip", Flip),
            ("dtype", DType),
            ("ragged", Ragged),
            ("start_method", StartMethod),
        ):
            check_choice(name, getattr(self, name), get_args(choices))
        own = ["augment"] * bool(self.augment) + ["transform"] * (self.transform is not None)
        if own and self.dtype in ("uint16", "int16", "int32"):
            raise ValueError(
                f"dtype {self.dtype!r} gives the values as stored: leave out {' and '.join(own)}, "
                "or choose float32, or uint8 for images of 8 bits"
            )
        Geometry(**{one.name: getattr(self, one.name) for one in fields(Geometry)})
        check_missing(self.missing, self.outside, self.dtype, self.augment)
        if self.random_area is not None and self.resize is None:
            raise ValueError("random_area needs resize, the one size to which regions are resized")
        if self.resize_shorter is not None and self.resize is not None:
            raise ValueError("resize_shorter and resize are two ways to resize: leave out one")

    def _turn_chance_off(self) -> None:
        if self.random_area is not None:
            raise ValueError(
                "random_area draws regions, and mode 'eval' is without chance: give resize_shorter "
                "and crop, or crop and resize"
            )
        window = "row" if self.window == "row" else "center"
        least, most = self.zoom
        zoom = (least, most) if least == most else (1.0, 1.0)
        for name, value in (("window", window), ("flip", ""), ("rotate", 0.0), ("zoom", zoom)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "augment", ())

    @property
    def is_window(self) -> bool:
        """Whether readers get windows, instead of reading whole images."""
        return self.crop is not None or self.random_area is not None

    @property
    def has_own_operators(self) -> bool:
        """Whether the graph has operators between the geometry and mean and std."""
        return bool(self.augment) or self.transform is not None

    @property
    def resized_to(self) -> tuple[int, int] | None:
        """(height, width) to which the graph resizes what was decoded; None if it does not."""
        return self.resize if self.resize_shorter is None else self.crop

    def _check_types(self) -> None:
        check_device(self.device_id)
        for least, names in (
            (1, ("batch_size", "num_shards", "num_threads", "prefetch")),
            (1, ("epoch_steps", "resize_shorter", "block_rows", "cache_bytes", "read_threads")),
            (0, ("shard_id", "seed", "epoch", "position", "first_step")),
            (0, ("num_epochs", "num_read_processes")),
        ):
            for name in names:
                value = getattr(self, name)
                if value is None and name in _OPTIONAL_COUNTS:
                    continue
                check_integer(name, value, least)
                object.__setattr__(self, name, int(value))  # DALI rejects some of NumPy's
        if self.seed >= 2**64:
            raise ValueError(f"seed must be an integer below 2**64, got {self.seed}")
        check_number("rotate", self.rotate, 0, 180)
        check_type("weights", self.weights, str | None, "the name of a column, or None")
        check_transform(self.transform)
        object.__setattr__(self, "shuffle", shuffle_of("shuffle", self.shuffle))
        check_rejected(self.rejected)
        check_targets(self.targets)
        check_augment(self.augment)
        object.__setattr__(self, "augment", tuple(self.augment))
        check_several_names("columns", self.columns, "label")
        check_several_names("outputs", self.outputs, "window")
        check_cache(self.storage, self.cache, self.cache_bytes)
