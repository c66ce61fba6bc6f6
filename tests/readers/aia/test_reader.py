from __future__ import annotations

import math
import re
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import sunpy.map
from aiapy.calibrate import correct_degradation
from aiapy_releases import get_correction_table
from astropy.io import fits
from fakes import Info
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import ndimage
from solar_files import (
    changed,
    frame,
    full_header,
    hmi_header,
    pointing_table,
    save,
    save_pointing,
)

from readers import (
    AiaReader,
    CorrectionTable,
    Draws,
    HeaderRules,
    Index,
    Order,
    PointingTable,
    ReadError,
    Row,
    Schedule,
    Shard,
    Source,
    Window,
)
from readers.aia.registration import register_matrix
from readers.contract import Reader, Sample
from readers.testing import NUMBER, ReaderContract, refused

PIXELS, HEADER = frame()
COUNTS = np.rint(PIXELS).astype(np.int16)
SMALL: dict[str, Any] = {"shape": (128, 128), "scale": 19.2}


@pytest.fixture
def plain(tmp_path: Path) -> Row:
    return Row(NUMBER, str(save(tmp_path / "plain.fits", PIXELS, HEADER)))


@pytest.fixture
def rice(tmp_path: Path) -> Row:
    header = changed(HEADER, BLANK=-32768)
    path = save(tmp_path / "rice.fits", COUNTS, header, compression_type="RICE_1")
    return Row(NUMBER, str(path))


def decoded(sample: Sample) -> NDArray[Any]:
    """Return the pixels of the part that was read, where the test files have no scaling."""
    height, width, _ = sample["shape"].shape
    plan, payload = sample["plan"], sample["payload"]
    bitpix, tiles = plan[0], plan[11:].reshape(-1, 3)
    kind = {16: ">i2", -64: ">f8", 8: "u1"}[int(bitpix)]
    rows = [payload[at : at + size].view(kind) for at, size, _ in tiles]
    return np.array(rows, np.float64).reshape(len(rows), -1) if rows else np.zeros((height, width))


def resampled(sample: Sample, order: int = 3) -> NDArray[Any]:
    """Do what the graph does."""
    matrix = sample["matrix"]
    part = decoded(sample) * sample["gain"]
    return ndimage.affine_transform(
        part, matrix[::-1, 1::-1], matrix[::-1, 2], sample["grid"].shape[:2], order=order
    )


class Contract(ReaderContract):
    order: Literal[1, 3] = 3

    @pytest.fixture
    def reader(self) -> AiaReader:
        return AiaReader(**SMALL, order=self.order)

    @pytest.fixture
    def good_row(self, plain: Row) -> Row:
        return plain

    @pytest.fixture
    def bad_row(self, tmp_path: Path) -> Row:
        header = changed(HEADER, CRPIX1=-20.0)
        return Row(NUMBER, str(save(tmp_path / "cutout.fits", PIXELS, header)))

    def pixels(self, sample: Sample) -> NDArray[Any]:
        # The box of a window is prefiltered by itself, which is 1e-7 of 4000 off at its edges.
        return np.rint(resampled(sample, self.order) * 100)[..., None] / 100

    @pytest.mark.parametrize(
        "window", [Window(height=3, width=5), Window(height=9, width=9, y=0.3)]
    )
    def test_window_is_the_crop_of_the_whole(
        self, reader: Reader, good_row: Row, window: Window | None
    ) -> None:
        assert window is not None
        whole = resampled(reader.read(good_row, None), self.order)
        y, x = window.place(*whole.shape)
        crop = whole[y : y + window.height, x : x + window.width]
        found = resampled(reader.read(good_row, window), self.order)
        np.testing.assert_allclose(found, crop, rtol=0, atol=2e-3)


class TestCubic(Contract): ...


class TestLinear(Contract):
    order = 1


@pytest.mark.parametrize("order", [1, 3])
@given(y=st.floats(0, 1, exclude_max=True), x=st.floats(0, 1, exclude_max=True),
       size=st.integers(1, 60), angle=st.floats(-180, 180), zoom=st.floats(0.5, 3))  # fmt: skip
