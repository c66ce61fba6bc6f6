"""Indexes of COCO files, written here as COCO describes them (cocodataset.org, data format)."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from readers import Index


def content() -> dict[str, Any]:
    return {
        "images": [
            {"id": 30, "file_name": "b.jpg", "height": 40, "width": 50},
            {"id": 7, "file_name": "sub/a.jpg", "height": 20, "width": 30},
            {"id": 8, "file_name": "none.jpg"},
        ],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 90, "bbox": [1.5, 2, 3.25, 4], "iscrowd": 0},
            {"id": 2, "image_id": 30, "category_id": 1, "bbox": [0, 0, 50, 40], "iscrowd": 0},
            {"id": 3, "image_id": 7, "category_id": 3, "bbox": [5, 6, 7, 8], "iscrowd": 0},
            {"id": 4, "image_id": 7, "category_id": 3, "bbox": [5, 6, 7, 8], "iscrowd": 1},
            {"id": 5, "image_id": 30, "category_id": 3, "bbox": [9, 9, 0, 8]},
        ],
        "categories": [
            {"id": 90, "name": "toothbrush"},
            {"id": 1, "name": "person"},
            {"id": 3, "name": "car"},
            {"id": 50, "name": "spoon"},
        ],
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "images" / "sub").mkdir(parents=True)
    for name in ("b.jpg", "sub/a.jpg", "none.jpg", "other.jpg"):
        (tmp_path / "images" / name).touch()
    return tmp_path


def made(folder: Path, found: Any) -> Index:
    (folder / "a.json").write_text(found if isinstance(found, str) else json.dumps(found))
    return Index.from_coco(folder / "images", folder / "a.json")


def test_boxes_and_labels(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    index = made(folder, content())
    images = folder / "images"
    assert index.table.to_pylist() == [
        {
            "path": f"{images}/b.jpg",
            "image_id": 30,
            "boxes": [[0.0, 0.0, 50.0, 40.0]],
            "boxes_size": [40, 50],
            "labels": [0],
        },
        {
            "path": f"{images}/sub/a.jpg",
            "image_id": 7,
            "boxes": [[1.5, 2.0, 4.75, 6.0], [5.0, 6.0, 12.0, 14.0]],
            "boxes_size": [20, 30],
            "labels": [3, 1],
        },
        {
            "path": f"{images}/none.jpg",
            "image_id": 8,
            "boxes": [],
            "boxes_size": None,
            "labels": [],
        },
    ]
    assert index.classes == ("person", "car", "spoon", "toothbrush")
    assert index.category_ids == (1, 3, 50, 90)
    assert "1 of crowds, 1 without area" in caplog.text


def test_classes_stay(folder: Path) -> None:
    index = made(folder, content())
    for suffix in (".parquet", ".arrow"):
        index.save(folder / f"i{suffix}")
        assert Index.load(folder / f"i{suffix}").category_ids == index.category_ids
    both = Index.concat([index, index.select([1])])
    assert (both.classes, both.category_ids) == (index.classes, index.category_ids)
    assert index.with_column("labels", [[], [], []]).classes == ()
    other = content()
    other["categories"][0]["name"] = "brush"
    with pytest.raises(ValueError, match="different classes"):
        Index.concat([index, made(folder, other)])


def test_no_annotation_at_all(folder: Path) -> None:
    found = content()
    found["annotations"] = []
    columns: Any = made(folder, found).columns(targets=("boxes", "labels"))
    assert len(columns.get("boxes", 0)) == len(columns.get("labels", 2)) == 0


def change(what: str, number: int, **fields: Any) -> dict[str, Any]:
    found = content()
    found[what][number] |= fields
    return found


def without(what: str, number: int, field: str) -> dict[str, Any]:
    found = content()
    del found[what][number][field]
    return found


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ("{", "JSON"),
        ("[" * 100_000, "JSON"),
        ("[]", "instances of COCO.* images, annotations"),
        ({"images": []}, "instances of COCO"),
        (content() | {"images": []}, "no images"),
        (content() | {"images": [5]}, r"images\[0\] is 5"),
        (content() | {"annotations": [None]}, r"annotations\[0\] is None"),
        (change("images", 1, id="7"), r"images\[1\] has id '7'.*integer"),
        (change("images", 1, id=[7]), r"images\[1\] has id \[7\]"),
        (change("images", 1, id=2**70), r"images\[1\] has id 1180591620717411303424"),
        (change("images", 0, id=7), "1 images have the id of another"),
        (change("images", 2, file_name=None), r"images\[2\] has file_name None"),
        (change("images", 2, file_name=""), r"images\[2\] has file_name ''"),
        (change("images", 2, file_name="\ud800.jpg"), "utf-8"),
        (change("images", 2, file_name="http://x/a.jpg"), "is a URL"),
        (change("images", 2, file_name="./sub/a.jpg"), "2 images have the file"),
        (change("images", 2, file_name="sub/../b.jpg"), "2 images have the file"),
        (change("images", 2, height=20), r"images\[2\] has height 20 and width None"),
        (change("images", 1, width=0), r"images\[1\] has height 20 and width 0"),
        (change("images", 1, width="30"), r"images\[1\] has .* width '30'"),
        (change("images", 1, width=math.nan), r"images\[1\] has .* width nan"),
        (change("images", 1, width=True), r"images\[1\] has .* width True"),
        (without("images", 0, "file_name"), r"images\[0\] lacks 'file_name'"),
        (change("categories", 1, id="1"), r"categories\[1\] has id '1'"),
        (change("categories", 0, id=1), "categories have the id of another"),
        (change("annotations", 2, iscrowd="0"), "annotation 3 has iscrowd '0'"),
        (change("annotations", 2, image_id=[7]), r"annotation 3 has image_id \[7\]"),
        (change("annotations", 2, image_id=5), "annotation 3 has image_id 5"),
        (change("annotations", 2, category_id=5), "annotation 3 has category_id 5"),
        (without("annotations", 0, "bbox"), r"annotations\[0\] lacks 'bbox'"),
        (change("annotations", 2, bbox=[1, 2, 3]), r"annotation 3 has bbox \[1, 2, 3"),
        (change("annotations", 2, bbox=None), "annotation 3 has bbox None"),
        (change("annotations", 2, bbox=[9, 9, -4, 5]), r"annotation 3 has bbox \[9, 9, -4, 5.*neg"),
    ],
)
def test_bad_files(folder: Path, found: Any, words: str) -> None:
    with pytest.raises(ValueError, match=rf"a\.json: .*{words}"):
        made(folder, found)


@pytest.mark.parametrize(
    ("bbox", "is_told"),
    [([5, 6, 27, 8], True), ([-2, 6, 9, 8], True), ([5, 6, 25.5, 14.9], False)],
)
def test_boxes_beyond_the_image(
    folder: Path, bbox: list[float], is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """As are those given by two corners; some tools round to a pixel beyond."""
    index = made(folder, change("annotations", 2, bbox=bbox))
    x, y, width, height = bbox
    assert [x, y, x + width, y + height] in index["boxes"].to_pylist()[1]
    assert ("1 of 3 boxes" in caplog.text and "sub/a.jpg" in caplog.text) == is_told


def test_missing_images(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"a\.json: 1 of 3 .*images/x/c\.jpg"):
        made(folder, change("images", 0, file_name="x/c.jpg"))


def test_folder_and_file_in_the_wrong_order(folder: Path) -> None:
    (folder / "a.json").write_text(json.dumps(content()))
    with pytest.raises(ValueError, match=r"images is a folder.*then the JSON"):
        Index.from_coco(folder / "a.json", folder / "images")


def test_a_missing_folder_of_images(folder: Path) -> None:
    (folder / "a.json").write_text(json.dumps(content()))
    with pytest.raises(FileNotFoundError, match=f"a.json: .*missing: {folder}/no"):
        Index.from_coco(folder / "no", folder / "a.json")


def test_ids_as_text_and_odd_names(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = content() | {"annotations": []}
    for image in found["images"]:
        image["id"] = str(image["id"])
    found["images"][0]["file_name"] = "./sub/../b.jpg"
    found["categories"][0]["name"] = "car"
    found["categories"][1]["name"] = None
    index = made(folder, found)
    assert index.table["image_id"].to_pylist() == ["30", "7", "8"]
    assert index.table["path"][0].as_py() == f"{folder}/images/b.jpg"
    assert index.classes == ("1", "car", "spoon", "car")
    assert "a.json: several categories have the name 'car'" in caplog.text


@pytest.mark.parametrize(
    "boxes",
    [
        [[1, 2], [5, 6]],
        [[1, 1, 5, 5, 2, 2, 6, 6]],
        [[1, 2, 3], [5, 6, 7, 8, 9]],
        [[[1, 2], [3, 4]]],
        [["1", "2", "3", "4"]],
        [[True, True, True, True]],
        [[1, 2, float("nan"), 4]],
        [[1, 2, float("inf"), 4]],
        [[1, 2, 10**400, 4]],
        [[1.7e308, 2, 1.7e308, 4]],
        [{"x": 1}],
    ],
)
def test_each_bbox_has_four_finite_numbers(folder: Path, boxes: list[Any]) -> None:
    found = content()
    found["annotations"] = [
        {"id": 70 + number, "image_id": 7, "category_id": 90, "bbox": bbox}
        for number, bbox in enumerate(boxes)
    ]
    with pytest.raises(ValueError, match=r"a\.json: annotation 70 has bbox .*four finite"):
        made(folder, found)


def test_a_missing_annotation_file(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"a\.json"):
        Index.from_coco(folder / "images", folder / "a.json")


def test_against_a_loop(folder: Path) -> None:
    """Many, in any order."""
    generator = np.random.default_rng(0)
    found = content()
    ids, categories = [30, 7, 8], [90, 1, 3, 50]
    found["annotations"] = [
        {
            "id": number,
            "image_id": ids[generator.integers(3)],
            "category_id": categories[generator.integers(4)],
            "bbox": generator.uniform(1, 20, 4).tolist(),
        }
        for number in range(300)
    ]
    index = made(folder, found)
    for row, image in enumerate(ids):
        own = [each for each in found["annotations"] if each["image_id"] == image]
        boxes = [[x, y, x + w, y + h] for x, y, w, h in (each["bbox"] for each in own)]
        labels = [sorted(categories).index(each["category_id"]) for each in own]
        assert index.table["boxes"][row].as_py() == boxes
        assert index.table["labels"][row].as_py() == labels
