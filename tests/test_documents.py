"""The README and the pages of docs/ are tests: their commands and snippets run, on a small archive.

Blocks marked ``bash`` and ``python`` run, in the order of the page; those marked ``sh`` do not, as
they need a machine that tests have not, nor do those that `make test-frameworks` runs. A python
block with a caption is a file that the blocks after it import; pytest runs those called test_*.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import io
import json
import os
import re
import shlex
import sys
import tarfile
import warnings
from collections.abc import Iterator
from inspect import signature, unwrap
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import jobs
import numpy as np
import pytest
import solar_files
import xarray as xr
import zarr
from all_readers import MODULES, AnyReader
from astropy.io import fits
from astropy.wcs import WCS
from audio_files import sound
from audio_files import write as write_audio
from code_blocks import blocks
from jobs import ROOT
from PIL import Image
from servers.weed import OPEN, Weed
from tfrecord import TFRecordWriter
from torch.utils.data import DataLoader
from video_files import write_video

import dali_pipelines
import readers
from dali_pipelines import Loader, PipelineSettings, fits_pipeline, jpeg_pipeline, npy_pipeline
from dali_pipelines.cli.main import COMMANDS
from dali_pipelines.cli.main import main as run_command
from dali_pipelines.runtime.processes.fork_server import start_fork_server

README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = sorted(
    page
    for page in DOCS.rglob("*.md")
    if page.relative_to(DOCS).parts[0] not in ("_build", "gallery", "generated")
)
PACKAGES = (dali_pipelines, readers)
STORE = "http://localhost:9000"
"""Stands in the pages for a store of objects."""
LIMIT_S = 600
"""For one command or page; on a quiet machine they take seconds."""

pytestmark = pytest.mark.timeout(LIMIT_S + 60)


def commands() -> Iterator[str]:
    """Yield each command once, in the order of the README and the pages."""
    seen = set()
    for page in (README, *PAGES):
        for block in blocks(page, "bash"):
            for line in block.text.replace("\\\n", " ").splitlines():
                command = line.partition("#")[0].strip()
                if command and command not in seen:
                    seen.add(command)
                    yield command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of 32 frames of 520x530, frames of AIA, cubes, and photographs of two classes."""
    start_fork_server(AnyReader(), MODULES)  # or each reader of JPEG windows would import numba
    folder = tmp_path_factory.mktemp("user")
    (folder / "archive" / "2015").mkdir(parents=True)
    pixels = np.random.default_rng(0).poisson(100, (520, 530)).astype(np.int16)
    for number in range(32):
        frame = fits.CompImageHDU(pixels + number, compression_type="RICE_1")
        time = f"2015-01-01T00:{number // 2:02}:{number % 2 * 5:02}"
        frame.header.update(WAVELNTH=171 if number % 2 else 193, QUALITY=0, T_OBS=time)
        frame.writeto(folder / "archive" / "2015" / f"{number}.fits")
    (folder / "level1").mkdir()
    for number in range(6):
        solar_files.save(folder / "level1" / f"{number}.fits", *solar_files.frame())
    (folder / "cubes").mkdir()
    for number in range(2):
        fits.writeto(folder / "cubes" / f"{number}.fits", np.zeros((3, 64, 80), np.int16))
    for number in range(10):
        path = folder / "photos" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (300, 240), (number * 20, 0, 0)).save(path)
    _write_targets(folder)
    _write_survey(folder)
    _write_containers(folder)
    _write_arrays(folder)
    _write_speech(folder)
    _write_clips(folder)
    assert run_command(["index", f"{folder}/archive", "-o", f"{folder}/frames.parquet"]) == 0
    detectors = ["--hdus", "SCI", "-o", f"{folder}/detectors.parquet"]
    assert run_command(["index", f"{folder}/survey", *detectors]) == 0
    return folder