def test_a_window_sees_what_the_whole_image_has(
    tmp_path_factory: pytest.TempPathFactory,
    order: Literal[1, 3],
    y: float,
    x: float,
    size: int,
    angle: float,
    zoom: float,
) -> None:
    """The part of the image that is read for it makes no difference."""
    path = tmp_path_factory.getbasetemp() / "window.fits"
    if not path.exists():
        save(path, PIXELS, HEADER)
    window = Window(height=size, width=2 * size, y=y, x=x, angle=angle, zoom=zoom)
    some = AiaReader(**SMALL, order=order, reduce=1).read(Row(0, str(path)), window)
    whole = register_matrix(HEADER, **SMALL, window=window)
    top, left, height, width = some["frame"]
    assert (height, width) == (128, 128)
    part = PIXELS[top : top + some["shape"].shape[0], left : left + some["shape"].shape[1]]
    np.testing.assert_array_equal(decoded(some), part)
    np.testing.assert_allclose(whole - some["matrix"], [[0, 0, left], [0, 0, top]], atol=1e-10)
    assert some["grid"].shape == (size, 2 * size, 0)


def test_the_matrix_is_that_of_the_header(rice: Row) -> None:
    sample = AiaReader().read(rice, None)
    np.testing.assert_array_equal(sample["matrix"], register_matrix(HEADER))
    assert sample["grid"].shape == (4096, 4096, 0)
    settings: dict[str, Any] = {"scale": 20.0, "shape": (100, 90), "center": "sun", "radius": 45.0}
    found = AiaReader(**settings).read(rice, None)["matrix"]
    np.testing.assert_array_equal(found, register_matrix(HEADER, **settings))


def test_a_source_turns_its_windows(plain: Row) -> None:
    """Each by its own angle, about its own centre."""
    index = Index.from_paths([plain.path] * 3)
    made = Source(
        columns=index.columns(),
        reader=AiaReader(**SMALL, reduce=1),
        schedule=Schedule(num_rows=3, shard=Shard(), batch_size=1),
        order=Order(3, shuffle=False),
        crop=(16, 16),
        rotate=90.0,
        zoom=(0.5, 2.0),
    )
    names = [spec.name for spec in made.specs]
    for row in range(3):
        sample = dict(zip(names, made(Info(row)), strict=True))
        assert sample["valid"]
        draws = Draws.of(0, 0, row)
        matrix = sample["matrix"][:, :2] * 19.183648 / 19.2
        angle = np.rad2deg(np.arctan2(matrix[0, 1], matrix[0, 0]))
        assert angle == pytest.approx((2 * draws.turn - 1) * 90 + HEADER["CROTA2"])
        assert np.linalg.det(matrix) == pytest.approx(4 ** (1 - 2 * draws.zoom))


def test_only_the_tiles_of_the_window_are_read(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 4000, (2048, 2048), np.int16)
    words: dict[str, Any] = {"NAXIS1": 2048, "NAXIS2": 2048, "CDELT1": 1.199, "CDELT2": 1.199}
    header = full_header(**words, CRPIX1=1024.5, CRPIX2=1024.5)
    row = Row(0, str(save(tmp_path / "a.fits", pixels, header, compression_type="RICE_1")))
    reader = AiaReader(shape=(2048, 2048), scale=1.2)
    whole = reader.read(row, None)
    part = reader.read(row, Window(height=200, width=200))
    assert part["shape"].shape[0] <= 200 + 2 * 14 + 2
    assert part.input_bytes < 0.13 * whole.input_bytes
    peek = reader.peek(row, Window(height=200, width=200))
    assert (peek.height, peek.width) == (2048, 2048)
    assert peek.nbytes < 0.15 * reader.peek(row, None).nbytes


@pytest.fixture(scope="module")
def correction(shared_data: Path) -> CorrectionTable:
    path = shared_data / "tables" / "aia_V10_20201119_190000_response_table.txt"
    return CorrectionTable.read(path)


