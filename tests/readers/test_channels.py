"""ChannelsReader around the Readers of FITS and .npy files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fakes import Info
from fits_files import decoded, plain_hdu, truth, write
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import StoredImage

from readers import (
    AiaReader,
    ChannelsReader,
    FitsReader,
    Index,
    NpyReader,
    Order,
    Row,
    Sample,
    Schedule,
    Shard,
    Source,
    Window,
)
from readers.testing import NUMBER, ReaderContract, check_specs, equal, refused

PARTS = ("171", "193")
RAMP = np.arange(31 * 23, dtype=np.int16).reshape(31, 23) * 40 - 14000
NPY = ChannelsReader(NpyReader(), PARTS)


def row_of(**paths: str | Path | None) -> Row:
    """Return the row of the files, of which the first is the row's own, too."""
    parts = {
        name.removeprefix("of_"): None if path is None else Row(NUMBER, str(path))
        for name, path in paths.items()
    }
    first = next(part.path for part in parts.values() if part is not None)
    return Row(NUMBER, first, parts=parts)


def npy(folder: Path, name: str, value: float, shape: tuple[int, ...] = (31, 23)) -> Path:
    path = folder / f"{name}.npy"
    np.save(path, np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + value)
    return path


class TestNpy(ReaderContract):
    @pytest.fixture
    def reader(self) -> ChannelsReader:
        return NPY

    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        return row_of(of_171=npy(tmp_path, "a", 0.5), of_193=npy(tmp_path, "b", 1000))

    @pytest.fixture
    def bad_row(self, tmp_path: Path) -> Row:
        np.save(tmp_path / "bad.npy", np.zeros((31, 23), np.int16))
        return row_of(of_171=npy(tmp_path, "a", 0.5), of_193=tmp_path / "bad.npy")

    def row(self, path: Path | str) -> Row:
        return row_of(of_171=path, of_193=path)

    def pixels(self, sample: Sample) -> NDArray[Any]:
        return np.concatenate([sample["image_0"], sample["image_1"]], axis=2)


class TestFits(TestNpy):
    @pytest.fixture
    def reader(self) -> ChannelsReader:
        return ChannelsReader(FitsReader(), PARTS)

    @pytest.fixture
    def good_row(self, tmp_path: Path) -> Row:
        (tmp_path / "a.fits").write_bytes(plain_hdu(RAMP, {"BSCALE": 0.1, "BLANK": 40}))
        write(tmp_path / "b.fits", StoredImage(RAMP[::-1], {}, {"compression_type": "RICE_1"}))
        return row_of(of_171=tmp_path / "a.fits", of_193=tmp_path / "b.fits")

    @pytest.fixture
    def bad_row(self, tmp_path: Path) -> Row:
        (tmp_path / "a.fits").write_bytes(plain_hdu(RAMP, {}))
        (tmp_path / "bad.fits").write_bytes(plain_hdu(np.zeros((3, 4, 5), np.int16), {}))
        return row_of(of_171=tmp_path / "a.fits", of_193=tmp_path / "bad.fits")

    def pixels(self, sample: Sample) -> NDArray[Any]:
        names = [spec.name for spec in FitsReader.specs]
        images = [
            decoded(Sample({name: sample[f"{name}_{place}"] for name in names})) for place in (0, 1)
        ]
        return np.concatenate(images, axis=2)

    def test_equals_astropy(self, reader: ChannelsReader, good_row: Row) -> None:
        found = self.pixels(reader.read(good_row, None))
        for place, name in enumerate(PARTS):
            part = good_row.part(name)
            assert part is not None
            np.testing.assert_array_equal(found[..., place], truth(part.path))


def test_the_order_of_the_parts_is_the_readers(tmp_path: Path) -> None:
    row = row_of(of_171=npy(tmp_path, "a", 0), of_193=npy(tmp_path, "b", 1000))
    sample = ChannelsReader(NpyReader(), ("193", "171")).read(row, Window(height=1, width=1))
    assert sample["image_0"].item() == sample["image_1"].item() + 1000
    assert sample["present"].tolist() == [True, True]