def _write_survey(folder: Path) -> None:
    """Write exposures with errors and flags, and a catalogue of positions on the sky.

    They are many, as a split by the path, which differs each time, must leave no part empty.
    """
    (folder / "survey").mkdir()
    for number in range(24):
        wcs = WCS(naxis=2)
        wcs.wcs.ctype, wcs.wcs.crval = ("RA---TAN", "DEC--TAN"), (150 + number / 4, 2)
        wcs.wcs.cdelt, wcs.wcs.crpix = (-1e-4, 1e-4), (64, 64)
        pixels, header = np.ones((128, 128), np.float32), wcs.to_header()
        images = {"SCI": pixels, "ERR": pixels, "DQ": pixels.astype(np.int16)}
        hdus = [fits.ImageHDU(image, header, name) for name, image in images.items()]
        path = folder / "survey" / f"{number}.fits"
        primary = fits.PrimaryHDU(
            header=fits.Header({"FILTER": "gr"[number % 2], "EXPNUM": number})
        )
        fits.HDUList([primary, *hdus]).writeto(path)
    (folder / "bands").mkdir()
    for number in range(24):
        for band in "gri":
            header = fits.getheader(folder / "survey" / f"{number}.fits", "SCI")
            header["FIELD"], header["FILTER"] = number, band
            path = folder / "bands" / f"{number}_{band}.fits"
            fits.PrimaryHDU(np.ones((128, 128), np.float32), header).writeto(path)
    lines = [f"{150 + n / 4:.4f},{2 + n % 3 / 250},{n % 2}" for n in range(24)]
    (folder / "stars.csv").write_text("\n".join(["ra,dec,label", *lines]))


def _write_containers(folder: Path) -> None:
    """Write tars of photographs with classes and of frames, and a TFRecord file."""
    (folder / "shards").mkdir()
    for number in range(2):
        with tarfile.open(folder / "shards" / f"train-{number:04}.tar", "w") as tar:
            for photo in range(number, 10, 2):
                tar.add(folder / "photos" / "ab"[number] / f"{photo}.jpg", f"{photo}.jpg")
                label = tarfile.TarInfo(f"{photo}.cls")
                label.size = 1
                tar.addfile(label, io.BytesIO(b"%d" % number))
    with tarfile.open(folder / "aia.tar", "w") as tar:
        tar.add(folder / "level1", "level1")
    writer = TFRecordWriter(str(folder / "train-0-of-1"))
    image = (folder / "photos" / "a" / "0.jpg").read_bytes()
    writer.write({"image/encoded": (image, "byte"), "image/class/label": (3, "int")})
    writer.close()


def _write_arrays(folder: Path) -> None:
    """Write fields of the weather as Zarr, and images of a satellite as netCDF4."""
    numbers = np.random.default_rng(0).normal(280, 9, (6, 2, 90, 80)).astype(np.float32)
    axes = ("time", "level", "lat", "lon")
    times = np.datetime64("2020-01-01", "ns") + np.arange(6) * np.timedelta64(6, "h")
    of_surface = axes[:1] + axes[2:]
    variables = {"t2m": (of_surface, numbers[:, 0]), "z": (axes, numbers)}
    variables["front"] = of_surface, (numbers[:, 0] > 290).astype(np.int8)
    weather = xr.Dataset(variables, {"time": times, "level": [500, 850]})
    weather.to_zarr(folder / "weather.zarr", zarr_format=2)
    for wavelength in (171, 193):
        path = str(folder / "sdomlv2.zarr" / "2014" / f"{wavelength}A")
        made = zarr.create_array(path, shape=(6, 90, 80), chunks=(3, 90, 80), dtype="f4")
        made[...] = numbers[:, 1]
        made.attrs["T_OBS"] = [f"{time.astype('M8[s]')}Z" for time in times]
    (folder / "goes").mkdir()
    for number, time in enumerate(times):
        image = xr.Dataset({"Rad": (("y", "x"), numbers[number, 0])})
        image.attrs["time_coverage_start"] = f"{time.astype('M8[s]')}Z"
        packed = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -1}
        packed |= {"zlib": True, "chunksizes": (32, 32)}
        image.to_netcdf(folder / "goes" / f"{number}.nc", encoding={"Rad": packed})
    (folder / "sdo").mkdir()
    names = [f"aia{n}" for n in (94, 131, 171, 193, 211, 304, 335, 1600)]
    names += [f"hmi_{part}" for part in ("m", "bx", "by", "bz", "v")]
    for number in range(6):
        sun = xr.Dataset(dict.fromkeys(names, (("y", "x"), numbers[number, 0])))
        sun.attrs["date"] = f"2014-01-01T{number // 5:02}:{12 * (number % 5):02}:00"
        sun.to_netcdf(folder / "sdo" / f"{number}.nc", engine="h5netcdf")