class TestGain:
    def gain(self, row: Row, **settings: Any) -> float:
        (gain,) = AiaReader(**SMALL, **settings).read(row, None)["gain"]
        return gain

    def test_what_is_asked_for(self, plain: Row, correction: CorrectionTable) -> None:
        degradation = correction.degradation(171, HEADER["DATE-OBS"])
        exposure = HEADER["EXPTIME"]
        assert self.gain(plain) == 1
        assert self.gain(plain, exposure=True) == pytest.approx(1 / exposure, rel=1e-15)
        assert self.gain(plain, correction=correction) == pytest.approx(1 / degradation, rel=1e-15)
        both = self.gain(plain, exposure=True, correction=correction)
        assert both == pytest.approx(1 / (exposure * degradation), rel=1e-15)
        assert both != pytest.approx(1 / exposure, rel=1e-3)

    def test_it_is_that_of_aiapy(
        self, plain: Row, correction: CorrectionTable, shared_data: Path
    ) -> None:
        table = shared_data / "tables" / correction.name
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of years to come
            smap = sunpy.map.Map(PIXELS, HEADER)
            corrected = correct_degradation(smap, correction_table=get_correction_table(table))
            expected = (corrected / smap.exposure_time).data
        found = PIXELS * self.gain(plain, exposure=True, correction=correction)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=0)

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ({"EXPTIME": None}, "EXPTIME is missing"),
            ({"EXPTIME": 0.0}, "EXPTIME is 0.0"),
            ({"WAVELNTH": None}, "WAVELNTH is missing"),
            ({"WAVELNTH": 4500}, "response_table.txt .*channel 4500"),
            ({"DATE__OBS": None}, "DATE-OBS is missing"),
            ({"DATE__OBS": "2009-01-01T00:00:00"}, "171 at 2009-01-01T00:00:00"),
        ],
    )
    def test_it_is_never_silently_1(
        self, tmp_path: Path, correction: CorrectionTable, words: dict[str, Any], message: str
    ) -> None:
        reader = AiaReader(
            **SMALL, exposure=True, correction=correction, rules=HeaderRules(exposed=False)
        )
        path = save(tmp_path / "a.fits", PIXELS, changed(HEADER, **words))
        row = Row(NUMBER, str(path))
        for call in (lambda: reader.read(row, None), lambda: reader.verify(row)):
            with pytest.raises(ReadError, match=message):
                call()


class TestPointing:
    @pytest.fixture
    def table(self, tmp_path: Path) -> PointingTable:
        save_pointing(pointing_table(), tmp_path / "table.csv")
        return PointingTable.read(tmp_path / "table.csv")

    @pytest.fixture
    def full(self, tmp_path: Path) -> Row:
        header = full_header(PC1_1=1.0, PC2_2=1.0, CD1_1=0.6)
        pixels = np.zeros((4096, 4096), np.int16)
        return Row(
            NUMBER, str(save(tmp_path / "a.fits", pixels, header, compression_type="RICE_1"))
        )

    def test_the_table_counts_and_not_the_header(self, full: Row, table: PointingTable) -> None:
        found = table.pointing(171, HEADER["T_OBS"])
        reader = AiaReader(pointing=table)
        words = reader.header(full)
        assert words["CRPIX1"] == found.x0 + 1
        assert not {"PC1_1", "PC2_2", "CD1_1"} & set(words)
        expected = full_header(
            CRPIX1=found.x0 + 1,
            CRPIX2=found.y0 + 1,
            CDELT1=found.imscale,
            CDELT2=found.imscale,
            CROTA2=found.instrot + HEADER["SAT_ROT"],
        )
        matrix = reader.read(full, Window(height=8, width=8))
        top, left = matrix["frame"][:2]
        expected = register_matrix(expected, window=Window(height=8, width=8)) - [
            [0, 0, left],
            [0, 0, top],
        ]
        np.testing.assert_allclose(matrix["matrix"], expected, rtol=0, atol=1e-12)

    def test_a_time_outside(self, tmp_path: Path, table: PointingTable) -> None:
        header = full_header(T_OBS="2020-01-01T00:00:00Z")
        pixels = np.zeros((4096, 4096), np.int16)
        path = save(tmp_path / "a.fits", pixels, header, compression_type="RICE_1")
        refused(AiaReader(pointing=table), Row(NUMBER, str(path)), None, "table.csv .*no slot")

    def test_a_small_frame(self, plain: Row, table: PointingTable) -> None:
        refused(AiaReader(pointing=table), plain, None, "128x128.*pointing table")


