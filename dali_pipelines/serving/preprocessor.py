"""Preprocessing of a Loader in mode ``eval`` for bytes instead of the rows of an Index."""

from __future__ import annotations

import inspect
import io
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa

from dali_pipelines.aia.calibration import Calibration
from dali_pipelines.config import PipelineConfig
from dali_pipelines.factories import aia_pipeline, fits_pipeline
from dali_pipelines.frameworks.choose import FrameworkName, framework_named, image_format
from dali_pipelines.frameworks.contract import Array, Batch
from dali_pipelines.frameworks.numpy import to_numpy
from dali_pipelines.frameworks.outputs import run_once
from dali_pipelines.graph.images import checked_hdus
from dali_pipelines.graph.pipeline import ReaderPipeline
from dali_pipelines.keywords import bound_keywords, title, without_keywords
from dali_pipelines.loading.batches import bad_slots, valid_only
from dali_pipelines.loading.recovery import damage_of, find_undecodable, image_names
from dali_pipelines.loading.settings import check_settings
from dali_pipelines.runtime.devices import DeviceLike, device_of
from dali_pipelines.serving import saved
from dali_pipelines.serving.contents import WHOLE, Contents
from dali_pipelines.values import check_choice, check_several_names
from readers.fits.multi_hdu import Hdu
from readers.index.grouping.frames import Frames, with_frames
from readers.index.table import Index
from readers.source import Source
from readers.values import check_integer

OF_ROWS = frozenset(("columns", "targets", "weights"))
"""Settings that take values from an Index, and do not change images."""
OF_A_RUN = frozenset(
    (
        *("batch_size", "shard_id", "num_shards", "seed", "shuffle", "block_rows", "tail"),
        *("epoch_steps", "epoch", "position", "first_step", "num_epochs", "rejected"),
        *("device_id", "num_threads", "num_read_processes", "start_method", "read_timeout"),
        *("storage", "cache", "cache_bytes", "read_threads", "prefetch", "memory_format"),
    )
)
"""Settings of the order and the reading of rows."""

_NOWHERE = "/dev/null/content"
"""Path that cannot exist, for the rows of a graph before it gets contents."""
_NAMED = 5
"""Maximum number of rejected contents in a message."""
_SIZES = (1024, 1088), (1088, 1024)
"""Two image sizes (height, width). Axes of outputs that differ between these depend on the size of
the image, even if a transform cuts off a part."""
_LENGTHS = 1 << 14, 1 << 16
"""Two lengths of recordings in samples, for the same purpose."""


class PreprocessError(ValueError):
    """Error if some contents of a call cannot be read.

    Parameters
    ----------
    rejected : mapping of int to str
        Reason for each rejected content, by its number in the call, counted from 0.
    """

    def __init__(self, rejected: Mapping[int, str]) -> None:
        self.rejected = dict(rejected)
        named = [f"content {k}: {reason}" for k, reason in [*self.rejected.items()][:_NAMED]]
        rest = len(self.rejected) - len(named)
        super().__init__("; ".join(named) + (f"; and {rest} more" if rest else ""))

    def __reduce__(self) -> tuple[Any, ...]:
        return PreprocessError, (self.rejected,)