def _write_speech(folder: Path) -> None:
    """Write recordings of 1.2 s and longer, and a manifest of them."""
    (folder / "speech").mkdir()
    lines = []
    for number in range(8):
        path = folder / "speech" / f"{number}.{'wav' if number % 2 else 'flac'}"
        write_audio(path, sound(19200 + 800 * number, seed=number))
        row = {"audio_filepath": f"speech/{path.name}", "duration": 1.0, "text": f"word {number}"}
        lines.append(json.dumps(row))
    (folder / "train.json").write_text("\n".join(lines))
    for word in ("no", "yes", "_background_noise_"):
        (folder / "words" / word).mkdir(parents=True)
        for number in range(20):  # so many that each part of a split has some
            path = folder / "words" / word / f"{number}.wav"
            write_audio(path, sound(14000 + 200 * number, seed=number))


def _write_clips(folder: Path) -> None:
    """Write videos of 30 and more frames."""
    (folder / "clips").mkdir()
    for number in range(5):
        write_video(folder / "clips" / str(number), "h264" if number % 2 else "vp9", 30 + number)


def _write_targets(folder: Path) -> None:
    """Write masks, a catalogue of them, and a COCO file for the photographs."""
    (folder / "masks").mkdir()
    lines, images, annotations = ["path,mask_path"], [], []
    for number in range(10):
        name, mask = f"{'ab'[number % 2]}/{number}.jpg", np.zeros((240, 300), np.uint8)
        mask[20 : 100 + number, 30:200] = 1
        Image.fromarray(mask).save(folder / "masks" / f"{number}.png")
        lines.append(f"photos/{name},masks/{number}.png")
        images.append({"id": number, "file_name": name, "width": 300, "height": 240})
        box = {"id": number, "image_id": number, "category_id": 18, "bbox": [30, 20, 170, 80]}
        polygon = [30, 20, 200, 20, 200, 100, 30, 100]
        annotations.append({**box, "segmentation": [polygon]})
    (folder / "segmentation.csv").write_text("\n".join(lines))
    categories = [{"id": 18, "name": "dog"}, {"id": 17, "name": "cat"}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "instances.json").write_text(json.dumps(content))


def placed(text: str, request: pytest.FixtureRequest) -> str:
    """Return code of a page, with the store of objects that it names where there is one."""
    return text if STORE not in text else text.replace(STORE, request.getfixturevalue("store"))


@pytest.fixture(scope="module")
def store(weed: Weed, folder: Path) -> str:
    """Endpoint of a store whose open bucket has the archive."""
    for path in folder.glob("archive/2015/*.fits"):
        weed.put(OPEN, str(path.relative_to(folder)), path.read_bytes())
    return f"http://127.0.0.1:{weed.s3_port}"