class TestMissing:
    @pytest.mark.parametrize(
        ("missing", "window"), [("171", None), ("193", Window(height=4, width=3))]
    )
    def test_it_is_blank(self, tmp_path: Path, window: Window | None, missing: str) -> None:
        (there,) = set(PARTS) - {missing}
        paths = {name: None if name == missing else npy(tmp_path, name, 7) for name in PARTS}
        row = row_of(**{f"of_{name}": path for name, path in paths.items()})
        sample = NPY.read(row, window)
        check_specs(NPY, sample)
        part = row.part(there)
        assert part is not None
        single = NpyReader().read(part, window)
        np.testing.assert_array_equal(sample[f"image_{PARTS.index(there)}"], single["image"])
        blank = NpyReader().blank(*single["image"].shape[:2])["image"]
        np.testing.assert_array_equal(sample[f"image_{PARTS.index(missing)}"], blank)
        assert sample["present"].tolist() == [part == there for part in PARTS]
        assert sample.input_bytes == single.input_bytes
        peek = NPY.peek(row, window)
        assert (peek.height, peek.width) == (31, 23)
        assert peek.nbytes == 2 * NpyReader().peek(part, window).nbytes + 2
        assert peek.nbytes == sum(array.nbytes for array in sample.arrays.values())
        NPY.verify(row)

    def test_all(self) -> None:
        row = Row(NUMBER, "/row.npy", parts=dict.fromkeys(PARTS))
        refused(NPY, row, None, "none of the parts 171, 193")

    def test_a_row_without_the_part(self) -> None:
        with pytest.raises(KeyError, match=r"row 17 .*'171'.*none"):
            NPY.read(Row(NUMBER, "/a.npy"), None)

    def test_blank_is_not_present(self) -> None:
        assert NPY.blank(3, 4)["present"].tolist() == [False, False]
        equal(NPY.blank(3, 4), NPY.blank(3, 4))


class TestErrors:
    def test_channel_and_path_are_named(self, tmp_path: Path) -> None:
        row = row_of(of_171=npy(tmp_path, "a", 0), of_193="/no/such.npy")
        error = refused(NPY, row, None, "part 193, /no/such.npy: .*No such file")
        assert str(error).startswith(f"{row.path} (row 17): ")

    def test_hdu_is_named(self, tmp_path: Path) -> None:
        for name in "ab":
            (tmp_path / name).write_bytes(plain_hdu(RAMP, {}))
        parts = {"171": Row(NUMBER, str(tmp_path / "a"), 0), "193": Row(NUMBER, f"{tmp_path}/b", 3)}
        reader = ChannelsReader(FitsReader(), PARTS)
        row = Row(NUMBER, f"{tmp_path}/a", parts=parts)
        refused(reader, row, None, rf"part 193, {tmp_path}/b\[3\]: .*no HDU 3, .*1 HDU")
        row = Row(NUMBER, f"{tmp_path}/b", parts=parts)
        refused(reader, row, None, rf"^{tmp_path}/b\[3\] \(row 17\): part 193: .*no HDU 3")

    @pytest.mark.parametrize("parts", [(), "171", ("171", "171")])
    def test_parts(self, parts: Any) -> None:
        with pytest.raises(ValueError, match=r"parts must be .*names"):
            ChannelsReader(NpyReader(), parts)


