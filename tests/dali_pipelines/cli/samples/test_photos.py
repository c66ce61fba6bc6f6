from pathlib import Path

import pytest
from PIL import Image

from dali_pipelines.cli.samples import photos, sets


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One photograph of each class, made in other processes."""
    return sets.jpeg_samples(tmp_path_factory.mktemp("jpeg"), num_per_class=1)


def save(folder: Path, number: int) -> Path:
    path = folder / "hills" / f"{number}.jpg"
    path.parent.mkdir(exist_ok=True)
    photos.save_photo(path, number)
    return path


def test_photographs_open_in_class_folders(folder: Path) -> None:
    paths = sorted(folder.rglob("*.jpg"))
    names = [str(path.relative_to(folder)) for path in paths]
    assert names == [f"{name}/{name}_000.jpg" for name in sorted(photos.JPEG_CLASSES)]
    for path in paths:
        with Image.open(path) as image:
            image.load()
            assert image.format == "JPEG"
            assert image.mode == "RGB"
            assert image.size == (1280, 960)
            assert 0x0112 not in image.getexif()
        assert 150e3 < path.stat().st_size < 450e3


def test_one_photograph_of_a_class_is_turned(tmp_path: Path) -> None:
    with Image.open(save(tmp_path, photos.TURNED_IMAGE)) as image:
        assert image.getexif()[0x0112] == 3


@pytest.mark.parametrize(
    ("number", "size"),
    [(2, (960, 1280)), (4, (1280, 960)), (5, (1024, 1024)), (11, (1600, 900)), (17, (801, 1203))],
)
def test_photographs_have_several_sizes(tmp_path: Path, number: int, size: tuple[int, int]) -> None:
    with Image.open(save(tmp_path, number)) as image:
        assert image.size == size


def test_photographs_are_the_same_each_time(folder: Path, tmp_path: Path) -> None:
    again = save(tmp_path, 0)
    assert again.read_bytes() == (folder / "hills" / "hills_000.jpg").read_bytes()
