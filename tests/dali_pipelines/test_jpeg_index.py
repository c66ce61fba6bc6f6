"""The Loader delivers the same photographs whether the Index notes their rows or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dali_pipelines import Index, Loader, jpeg_pipeline, with_mcu_rows

ORIENTATION = 0x0112


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Of photographs of all orientations, and some that no rows can be cut out of."""
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    for number in range(12):
        coarse = random.integers(0, 256, (20, 16, 3), np.uint8)
        image = Image.fromarray(coarse).resize((320, 400), Image.Resampling.BICUBIC)
        tags = Image.Exif()
        tags[ORIENTATION] = number % 8 + 1
        options: dict[str, Any] = {"progressive": True} if number > 9 else {}
        image.save(folder / f"{number:02}.jpg", exif=tags, subsampling=2, **options)
    return Index.scan(folder)


@pytest.mark.parametrize("settings", [{"crop": (40, 56)}, {"crop": 200}, {"resize": 64}, {}])
def test_the_pixels_are_the_same(index: Index, settings: dict[str, Any]) -> None:
    delivered = []
    for one in (index, with_mcu_rows(index)):
        with Loader(
            jpeg_pipeline,
            one,
            batch_size=1,
            num_read_processes=1,
            devices=[None],
            seed=5,
            dtype="uint8" if "resize" not in settings else "float32",
            window="random" if "crop" in settings else "center",
            flip="hv",
            **settings,
        ) as loader:
            images = {int(batch["row"]): batch["image"][0].numpy() for (batch,) in loader}
            delivered.append((images, loader.stats.input_bytes))
    (plain, plain_bytes), (cut, cut_bytes) = delivered
    assert sorted(cut) == list(range(len(index)))
    for row, image in plain.items():
        np.testing.assert_array_equal(image, cut[row], f"row {row}")
    assert (cut_bytes < 0.8 * plain_bytes) == ("crop" in settings)


def test_bad_files_are_named_as_ever(
    index: Index, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tmp_path / "broken.jpg"
    broken.mkdir()
    index = with_mcu_rows(Index.from_paths([*index.table["path"].to_pylist(), broken]))
    assert (
        "1 files without mcu_rows, because they cannot be read, the first: it is a dir"
        in caplog.text
    )
    broken.rmdir()
    broken.write_bytes(b"no photo")
    with Loader(
        jpeg_pipeline,
        index,
        batch_size=4,
        num_read_processes=1,
        devices=[None],
        crop=32,
        bad_sample="skip",
    ) as loader:
        for _ in loader:
            pass
    assert list(loader.stats.rejected) == [len(index) - 1]


def test_files_that_are_damaged_inside_are_named(index: Index, tmp_path: Path) -> None:
    """Pillow and DALI decode them, and leave the rest of the image grey."""
    paths = index.table["path"].to_pylist()[:1]
    jpeg = Path(paths[0]).read_bytes()
    third = len(jpeg) // 3
    for name, content in {
        "false_marker": jpeg[:third] + b"\xff\xe7" + jpeg[third + 2 :],
        "early_end": jpeg[:third] + b"\xff\xd9",
    }.items():
        paths.append(str(tmp_path / f"{name}.jpg"))
        Path(paths[-1]).write_bytes(content)
        assert (np.asarray(Image.open(paths[-1]))[-100:] == 128).all()
    with Loader(
        jpeg_pipeline,
        Index.from_paths(paths),
        batch_size=1,
        num_read_processes=1,
        devices=[None],
        bad_sample="skip",
        check_entropy=True,
    ) as loader:
        assert [batch["row"].tolist() for (batch,) in loader if len(batch["row"])] == [[0]]
    reasons = [loader.stats.rejected[row].reason for row in (1, 2)]
    assert "the file is damaged: the JPEG segment at byte" in reasons[0]
    assert "the file is damaged: Corrupt JPEG data: premature end of data segment" in reasons[1]