def run(command: list[str], folder: Path) -> str:
    found = jobs.run(command, cwd=folder, timeout=LIMIT_S)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_the_readme_is_a_script(folder: Path) -> None:
    """Its snippet runs as it stands: nobody has to know about reader processes first."""
    (block,) = blocks(README, "python")
    (folder / "readme.py").write_text(block.text)
    run([sys.executable, "readme.py"], folder)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if blocks(page, "python")],
    ids=lambda page: str(page.relative_to(DOCS)),
)
def test_snippets(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """All of a page in one namespace, and all pages in this process: a Loader each costs little."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.syspath_prepend(DOCS / "examples")
    # A fork of this process, which has threads by now, could hang.
    monkeypatch.setattr(DataLoader, "num_workers", property(lambda _: 0, lambda *_: None), False)
    # And each reader that a snippet does not ask for costs as much as the rest of it.
    init: Any = unwrap(Loader.__init__)
    monkeypatch.setattr(init, "__kwdefaults__", {**init.__kwdefaults__, "num_read_processes": 1})
    names = {"__name__": "__main__"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of aiapy and of a forking DataLoader
            for block in blocks(page, "python"):
                if block.file is not None:
                    Path(block.file).write_text(block.text)
                if block.file is not None or block.needs is not None:
                    continue
                text = placed(block.text, request)
                tree = ast.increment_lineno(ast.parse(text), block.line)
                exec(compile(tree, page, "exec"), names)
    finally:
        for value in names.values():
            if isinstance(value, Loader):
                value.close()
    files = [block.file for block in blocks(page, "python") if block.file is not None]
    if tests := [file for file in files if file.startswith("test_")]:
        monkeypatch.setenv("PYTHONPATH", str(DOCS / "examples"))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
        found = jobs.run(command, cwd=folder, timeout=LIMIT_S)
        assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("command", [c for c in commands() if c.startswith("make ")])
def test_make_target(command: str) -> None:
    run(["make", "--dry-run", *shlex.split(command)[1:]], ROOT)


@pytest.mark.slow
@pytest.mark.timeout(4 * LIMIT_S)
def test_commands(
    folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """In the order of the pages, as the later ones use what the earlier ones made.

    In this process, which has imported DALI and PyTorch; their own tests start each as a process.
    """
    monkeypatch.chdir(folder)
    # torchrun --no-python finds the program where this Python was installed
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    found = [
        shlex.split(placed(c, request))
        for c in commands()
        if c.startswith(("dali-pipelines ", "python ", "torchrun "))
    ]
    assert found[0] == shlex.split(
        "python scripts/run.py --num_read_processes=16 --batch_size=16 --num_gpus=4"
    )
    for command, *words in found:
        if re.search(r"\brun\b|/train\.py", " ".join(words)) and "--data" not in " ".join(words):
            words.append("--data=archive")  # in place of the sample set's 755 MB
        if any("configs/aia" in word for word in words):
            words.append("--max_batches=1")  # whole frames
        if "scripts/train.py" in words:
            words += ["--max_steps=6", "--crop=32"]  # into the second epoch, and on from there
        words = [re.sub("^(--config=)?(configs|scripts)/", rf"\1{ROOT}/\2/", w) for w in words]
        if command == "torchrun":
            run([sys.executable, "-m", "torch.distributed.run", "--standalone", *words], folder)
        elif command == "dali-pipelines":
            assert run_command(words) == 0, words
        else:
            script, *flags = words
            name = Path(script).stem
            main = run_command if name in COMMANDS else importlib.import_module(name).main
            assert main([name, *flags] if name in COMMANDS else flags) == 0, words


def test_smaller_copies_are_of_all_photographs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of any suffix, with the labels of the originals; a file that cannot be read is named."""
    monkeypatch.chdir(tmp_path)
    image = Image.effect_noise((1200, 600), 50).convert("RGB")
    turned = Image.Exif()
    turned[0x0112] = 6  # to the right
    for name in ("a/0.jpg", "b/1.JPEG", "b/2.png", "d/3.JPG", "d/4.webp"):
        path = Path("photos", name)
        path.parent.mkdir(exist_ok=True, parents=True)
        image.save(path, exif=turned)
    Path("photos/c").mkdir()
    half = Path("photos/a/0.jpg").read_bytes()[:20000]
    Path("photos/c/cut.jpg").write_bytes(half)
    Image.new("I;16", (9, 9), 999).save("photos/a/deep.png")
    (script,) = (
        block.text
        for block in blocks(DOCS / "guide" / "formats.md", "python")
        if "SHORTER" in block.text
    )
    names: dict[str, Any] = {}
    exec(compile(script, "formats.md", "exec"), names)
    index = names["index"]
    assert index["label"].to_pylist() == [0, 1, 1, 3, 3]
    for path in index["path"].to_pylist():
        with Image.open(path) as copy:
            assert copy.size == (512, 1024)
    out = capsys.readouterr().out
    assert out.count("cut.jpg") == out.count("deep.png") == 1


def test_each_command_is_documented() -> None:
    page = (DOCS / "guide" / "commands.md").read_text()
    assert {path.stem for path in (ROOT / "scripts").glob("[!_]*.py")} == {"run", "train"}
    expected = {*(f"dali-pipelines {name}" for name in COMMANDS), "python scripts/train.py"}
    assert set(re.findall(r"^## (.+)$", page, re.MULTILINE)) == expected
    assert set(re.findall(r"^\| `(.+?)` \|", page, re.MULTILINE)) == expected


def test_each_public_name_is_in_the_reference_once() -> None:
    page = (DOCS / "reference.md").read_text()
    listed = re.findall(r"^(?:   |\.\. py:data:: )(\w+)$", page, re.MULTILINE)
    assert sorted(listed) == sorted({*dali_pipelines.__all__, *readers.__all__})


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_dir_and_help_show_each_public_name(package: ModuleType) -> None:
    """Those too that are imported when they are first used: in a new process none is yet."""
    program = (
        f"import pydoc, {package.__name__} as package\n"
        "missing = set(package.__all__) - set(dir(package))\n"
        "assert not missing, missing\n"
        "text = pydoc.render_doc(package, renderer=pydoc.plaintext)\n"
        "missing = [name for name in package.__all__ if name not in text]\n"
        "assert not missing, missing\n"
    )
    run([sys.executable, "-c", program], ROOT)


def test_each_field_of_a_public_dataclass_is_documented() -> None:
    """By the docstring under it, which the reference shows."""
    missing = []
    for name in dali_pipelines.__all__:
        value = getattr(dali_pipelines, name)
        fields = set(getattr(value, "__dataclass_fields__", ()))
        documented = _parameters(value.__doc__ or "")
        bases = getattr(value, "__mro__", (object,))[:-1] if fields else ()
        documented |= {field for one in bases for field in _attribute_docstrings(one)}
        missing += [f"{name}.{field}" for field in sorted(fields - documented)]
    assert missing == []


def _parameters(docstring: str) -> set[str]:
    listed = re.findall(r"^ *((?:\w+, )*\w+)(?: : .*)?$", docstring, re.MULTILINE)
    return {name.strip() for names in listed for name in names.split(",")}


def _attribute_docstrings(value: type) -> Iterator[str]:
    source = Path(sys.modules[value.__module__].__file__ or "").read_text()
    classes = {n.name: n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ClassDef)}
    body = classes[value.__name__].body if value.__name__ in classes else []
    for field, below in pairwise(body):
        is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if is_text and isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            yield field.target.id


