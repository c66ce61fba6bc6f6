"""Keywords of the factories, for type checkers and for finding those that are misspelt."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, Required, TypedDict, Unpack, get_args, get_origin

from dali_pipelines.aia.preset import Negative
from dali_pipelines.stretch import Stretch
from readers.aia.degradation import CorrectionTable
from readers.aia.pointing import PointingTable
from readers.aia.registration import Center
from readers.aia.rules import HeaderRules
from readers.messages import did_you_mean
from readers.sampling.schedule import Tail
from readers.source import Flip, WindowMode

_ELSEWHERE = {
    "num_workers": "num_read_processes",
    "py_num_workers": "num_read_processes",
    "drop_last": "tail",
    "prefetch_factor": "prefetch",
    "prefetch_queue_depth": "prefetch",
}
"""What PyTorch's DataLoader and DALI call some settings."""

StartMethod = Literal["spawn", "forkserver", "fork"]
DType = Literal["float32", "float16", "uint8", "uint16", "int16", "int32"]


class PipelineSettings(TypedDict, total=False):
    """Keywords of all factories: the fields of `dali_pipelines.config.PipelineConfig`."""

    batch_size: Required[int]
    shard_id: int
    num_shards: int
    seed: int
    shuffle: bool
    tail: Tail
    epoch: int
    position: int
    num_epochs: int | None
    rejected: Mapping[int, str]
    columns: tuple[str, ...]
    crop: int | tuple[int, int] | None
    window: WindowMode
    flip: Flip
    rotate: float
    zoom: tuple[float, float]
    resize: int | tuple[int, int] | None
    mean: float | Sequence[float] | None
    std: float | Sequence[float] | None
    dtype: DType
    device_id: int | None
    num_threads: int
    num_read_processes: int
    start_method: StartMethod
    read_timeout: float | None
    prefetch: int | None


class AiaSettings(PipelineSettings, total=False):
    """Further keywords of `aia_pipeline`: the fields of `dali_pipelines.Calibration`."""

    size: int | tuple[int, int]
    scale: float | None
    radius: float | None
    reduce: int | None
    order: Literal[1, 3]
    center: Center
    pointing_table: PointingTable | str | os.PathLike[str] | None
    correction_table: CorrectionTable | str | os.PathLike[str] | None
    exposure: bool
    psf: tuple[int, ...]
    stretch: Stretch | Mapping[str, Stretch]
    negative: Negative
    missing: float
    rules: HeaderRules
    hdu: int | None


def names_of(factory: Callable[..., Any], *, unpacked: bool = True) -> frozenset[str] | None:
    """Return the keywords that a factory takes.

    Parameters
    ----------
    factory : callable
        The factory.
    unpacked : bool
        Whether to count those of a TypedDict; else only those that the factory declares one by one.

    Returns
    -------
    frozenset of str, or None
        None if they cannot be known: it takes ``**`` keywords that are not annotated as
        ``Unpack[...]`` of a TypedDict, such as `PipelineSettings`.
    """
    try:
        parameters = inspect.signature(factory, eval_str=True).parameters.values()
    except (TypeError, ValueError, NameError):  # not in Python, or its types are not imported
        return None
    names: set[str] = set()
    for parameter in parameters:
        if parameter.kind is not parameter.VAR_KEYWORD:
            names.add(parameter.name)
        elif unpacked and get_origin(parameter.annotation) is not Unpack:
            return None
        elif unpacked:
            names |= get_args(parameter.annotation)[0].__annotations__.keys()
    return frozenset(names)


def check_names(where: str, given: Iterable[str], known: Collection[str]) -> None:
    """Refuse settings that nothing takes.

    Raises
    ------
    TypeError
        If there are any. It names what is near and what there is.
    """
    for name in given:
        if name not in known:
            raise TypeError(
                f"{where} takes no setting {name!r}: {did_you_mean(name, known, _ELSEWHERE)}"
                f"There are {', '.join(sorted(known))}"
            )
