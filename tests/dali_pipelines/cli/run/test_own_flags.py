"""The flags --augment, --transform and --outputs of run, and their keys of TOML."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import dali_pipelines
from dali_pipelines import (
    Blur,
    ColorJitter,
    Erase,
    Noise,
    RandAugment,
    RandomGrayscale,
    Stretch,
    TrivialAugment,
)
from dali_pipelines.cli.errors import CommandError
from dali_pipelines.cli.flag_types import function_of
from dali_pipelines.cli.options import parse
from dali_pipelines.cli.pipeline_flags import AUGMENTATIONS, augmentation_of, stretch_of
from dali_pipelines.cli.run.main import main
from dali_pipelines.cli.run_config import RunConfig


def test_each_augmentation_of_the_package_has_a_name() -> None:
    public = {name: getattr(dali_pipelines, name) for name in dali_pipelines.__all__}
    found = {name for name, one in public.items() if hasattr(one, "of_8_bits")}
    assert found == set(AUGMENTATIONS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TrivialAugment", TrivialAugment()),
        ("TrivialAugment()", TrivialAugment()),
        (" RandAugment(2, magnitude=-1 + 0j)", None),
        ("RandAugment(3, magnitude=5)", RandAugment(3, 5)),
        ("ColorJitter(0.4, hue=(-0.1, 0.2))", ColorJitter(0.4, hue=(-0.1, 0.2))),
        ("Erase(value=[1, 2, 3])", Erase(value=[1, 2, 3])),
        ("{'name': 'Blur', 'kernel_size': 5, 'p': 0.5}", Blur(5, p=0.5)),
        ("Blur(kernel_size=__import__('os').system('true'))", None),
        ("Blur(**{'kernel_size': 3})", None),
        ("dali_pipelines.Blur(3)", None),
        ("{'kernel_size': 5}", None),
        ("Blur(3", None),
        ("3", None),
        ("", None),
        ("Blur(kernel_size=3, kernel_size=5)", None),
        ("{'name': 5}", None),
    ],
)
def test_texts_of_augmentations(text: str, expected: Any) -> None:
    if expected is not None:
        assert augmentation_of(text) == expected
    else:
        with pytest.raises(ValueError, match="--augment"):
            augmentation_of(text)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("ColourJitter(0.4)", "--augment.*'ColourJitter'.* ColorJitter"),
        ("Index()", "--augment.*'Index'.* TrivialAugment"),
        ("Blur(4)", r"--augment.*'Blur\(4\)'.*kernel_size.*odd.* 4"),
        ("Blur(size=3)", r"--augment.*'Blur\(size=3\)'.*'size'"),
    ],
)
def test_wrong_texts(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        augmentation_of(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("asinh", Stretch(kind="asinh")),
        ("asinh(unit=100, a=0.1)", Stretch(kind="asinh", unit=100, a=0.1)),
        ("{'kind': 'sqrt', 'clip': [0, 9]}", Stretch(kind="sqrt", clip=(0, 9))),
        ("asin", None),
        ("sqrt", None),
        ("asinh(100)", None),
        ("asinh(b=1)", None),
        ("{'unit': 3}", None),
    ],
)
def test_texts_of_stretches(text: str, expected: Stretch | None) -> None:
    if expected is not None:
        assert stretch_of(text) == expected
    else:
        with pytest.raises(ValueError, match="--stretch"):
            stretch_of(text)


@pytest.mark.parametrize("pipeline", ["fits", "aia"])
def test_a_stretch_of_a_run(tmp_path: Path, pipeline: str) -> None:
    file = tmp_path / "a.toml"
    file.write_text(f'pipeline = "{pipeline}"\n[[stretch]]\nkind = "asinh"\nunit = 100\n')
    config = parse(RunConfig, [f"--config={file}"], None, "run")
    if config.calibration is None:
        assert config.pipeline_config.stretch == (Stretch(kind="asinh", unit=100),)
    else:
        assert config.calibration.stretch == Stretch(kind="asinh", unit=100)
        assert config.pipeline_config.stretch is None


def test_the_dtype_of_a_run() -> None:
    assert parse(RunConfig, ["--dtype=uint8"], None, "run").pipeline_config.dtype == "uint8"
    assert parse(RunConfig, [], None, "run").pipeline_config.dtype == "float32"
    with pytest.raises(CommandError, match=r"--dtype.*'float65'.*float16"):
        parse(RunConfig, ["--dtype=float65"], None, "run")


@pytest.mark.parametrize("name", ["nothing", "json:nothing", "no_such_module:f", "json:"])
def test_a_transform_that_is_not_there(name: str) -> None:
    with pytest.raises(ValueError, match=f"--transform={name}: "):
        function_of("transform", name)


def test_a_run_with_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for row in range(3):
        pixels = np.full((20, 24, 3), 40 * row, np.uint8)
        Image.fromarray(pixels).save(folder / f"{row}.png")
    (tmp_path / "my_operators.py").write_text(
        "calls = []\n\ndef lamp(image, chance, config):\n"
        "    calls.append(config)\n    return image\n"
    )
    monkeypatch.chdir(tmp_path)
    report = tmp_path / "report.json"
    (tmp_path / "run.toml").write_text(
        f'data = "{folder}"\npipeline = "jpeg"\ndevice = "cpu"\nbatch_size = 3\ncrop = 16\n'
        f'report = "{report}"\noutputs = ["window", "matrix"]\ntransform = "my_operators:lamp"\n'
        'num_read_processes = 1\n[[augment]]\nname = "ColorJitter"\nbrightness = 0.4\n'
        '[[augment]]\nname = "RandomGrayscale"\n'
    )
    assert main(["--config=run.toml"]) == 0
    calls = sys.modules.pop("my_operators").calls
    config = calls[-1]
    assert config.augment == (ColorJitter(brightness=0.4), RandomGrayscale())
    assert config.outputs == ("window", "matrix")
    seen = json.loads(report.read_text())["config"]
    assert seen["transform"] == "my_operators:lamp"
    assert augmentation_of(seen["augment"][0]) == ColorJitter(brightness=0.4)
    assert main(["--config=run.toml", "--augment", "Noise(1)", "Blur(3)"]) == 0
    calls = sys.modules.pop("my_operators").calls
    assert calls[-1].augment == (Noise(1), Blur(3))
    assert main(["--config=run.toml", "--augment", "Blur(4)"]) == 2


def test_a_heading_has_the_flags_of_the_command() -> None:
    """A preset of arrays is not the flag --stretch, although it sets the keyword ``stretch``."""
    flags = ["--pipeline=chunked", "--data=a.zarr", "--preset=surya", "--variables", "a", "b"]
    config = parse(RunConfig, flags, None, "run")
    assert config.image_flags().split() == ["--variables", "a", "b", "--preset", "surya"]
    assert config.factory_settings()["stretch"] == "surya"


@pytest.mark.parametrize(
    ("pipeline", "flag", "others"),
    [("fits", "--short=pad", "audio or video"), ("video", "--channels=1", "audio or jpeg")],
)
def test_flags_of_some_pipelines(pipeline: str, flag: str, others: str) -> None:
    name = flag.partition("=")[0]
    with pytest.raises(CommandError, match=f"{name} is for --pipeline={others}, got {pipeline}"):
        parse(RunConfig, ["--data=a", f"--pipeline={pipeline}", flag], None, "run")