def test_doctests() -> None:
    public = (getattr(package, name) for package in PACKAGES for name in package.__all__)
    modules = {value.__module__ for value in public} - {"typing"}
    results = [doctest.testmod(importlib.import_module(name)) for name in sorted(modules)]
    assert sum(result.failed for result in results) == 0
    assert sum(result.attempted for result in results) > 0


def test_links_between_files_exist() -> None:
    """Sphinx checks those between pages; these lead out of docs/, or stand in files outside it."""
    missing = []
    for page in (README, ROOT / "CONTRIBUTING.md", *PAGES):
        for link in re.findall(r"(?:\]\(|\{include\} )([^)#\s]+)", page.read_text()):
            if "://" not in link and not re.search(r"^(../)?(gallery|generated)/", link):
                missing += [(page.name, link)] * (not (page.parent / link).exists())
    assert missing == []


def test_figures_of_the_readme_were_measured() -> None:
    """Each figure of its table, as it is rounded there, is in the file that its row links to."""
    row = r"^\|[^|]*\|([^|]*\|[^|]*)\| \[.+?\]\((benchmarks/results/.+?)\) \|$"
    rows = re.findall(row, README.read_text(), re.MULTILINE)
    assert rows
    for cells, file in rows:
        figures = re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", cells)
        assert figures, cells
        measured = list(_speeds(ROOT / file))
        for figure in figures:
            half = 0.5 / 10 ** len(figure.partition(".")[2])
            assert any(abs(speed - float(figure)) <= half for speed in measured), (figure, file)


def _speeds(file: Path) -> Iterator[float]:
    """Yield the images per second in the tables of a file of results."""
    column = None
    for line in file.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if "images/s" in cells:
            column = cells.index("images/s")
        elif not line.startswith("|"):
            column = None
        elif column is not None and re.fullmatch(r"\d+(\.\d+)?", cells[column]):
            yield float(cells[column])


def test_files_that_are_named_exist() -> None:
    """In the page that says where things are, and in the one that says where to put new ones."""
    missing = []
    file = re.compile(r"`([\w.-]*(?:/[\w.-]*)+|[\w-]+\.(?:py|md|toml))`")
    for page in (ROOT / "CONTRIBUTING.md", DOCS / "architecture.md"):
        for name in file.findall(page.read_text()):
            if "NAME" not in name:
                missing += [(page.name, name)] * (not (ROOT / name).exists())
    assert missing == []


def test_folders_of_the_packages() -> None:
    """The architecture names each of the first two levels."""
    page = (DOCS / "architecture.md").read_text()
    for package in PACKAGES:
        root = Path(package.__path__[0])
        for folder in (root, *root.rglob("*/")):
            modules = [path.name for path in folder.glob("[!_]*.py")]
            if modules and len(folder.relative_to(root).parts) < 2:
                assert f"| `{folder.relative_to(ROOT)}/` |" in page


def test_each_setting_is_in_the_guide() -> None:
    """Those of the Loader and of the factories of images; Calibration is in the reference."""
    page = (DOCS / "guide" / "training.md").read_text()
    named = set(re.findall(r"`(\w+)`", page.partition("## Labels")[0]))
    settings = set(PipelineSettings.__annotations__) | set(signature(Loader).parameters)
    for factory in (fits_pipeline, jpeg_pipeline, npy_pipeline):
        settings |= set(signature(factory).parameters)
    assert settings - {"factory", "index", "config"} - named == set()