def test_hmi(tmp_path: Path) -> None:
    header = hmi_header(CDELT1=16.14, CDELT2=16.14, CRPIX1=64.2, CRPIX2=64.9)
    stored = np.full((128, 128), -(2**31), np.int32)
    stored[30:90, 30:90] = 5
    image = fits.CompImageHDU(stored, compression_type="RICE_1")
    image.header.update(header)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image.writeto(tmp_path / "hmi.fits")
        with fits.open(tmp_path / "hmi.fits", "update", disable_image_compression=True) as hdus:
            hdus[1].header.update({"BSCALE": 0.1, "BZERO": 0.0, "BLANK": -(2**31)})
    row = Row(0, str(tmp_path / "hmi.fits"))
    sample = AiaReader(shape=(128, 128), scale=16.2).read(row, None)
    words = changed(header, NAXIS1=128, NAXIS2=128)
    expected = register_matrix(words, shape=(128, 128), scale=16.2)
    np.testing.assert_array_equal(sample["matrix"], expected)
    assert sample["matrix"][0, 0] == pytest.approx(-16.2 / 16.14, rel=1e-5)
    assert list(sample["scaling"]) == [0.1, 0, -(2.0**31)]
    # What is AIA's does not concern it.
    sample = AiaReader(exposure=True, lowest=0.0, floor=0.0).read(row, None)
    assert sample["gain"] == [1]
    assert list(sample["special"][2:]) == [-math.inf, -math.inf]
    curves = {"171": (1.0,), "hmi_m": (2.0,)}
    assert AiaReader(curves=curves).read(row, None)["stretch"] == [2]


@pytest.mark.parametrize("group", ["MAGNETOGRAM", "6173"])
def test_stretch_of_hmi_by_the_column_of_its_group(tmp_path: Path, group: str) -> None:
    """Samples of AIA and HMI are grouped by WAVELNTH, and stretches in order have these names."""
    header = hmi_header(CDELT1=16.14, CDELT2=16.14, CRPIX1=64.2, CRPIX2=64.9, WAVELNTH=6173.0)
    row = Row(NUMBER, str(save(tmp_path / "hmi.fits", np.ones((128, 128), np.float32), header)))
    curves = {"171": (1.0,), group: (3.0,)}
    assert AiaReader(curves=curves).read(row, None)["stretch"] == [3]
    curves["hmi_m"] = (2.0,)
    assert AiaReader(curves=curves).read(row, None)["stretch"] == [2]
    with pytest.raises(ReadError, match=r"hmi_m.*171, hmi_v"):
        AiaReader(curves={"171": (1.0,), "hmi_v": (2.0,)}).read(row, None)


class TestRefused:
    def test_a_real_cutout(self, shared_data: Path) -> None:
        row = Row(NUMBER, str(shared_data / "fits" / "aia_171_cutout.fits"))
        assert refused(AiaReader(), row, None, "full disk.*cutout").row == NUMBER
        sample = AiaReader(rules=HeaderRules(full_disk=False)).read(row, None)
        assert list(sample["frame"]) == [0, 0, 705, 769]

    @pytest.mark.parametrize(
        ("name", "words"),
        [("hmi_sharp_br", "CTYPE1 is 'CRLN-CEA'.*helioprojective"), ("m13", "INSTRUME is ")],
    )
    def test_another_map(self, shared_data: Path, name: str, words: str) -> None:
        row = Row(NUMBER, str(shared_data / "fits" / f"{name}.fits"))
        refused(AiaReader(), row, None, words)

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ({"LVL_NUM": 1.5}, "LVL_NUM is 1.5, expected 1"),
            ({"QUALITY": 1 << 12}, r"QUALITY is 0x00001000.* 12 \("),
            ({"CROTA2": None}, "CROTA2 is missing"),
        ],
    )
    def test_rules(self, tmp_path: Path, words: dict[str, Any], message: str) -> None:
        path = save(tmp_path / "a.fits", PIXELS, changed(HEADER, **words))
        refused(AiaReader(**SMALL), Row(NUMBER, str(path)), None, message)


ERRORS: list[tuple[str, Any, str]] = [
    ("shape", (0, 5), "1x1"),
    ("scale", 0.0, "above 0"),
    ("radius", -1.0, "above 0"),
    ("radius", math.nan, "above 0"),
    ("order", 2, "1, 3"),
    ("center", "limb", "sun"),
]


@pytest.mark.parametrize(("setting", "value", "remedy"), ERRORS)
def test_errors(setting: str, value: Any, remedy: str) -> None:
    settings: dict[str, Any] = {setting: value}
    with pytest.raises(ValueError, match=rf"{setting}.*{remedy}.*got {re.escape(repr(value))}"):
        AiaReader(**settings)