def test_from_an_index_through_a_source(tmp_path: Path) -> None:
    """Only the parts that the Reader names are sent to the reader processes."""
    rows = [
        (wave, 12 * k, npy(tmp_path, f"{wave}_{k}", wave)) for k in (0, 1) for wave in (94, 171)
    ]
    rows.append((171, 24, npy(tmp_path, "171_2", 171)))
    waves, times, paths = zip(*rows, strict=True)
    files = pa.table(
        {
            "path": list(map(str, paths)),
            "wavelnth": waves,
            "t_obs": pa.array(times, pa.timestamp("s")),
        }
    )
    index = Index(files).group([171, 94], missing="keep")
    reader = ChannelsReader(NpyReader(), ("94",))
    columns = index.columns(["dt_94"], parts=reader.parts)
    assert columns.row(0).parts.keys() == {"94"}
    assert columns.row(2).part("94") is None
    source = Source(
        columns=columns,
        reader=reader,
        schedule=Schedule(num_rows=3, shard=Shard(), batch_size=3),
        order=Order(3, shuffle=False),
        sent_columns=("dt_94",),
    )
    samples = [
        dict(zip((spec.name for spec in source.specs), source(Info(number)), strict=True))
        for number in range(3)
    ]
    assert [bool(sample["valid"]) for sample in samples] == [True, True, False]
    assert samples[0]["image_0"][0, 0, 0] == 94
    assert b"none of the parts 94" in samples[2]["report"].tobytes()


@pytest.mark.parametrize(("reader", "turns"), [(FitsReader(), False), (AiaReader(), True)])
def test_it_turns_windows_if_its_reader_does(reader: AiaReader | FitsReader, turns: bool) -> None:
    assert ChannelsReader(reader, ("171", "193")).turns == turns


@pytest.fixture(scope="module")
def sequences(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Five frames, of which one is missing, as sequences of three."""
    folder = tmp_path_factory.mktemp("frames")
    numbers = [0, 1, 3, 4, 5]
    paths = [str(npy(folder, str(number), 1000.0 * number)) for number in numbers]
    times = pa.array([60 * number for number in numbers], pa.timestamp("s"))
    files = Index(pa.table({"path": paths, "t_obs": times}))
    return files.group(offsets=("-1min", "0", "+1min"), missing="keep")


def delivered(
    index: Index, epoch: int, position: int = 0, batch: int = 1, shards: int = 1, **options: Any
) -> list[tuple[int, dict[str, NDArray[Any]]]]:
    """Return what all shards send of an epoch, from a position on: rows, and their arrays."""
    reader = ChannelsReader(NpyReader(), index.parts)
    found = []
    for shard in range(shards):
        schedule = Schedule(
            num_rows=len(index),
            shard=Shard(shard, shards),
            batch_size=batch,
            epoch=epoch,
            position=position,
        )
        order = Order(len(index), options["seed"])
        columns = index.columns(parts=reader.parts)
        geometry = {name: value for name, value in options.items() if name != "seed"}
        source = Source(columns=columns, reader=reader, schedule=schedule, order=order, **geometry)
        names = [spec.name for spec in source.specs]
        for number in range(schedule.steps(epoch) * batch):
            sample = dict(zip(names, source(Info(number)), strict=True))
            sample.pop("report")
            if sample["valid"]:
                found.append((int(sample["row"]), sample))
    return found


GEOMETRIES: list[dict[str, Any]] = [
    {"crop": (5, 7), "window": "random", "flip": "hv"},
    {"crop": (5, 7), "window": "random", "rotate": 40.0, "outputs": ("matrix",)},
    {"random_area": (0.1, 0.9), "resize": (4, 4), "flip": "h", "outputs": ("window", "flip")},
]


@given(
    geometry=st.sampled_from(GEOMETRIES),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 99),
    batch=st.integers(1, 4),
    shards=st.integers(1, 3),
    position=st.integers(0, 4),
)
def test_sequences_are_pure(
    sequences: Index,
    geometry: dict[str, Any],
    seed: int,
    epoch: int,
    batch: int,
    shards: int,
    position: int,
) -> None:
    """Whatever the batches and shards, after a resume, too; each row once."""
    options = {**geometry, "seed": seed}
    expected = delivered(sequences, epoch, **options)
    rest = delivered(sequences, epoch, position, batch, shards, **options)
    assert sorted(row for row, _ in rest) == sorted(row for row, _ in expected[position:])
    by_row = dict(expected)
    for row, sample in rest:
        for name, array in sample.items():
            np.testing.assert_array_equal(array, by_row[row][name])
