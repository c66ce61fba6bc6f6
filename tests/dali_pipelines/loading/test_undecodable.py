"""Rows on which only the graph fails, and rows that are too small: named, and all others come."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import C8, LOSSLESS, pillow, undecodable_jpeg
from nvidia.dali import fn, types
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from dali_pipelines import (
    Index,
    Loader,
    NpyReader,
    PipelineConfig,
    ReadError,
    jpeg_pipeline,
    npy_pipeline,
    reader_pipeline,
)
from dali_pipelines.graph.decode import Decoded

OPTIONS: dict[str, Any] = {"num_read_processes": 2, "devices": [None, None], "shuffle": False}
FUZZED = int(os.environ.get("FUZZED_IMAGES", "36"))
"""Mutated images that a Loader is given."""


def epoch(loader: Loader) -> list[int]:
    return [row for batches in loader for batch in batches for row in batch["row"].tolist()]


@pytest.fixture
def odd(tmp_path: Path) -> Index:
    """12 images, of which rows 2, 5 and 6 fail in the graph alone, and row 9 cannot be read."""
    for row in range(12):
        content = undecodable_jpeg() if row in (2, 5, 6) else pillow(C8, "JPEG")
        (tmp_path / f"{row:02d}.jpg").write_bytes(b"" if row == 9 else content)
    return Index.scan(tmp_path)


REASON = "broken data stream when reading image file"


def test_what_only_the_graph_refuses_is_left_out(odd: Index) -> None:
    with Loader(jpeg_pipeline, odd, batch_size=2, bad_sample="skip", **OPTIONS) as loader:
        for _ in range(2):
            assert epoch(loader) == [0, 1, 3, 4, 7, 8, 10, 11]
    assert {row: bad.reason for row, bad in loader.stats.rejected.items()} == {
        **dict.fromkeys((2, 5, 6), REASON),
        9: "the file is empty",
    }


@pytest.mark.parametrize(
    ("shard_id", "rows", "bad"), [(0, [0, 1, 4, 8], [5, 9]), (1, [3, 7, 10, 11], [2, 6])]
)
def test_each_process_finds_those_of_its_own_shard(
    odd: Index, shard_id: int, rows: list[int], bad: list[int]
) -> None:
    shard: dict[str, Any] = {"devices": [None], "shard_id": shard_id, "num_shards": 2}
    options: dict[str, Any] = {"batch_size": 2, "bad_sample": "skip", **OPTIONS, **shard}
    with Loader(jpeg_pipeline, odd, **options) as loader:
        assert epoch(loader) == rows
    assert sorted(loader.stats.rejected) == bad


def test_full_batches_hold_none_of_them(odd: Index) -> None:
    options = {"batch_size": 2, "crop": 16, "bad_sample": "skip", "tail": "fill", **OPTIONS}
    with Loader(jpeg_pipeline, odd, **options) as loader:
        for batches in loader:
            for batch in batches:
                assert len(batch["row"]) == 2
                assert not set(batch["row"].tolist()) & {2, 5, 6, 9}
    assert sorted(loader.stats.rejected) == [2, 5, 6, 9]


def test_the_first_is_raised_by_name(odd: Index) -> None:
    with Loader(jpeg_pipeline, odd, batch_size=2, **OPTIONS) as loader:
        with pytest.raises(ReadError) as caught:
            epoch(loader)
        assert str(caught.value) == f"{odd.path(2)} (row 2): {REASON}"
        assert loader.step == 0


def failing_pipeline(index: Index, *, start: int, **config: Any) -> Any:
    """Cut out rows from `start` on, which fails where there are none."""

    def decode(arrays: Any, config: PipelineConfig) -> Decoded:
        del config
        image = fn.slice(arrays["image"], [start], [1], axes=[0])
        return Decoded(fn.cast(image, dtype=types.FLOAT), "float32")

    return reader_pipeline(index, NpyReader(), decode, PipelineConfig(**config))


def short_pipeline(index: Index, **config: Any) -> Any:
    return failing_pipeline(index, start=5, **config)


def broken_pipeline(index: Index, **config: Any) -> Any:
    return failing_pipeline(index, start=99, **config)


@pytest.fixture
def heights(tmp_path: Path) -> Index:
    """8 arrays, of which rows 0 and 4 are of 3 rows and the others of 8."""
    for row in range(8):
        image = np.full((3 if row in (0, 4) else 8, 6), row, np.float32)
        np.save(tmp_path / f"{row}.npy", image)
    return Index.scan(tmp_path)


def test_a_graph_of_the_users_own(heights: Index) -> None:
    with Loader(short_pipeline, heights, batch_size=2, bad_sample="skip", **OPTIONS) as loader:
        assert epoch(loader) == [1, 2, 3, 5, 6, 7]
    assert sorted(loader.stats.rejected) == [0, 4]
    assert re.search("can be read, but the graph .*: .", loader.stats.rejected[0].reason)


def test_a_graph_that_always_fails_is_no_fault_of_the_rows(heights: Index) -> None:
    with (
        Loader(broken_pipeline, heights, batch_size=2, bad_sample="skip", **OPTIONS) as loader,
        pytest.raises(RuntimeError, match="Error in CPU operator"),
    ):
        epoch(loader)
    assert not loader.stats.rejected


# A crop that is larger than some images.


@pytest.mark.parametrize(
    ("small", "tail"), [((0,), "fill"), ((0, 1, 4), "partial"), ((3,), "fill"), ((3,), "partial")]
)
def test_the_crop_is_larger_than_some(tmp_path: Path, small: tuple[int, ...], tail: Any) -> None:
    for row in range(6):
        size = (3, 3) if row in small else (8, 9)
        np.save(tmp_path / f"{row}.npy", np.full(size, row, np.float32))
    index = Index.scan(tmp_path)
    options = {"crop": 5, "batch_size": 2, "tail": tail, **OPTIONS}
    with Loader(npy_pipeline, index, bad_sample="skip", **options) as loader:
        found = {
            int(row)
            for batches in loader
            for batch in batches
            for row, valid in zip(batch["row"], batch["valid"], strict=True)
            if valid
        }
    assert found == set(range(6)) - set(small)
    assert sorted(loader.stats.rejected) == list(small)
    assert re.search("crop 5x5 .* 3x3", loader.stats.rejected[small[0]].reason)
    # Where that is an error it comes early, if the first row tells.
    with (
        pytest.raises((ValueError, ReadError), match=rf"{small[0]}\.npy.*crop 5x5"),
        Loader(npy_pipeline, index, **options) as loader,
    ):
        epoch(loader)


def test_a_factory_alone_does_not_mind_the_first_row(tmp_path: Path) -> None:
    for row in range(3):
        np.save(tmp_path / f"{row}.npy", np.zeros((3, 3) if row == 0 else (8, 9), np.float32))
    pipeline = npy_pipeline(Index.scan(tmp_path), batch_size=3, crop=5, shuffle=False)
    (batch,) = next(DALIGenericIterator([pipeline], list(pipeline.output_names), size=-1))
    pipeline.close()
    assert batch["valid"].tolist() == [False, True, True]


def test_a_pipeline_without_reader_processes(heights: Index) -> None:
    pipeline = npy_pipeline(heights, batch_size=3, crop=2, shuffle=False, num_read_processes=0)
    pipeline.build()
    image, row, *_ = pipeline.run()
    assert np.asarray(row.as_tensor()).tolist() == [0, 1, 2]
    assert np.asarray(image.as_tensor())[:, 0, 0, 0].tolist() == [0, 1, 2]
    assert pipeline.processes() == []
    pipeline.close()


# Anything at all.


def operations(data: bytearray, place: int, chance: random.Random) -> tuple[Callable[[], Any], ...]:
    return (
        lambda: data.__setitem__(place, data[place] ^ 1 << chance.randrange(8)),
        lambda: data.__setitem__(place, chance.choice((0, 1, 127, 128, 255))),
        lambda: data.__delitem__(slice(place, place + chance.randrange(1, 5))),
        lambda: data.insert(place, chance.randrange(256)),
        lambda: data.__delitem__(slice(-chance.randrange(1, 30), None)),
    )


def mutated(content: bytes, chance: random.Random) -> bytes:
    """Change, drop, double or overwrite some bytes, in the head more often than elsewhere."""
    data = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 5))):
        end = min(len(data), chance.choice((40, 400, len(data))))
        place = chance.randrange(max(1, end))
        chance.choice(operations(data, place, chance))()
        if not data:
            break
    return bytes(data)


def test_mutated_images_end_no_run(tmp_path: Path) -> None:
    """All that were not touched come once, with their values; the others come or are named."""
    chance = random.Random(int(os.environ.get("FUZZED_SEED", "1")))
    jpeg = pillow(C8, "JPEG")
    contents = [content for content, _ in LOSSLESS.values()] + [jpeg, undecodable_jpeg()] * 3
    good = set()
    for row in range(FUZZED):
        name, (content, _) = chance.choice(list(LOSSLESS.items()))
        if row % 3 == 0:
            good.add(row)
        else:
            content, name = mutated(chance.choice(contents), chance), "mutated"
        (tmp_path / f"{row:06d}_{name}").write_bytes(content)
    index = Index.from_paths(sorted(tmp_path.iterdir()))
    options = {"batch_size": 10, "crop": (30, 40), "bad_sample": "skip", **OPTIONS}
    with Loader(jpeg_pipeline, index, **options) as loader:
        found = {}
        for batches in loader:
            for batch in batches:
                for image, row in zip(batch["image"], batch["row"].tolist(), strict=True):
                    assert row not in found
                    found[row] = image.numpy().transpose(1, 2, 0)
    rejected = loader.stats.rejected
    assert sorted([*found, *rejected]) == list(range(FUZZED))
    assert not good & set(rejected)
    for row in good:
        values = np.atleast_3d(LOSSLESS[Path(index.path(row)).name[7:]][1])
        y, x = (values.shape[0] - 30) // 2, (values.shape[1] - 40) // 2
        expected = np.broadcast_to(values[y : y + 30, x : x + 40], (30, 40, 3))
        np.testing.assert_array_equal(found[row], expected, err_msg=index.path(row))