class Preprocessor:
    """Preprocess the bytes of files for inference, exactly like a Loader in mode ``eval``.

    The graph and the Reader of the factory run in this process. Several threads may share a
    Preprocessor; their calls run one after the other. A forked process builds its own graphs, and
    cannot use a GPU. A pickle contains only the settings.

    Parameters
    ----------
    factory : callable
        Factory of the Loader: `fits_pipeline`, `aia_pipeline`, `jpeg_pipeline`, `npy_pipeline`,
        or your own.
    max_batch : int
        Maximum number of contents in a run of the graph; calls with more contents run it several
        times.
    device_id : int, optional
        CUDA device, or None for the CPU.
    framework : {"torch", "jax", "numpy", "cupy", "dlpack"}
        Type of the arrays, as in the Loader.
    num_threads : int
        DALI's threads for operators on the CPU.
    parts, offsets : sequence of str
        For samples of several files: names of the channels, and time offsets of a sequence, see
        `Index.group`.
    **settings
        Keywords of the factory that affect images: crop, resize, mean, std, dtype, hdus, transform,
        and so on. Random settings have no effect, as in mode ``eval``.

    Raises
    ------
    TypeError
        If the factory lacks a setting, or the setting does not apply to contents.
    ValueError
        If settings contradict each other, or need an Index.

    Examples
    --------
    >>> pre = Preprocessor(jpeg_pipeline, resize_shorter=256, crop=224)  # doctest: +SKIP
    >>> pre([content, "cat.jpg"])["image"].shape  # doctest: +SKIP
    torch.Size([2, 3, 224, 224])
    """

    def __init__(
        self,
        factory: Callable[..., ReaderPipeline],
        *,
        max_batch: int = 16,
        device_id: DeviceLike = None,
        framework: FrameworkName = "torch",
        num_threads: int = 2,
        parts: Sequence[str] = (),
        offsets: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        if not callable(factory):
            raise TypeError(f"factory must be a function such as jpeg_pipeline, got {factory!r}")
        check_integer("max_batch", max_batch, 1)
        check_integer("num_threads", num_threads, 1)
        device_id = device_of(device_id)
        check_several_names("parts", parts, "171")
        check_several_names("offsets", offsets, "-12min")
        own = inspect.signature(Preprocessor).parameters.keys() - {"settings"}
        given: dict[str, Any] = bound_keywords(factory, own, "Preprocessor") | dict(settings)
        _check_for_contents(given)
        given["mode"] = "eval"
        converted = check_settings(
            factory, given, own, taker="Preprocessor", not_taken=OF_ROWS | OF_A_RUN
        )
        given = _effective(given, converted)
        self.factory = without_keywords(factory)
        if self.factory is fits_pipeline and given.get("hdus") is not None:
            checked_hdus(given["hdus"])
        if self.factory is aia_pipeline:
            given = _calibrated(given)
        self.settings: dict[str, Any] = given
        """Keywords of the factory that affect images."""
        self.frames = Frames(tuple(parts), tuple(offsets))
        self.max_batch, self.device_id, self.num_threads = max_batch, device_id, num_threads
        self.framework: FrameworkName = framework
        self._framework = framework_named(framework)
        self._framework.check({**given, "tail": "partial", "bad_sample": "raise"})
        self._format = image_format(framework, self._framework, given)
        self._is_closed = False
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._graphs: dict[int, ReaderPipeline] = {}
        self._process = os.getpid()  # last, because other threads may check it

    def __call__(
        self, contents: Iterable[Any], *, bad_sample: Literal["raise", "skip"] = "raise"
    ) -> Batch:
        """Preprocess contents.

        Parameters
        ----------
        contents : iterable
            Any number of contents. Each is the bytes of a file, its path or URL, or an array. An
            array holds encoded bytes, as uint8 with one axis, or an image as files of the format
            store it: for `jpeg_pipeline` uint8 or uint16, shape (height, width) or (height, width,
            3). A sample of several files is a mapping from the names in `files` to contents; leave
            out missing files, or pass None.
        bad_sample : {"raise", "skip"}
            Raise PreprocessError if a content cannot be read, or skip the content.

        Returns
        -------
        dict
            Batch like that of a Loader: ``image`` and the other outputs of the factory; ``row``,
            the number of each content in the call, int64; and ``valid``, all True. With ``skip``
            also ``rejected``, a dict from the number of each rejected content to the reason.

        Raises
        ------
        PreprocessError
            If a content cannot be read.
        RuntimeError
            If the Preprocessor is closed, or uses a GPU and this process was forked.
        TypeError
            If a content is not bytes, a path or an array.
        ValueError
            If images differ in size, without crop, resize or `ragged`.
        """
        single = bytes | bytearray | memoryview | str | os.PathLike | Mapping | io.IOBase
        if isinstance(contents, single):
            raise TypeError(
                f"expected several contents, such as [content], got {type(contents).__name__}"
            )
        check_choice("bad_sample", bad_sample, ("raise", "skip"))
        contents = list(contents)
        starts = range(0, len(contents) or 1, self.max_batch)
        if len(starts) > 1 and self.settings.get("ragged") == "pad":
            raise ValueError(
                f"with ragged='pad', pass at most max_batch={self.max_batch} contents, got "
                f"{len(contents)}"
            )
        rejected: dict[int, str] = {}
        batches = []
        for start in starts:
            batch, bad = self._preprocessed(contents[start : start + self.max_batch], start)
            batches.append(batch)
            rejected |= bad
        if rejected and bad_sample == "raise":
            raise PreprocessError(rejected)
        joined = self._joined(batches)
        return joined if bad_sample == "raise" else {**joined, "rejected": rejected}

    def image(self, content: Any) -> Array:
        """Return the image of one content, shape (C, height, width), or raise the errors of a call.

        Of a recording this is its ``audio`` or ``features``, and of a video the frames of its clip.
        It can be the transform of a PyTorch Dataset.
        """
        batch = self([content])
        name = next((name for name in ("audio", "features") if name in batch), "image")
        return batch[name][0]

    def build(self) -> None:
        """Build the graphs for all batch sizes; otherwise the first calls build them."""
        size = 1
        while size < self.max_batch:
            self._preprocessed([], 0, size)
            size *= 2
        self._preprocessed([], 0, self.max_batch)

    def outputs(self) -> dict[str, tuple[np.dtype[Any], tuple[int | None, ...]]]:
        """Return the dtype and the shape of each output for one content.

        The length of an axis is None if it depends on the content. The dtype of bfloat16 is
        float32, because NumPy lacks bfloat16.
        """
        first, second = map(self._blank, _SIZES, _LENGTHS)
        found = {}
        for name, array in first.items():
            lengths = zip(array.shape, second[name].shape, strict=True)
            shape = tuple(one if one == other else None for one, other in lengths)
            found[name] = array.dtype, shape
        return found

    def _blank(self, image: tuple[int, int], samples: int) -> dict[str, Any]:
        """Return the outputs for a blank image or recording of this size."""
        with self._locked():
            pipeline = self._pipeline(1, 1)
            size = image if pipeline.output_names[0] == "image" else (1, samples)
            pipeline.source.usual_size = pipeline.source.empty_size = size
            pipeline.build()
            try:
                batch = run_once(pipeline, to_numpy)
            finally:
                pipeline.close()
        return {name: array[0] for name, array in batch.items() if name != "report"}

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files of one content; empty if a content is a single file."""
        if self.frames != Frames():
            return self.frames.parts
        hdus = self.settings.get("hdus")
        images = hdus.values() if isinstance(hdus, Mapping) else ()
        parts = {one.part for one in images if isinstance(one, Hdu) and one.part is not None}
        return (WHOLE, *sorted(parts)) if parts else ()

    @property
    def digest(self) -> str:
        """SHA-256 of the settings, in hexadecimal, as in the ``state_dict`` of a Loader.

        ValueError if the settings cannot be saved.
        """
        return saved.document_of(self.factory, self.frames, self.settings)["digest"]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the settings to a TOML file, and copy calibration tables into its folder.

        Parameters
        ----------
        path : path
            Must end in ``.toml``. An existing file is replaced.

        Raises
        ------
        OSError
            If a file cannot be written, or a calibration table was moved or changed.
        ValueError
            If a setting is a function without a name in a module, such as a lambda, or an absolute
            path.
        """
        saved.save(path, self.factory, self.frames, self.settings)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        max_batch: int = 16,
        device_id: DeviceLike = None,
        framework: FrameworkName = "torch",
        num_threads: int = 2,
    ) -> Self:
        """Make a Preprocessor from a file that `save` wrote.

        This imports modules that the file names: load only files that you trust.

        Parameters
        ----------
        path : path
            The TOML file, in one folder with its calibration tables.
        max_batch, device_id, framework, num_threads : optional
            See the class.

        Raises
        ------
        ImportError
            If a factory or transform of your own cannot be imported.
        OSError
            If a file cannot be read.
        ValueError
            If `save` did not write this file, if it was changed since, or if a release with other
            results wrote it.
        """
        return cls(
            **saved.load(path),
            max_batch=max_batch,
            device_id=device_id,
            framework=framework,
            num_threads=num_threads,
        )

    def close(self) -> None:
        """Free the graphs. Later calls raise RuntimeError."""
        self._is_closed = True
        if self._process == os.getpid():
            with self._lock:
                graphs, self._graphs = self._graphs, {}
                for pipeline in graphs.values():
                    pipeline.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        own = ("_lock", "_graphs", "_process", "_framework")
        return {name: value for name, value in vars(self).items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._framework = framework_named(self.framework)
        self._begin()

    def __repr__(self) -> str:
        settings = "".join(f", {name}={value!r}" for name, value in self.settings.items())
        return f"Preprocessor({title(self.factory)}{settings})"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold this process's lock on the graphs."""
        if self._process != os.getpid():
            if self.device_id is not None:
                raise RuntimeError(
                    f"process {self._process} made this Preprocessor, and it cannot use CUDA in "
                    f"process {os.getpid()}, which was forked from it: start processes with "
                    "'spawn' or 'forkserver'"
                )
            self._begin()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("this Preprocessor is closed: make another one")
            yield

    def _preprocessed(
        self, contents: Sequence[Any], first: int, size: int | None = None
    ) -> tuple[Batch, dict[int, str]]:
        """Return the batch of at most `max_batch` contents, and the reasons of rejections."""
        size = size or min(self.max_batch, 1 << max(0, len(contents) - 1).bit_length())
        with self._locked():
            rejected: dict[int, str] = {}
            batch = self._run(size, contents, first, rejected)
            while batch is None:  # an undecodable image makes the batch fail
                batch = self._run(size, contents, first, rejected)
            for slot, _, report in bad_slots(batch):
                if slot < len(contents) and slot not in rejected:
                    if report.damaged:
                        names = image_names(self.settings.get("hdus")) or self.frames.parts
                        rejected[slot] = damage_of(report.image, names)
                    elif report.rejected_row is not None:
                        rejected[slot] = report.reason
            valid = np.asarray(batch["valid"]) & (np.arange(size) < len(contents))
            del batch["report"]
            batch = valid_only(batch, valid, self._framework)
            batch["row"] = batch["row"] + first
            batch = self._framework.formatted(batch, self._format)
            (batch,) = self._framework.deliver([batch])
            return batch, {first + slot: rejected[slot] for slot in sorted(rejected)}

    def _run(
        self, size: int, contents: Sequence[Any], first: int, rejected: dict[int, str]
    ) -> Batch | None:
        """Run the graph. If it fails on some contents, add them to `rejected` and return None."""
        if size not in self._graphs:
            pipeline = self._pipeline(size, size)
            pipeline.build()
            self._graphs[size] = pipeline
        rows = self._hold(self._graphs[size], contents, rejected, first)
        pipeline = self._graphs.pop(size)  # put back only if it still works
        try:
            batch = run_once(pipeline, self._framework.converter(pipeline))
        except RuntimeError:
            pipeline.close()
            found = dict(find_undecodable(partial(self._single, contents), range(len(contents))))
            if not found.keys() - rejected.keys():
                raise
            rejected |= found
            return None
        except BaseException:
            pipeline.close()
            raise
        finally:
            rows.hold(())  # free the contents
        self._graphs[size] = pipeline
        return batch

    def _single(
        self, contents: Sequence[Any], position: int, left_out: Mapping[int, str]
    ) -> ReaderPipeline:
        pipeline = self._pipeline(len(contents), 1, position=position)
        self._hold(pipeline, contents, left_out)
        return pipeline

    def _hold(
        self,
        pipeline: ReaderPipeline,
        contents: Sequence[Any],
        rejected: Mapping[int, str],
        first: int = 0,
    ) -> Contents:
        """Set the contents of a graph and return its rows. TypeError as in `Contents.hold`."""
        source = pipeline.source
        rows: Contents = source.columns  # type: ignore[assignment]
        rows.hold(contents, rejected, first)
        if self.settings.get("transform") is not None and source.blank_shape is None:
            # The transform also runs on empty slots, and may fail if they are too small.
            source.usual_size = source.empty_size = _size_of_first(source)
        return rows

    def _pipeline(self, num_rows: int, batch_size: int, **settings: Any) -> ReaderPipeline:
        """Make a pipeline whose rows are contents, initially empty."""
        parts = [name for name in self.files if name != WHOLE]
        columns = {"path": [_NOWHERE] * num_rows}
        missing = pa.array([None] * num_rows, pa.string())
        table = pa.table({**columns, **dict.fromkeys((f"path_{part}" for part in parts), missing)})
        pipeline = self.factory(
            Index(with_frames(table, self.frames)),
            **{
                **self.settings,
                "mode": "eval",
                "batch_size": batch_size,
                "device_id": self.device_id,
                "num_threads": self.num_threads,
                "num_read_processes": 0,
                "prefetch": 1,
                **settings,
            },
        )
        pipeline.source.columns = Contents(parts, pipeline.source.reader)
        return pipeline

    def _joined(self, batches: list[Batch]) -> Batch:
        """Concatenate the arrays of batches."""
        batches = [batch for batch in batches if len(batch["row"])] or batches[:1]
        if len(batches) == 1:
            return batches[0]
        joined: Batch = {}
        for name in batches[0]:
            arrays = [batch[name] for batch in batches]
            if isinstance(arrays[0], list):
                joined[name] = [one for array in arrays for one in array]
                continue
            shapes = {tuple(array.shape[1:]) for array in arrays}
            if len(shapes) > 1:
                raise ValueError(
                    f"the arrays {name!r} of one call differ in shape, {sorted(shapes)}: "
                    "set crop or resize, or ragged='list'"
                )
            joined[name] = self._framework.join(arrays)
        return joined


def _size_of_first(source: Source) -> tuple[int, int]:
    """Return (height, width) of the first content that can be read, or one of `_SIZES`."""
    for number in range(len(source.columns)):
        try:
            peek = source.reader.peek(source.columns.row(number), source.largest_window())
        except Exception:  # reported for its own slot
            continue
        return peek.height, peek.width
    return _SIZES[0]


def _effective(given: Mapping[str, Any], converted: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in a standard form, without those that have no effect in mode ``eval``.

    Loaders for training and validation then have the same digest. Augmentations of colours remain,
    because they reject encoded images of more than 8 bits.

    Parameters
    ----------
    given : mapping of str to Any
        Keywords of the factory.
    converted : mapping of str to Any
        The same keywords, as converted by `PipelineConfig` in mode ``eval``.
    """
    default = PipelineConfig(batch_size=1, mode="eval")
    found = dict(given)
    for name, value in converted.items():
        if name == "augment":
            value = tuple(one for one in given[name] if one.of_8_bits)
        found[name] = value
        if name == "random_aspect_ratio" or value == getattr(default, name):
            del found[name]
    return found


def _check_for_contents(settings: Mapping[str, Any]) -> None:
    """Raise TypeError or ValueError for settings that do not apply to contents."""
    for name in settings:
        if name in OF_ROWS:
            raise TypeError(
                f"{name} takes values from an Index, but a Preprocessor has none: leave it out"
            )
        if name in OF_A_RUN:
            raise TypeError(
                f"{name} is about reading an Index, but a Preprocessor has none: leave it out"
            )
    if settings.get("mode", "eval") != "eval":
        raise ValueError("a Preprocessor is always in mode 'eval': leave out mode")
    if settings.get("window") == "row":
        raise ValueError(
            "window 'row' takes the position of each window from an Index, but a Preprocessor has "
            "none: set window='center', or pass cutouts as contents and leave out crop"
        )
    planes, hdus = settings.get("planes"), settings.get("hdus")
    if isinstance(planes, str) and planes == "all" and settings.get("num_planes") is None:
        raise ValueError(
            "planes='all' takes the number of planes from the first file of an Index, but a "
            "Preprocessor has none: also set num_planes, or use Loader.preprocessor()"
        )
    for name, one in hdus.items() if isinstance(hdus, Mapping) else ():
        if isinstance(one, Hdu) and one.relative is not None:
            raise ValueError(
                f"relative of {name!r} counts from column 'hdu' of an Index, but a Preprocessor "
                "has none: set the number or EXTNAME of its HDU"
            )
        is_known = isinstance(one, Hdu) and (one.is_counted if name == "image" else one.is_known)
        if not is_known and (name != "image" or isinstance(one, Hdu)):
            raise ValueError(
                f"the dtype or number of planes of {name!r} would come from the first file of an "
                "Index: set Hdu(..., dtype=...), and num_planes with planes='all', or use "
                "Loader.preprocessor()"
            )


def _calibrated(settings: dict[str, Any]) -> dict[str, Any]:
    """Replace the calibration settings of `aia_pipeline` by one Calibration."""
    rest = dict(settings)
    if rest.get("calibration") is None:
        names = {*Calibration.__dataclass_fields__, "preset"}
        own = {name: rest.pop(name) for name in settings if name in names}
        rest["calibration"] = Calibration.of(own.pop("preset", None), **own)
    return rest
