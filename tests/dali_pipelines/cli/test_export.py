"""`dali-pipelines export triton`: the folder that it writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from image_files import pillow, rgb

from dali_pipelines import Preprocessor, jpeg_pipeline
from dali_pipelines.cli.main import main


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "preprocess.toml"
    Preprocessor(jpeg_pipeline, crop=(24, 16), mean=3).save(path)
    return path


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.jpg"
    path.write_bytes(pillow(rgb(8)))
    return path


def export(settings: Path, *flags: str) -> int:
    return main(["export", "triton", str(settings), "-o", str(settings.parent / "models"), *flags])


def test_a_model_is_written(
    settings: Path, photo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--num_gpus=2", "--instances=3", "--max_batch=5")
    assert export(settings, "--name=small", f"--example={photo}", *flags) == 0
    assert "models/small" in capsys.readouterr().out
    models = settings.parent / "models"
    found = {str(path.relative_to(models)) for path in models.rglob("*") if path.is_file()}
    names = ("config.pbtxt", "1/model.py", "1/preprocess.toml")
    assert found == {f"small/{name}" for name in names}
    config = " ".join((models / "small" / "config.pbtxt").read_text().split())
    assert "max_batch_size: 5 " in config
    assert 'name: "image" data_type: TYPE_FP32 dims: [ 3, 24, 16 ]' in config
    assert "kind: KIND_GPU gpus: [ 0, 1 ] count: 3" in config
    again = Preprocessor.load(models / "small" / "1" / "preprocess.toml", framework="numpy")
    assert again.image(photo).shape == (3, 24, 16)


def test_a_model_that_is_there_is_left(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(settings, "--name=small") == 0
    mine = settings.parent / "models" / "small" / "mine"
    mine.touch()
    assert export(settings, "--name=small") == 2
    assert "small" in capsys.readouterr().err
    assert mine.exists()


@pytest.mark.parametrize(("content", "reason"), [(b"", "empty"), (None, "no.jpg")])
def test_an_example_that_cannot_be_read(
    settings: Path, content: bytes | None, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    example = settings.parent / "no.jpg"
    if content is not None:
        example.write_bytes(content)
    assert export(settings, "--name=small", f"--example={example}") == 1
    assert reason in capsys.readouterr().err
    assert not [*(settings.parent / "models").iterdir()]
