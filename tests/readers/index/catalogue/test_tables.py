from __future__ import annotations

import gzip
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy import units as u
from astropy.coordinates import SkyCoord
from astropy.io import fits
from astropy.table import MaskedColumn, QTable, Table
from astropy.time import Time
from astropy.utils.exceptions import AstropyUserWarning
from astropy.utils.masked import Masked

from readers.index.catalogue.tables import Objects

TABLE = Table({"ra": [1.5, 2.5], "dec": [-3.0, 4.0], "name": ["a", "bß"], "flag": [True, False]})


def written(path: Path) -> str:
    if path.suffix == ".parquet":
        pq.write_table(pa.table({name: TABLE[name].tolist() for name in TABLE.colnames}), path)
    elif path.name == "commented.csv":
        path.write_text("# of a survey\nra,dec,name,flag\n1.5,-3,a,True\n2.5,4,bß,False\n")
    elif path.name == "ecsv_of_an_archive.csv":
        TABLE.write(path, format="ascii.ecsv")
    elif path.suffix == ".fits":
        table = TABLE.copy()
        table["name"] = ["a", "b"]
        table.write(path)
        if path.name == "ldac.fits":
            header = fits.table_to_hdu(Table({"Field Header Card": ["x"]}))
            hdus = [fits.PrimaryHDU(), header, fits.table_to_hdu(table)]
            hdus[2].name = "LDAC_OBJECTS"
            fits.HDUList(hdus).writeto(path, overwrite=True)
    elif path.name == "packed.csv.gz":
        with gzip.open(path, "wt") as file:
            file.write("ra, dec,name,flag \n1.5,-3,a,True\n2.5, 4,bß,False\n")
    elif path.suffix == ".txt":
        TABLE.write(path, format="ascii.fixed_width_two_line")
    elif path.suffix == ".vot":
        TABLE.write(path, format="votable")
    else:
        TABLE.write(path)
    return str(path)


@pytest.mark.parametrize(
    "name",
    [
        *("plain.csv", "commented.csv", "ecsv_of_an_archive.csv", "table.ecsv", "table.parquet"),
        *("table.fits", "ldac.fits", "table.vot", "packed.csv.gz", "table.txt"),
    ],
)
def test_files(name: str, tmp_path: Path) -> None:
    objects = Objects(written(tmp_path / name))
    assert len(objects) == 2
    assert objects.names == TABLE.colnames
    assert objects.folder == str(tmp_path)
    assert objects.degrees("ra").tolist() == [1.5, 2.5]
    assert objects.degrees("dec").tolist() == [-3, 4]
    text = objects.column("name").to_pylist()
    assert text == ["a", "b" if name.endswith(".fits") else "bß"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("a.csv", "ascii.csv"), ("a.csv.gz", "ascii.csv"), ("a.tsv", "ascii.tab")),
        *(("a.dat", "ascii.basic"), ("a.ecsv", "ascii.ecsv"), ("a.vot", "votable")),
    ],
)
def test_identifiers_keep_leading_zeros_and_long_integers(
    name: str, kind: str, tmp_path: Path
) -> None:
    ids = ["007", "010"], ["18446744073709551610", "18446744073709551611"]
    table = Table([*ids, [0.1, 100000.0]], names=["id", "big", "z"])
    table.write(tmp_path / "table", format=kind)
    content = (tmp_path / "table").read_bytes()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    objects = Objects(str(tmp_path / name))
    assert objects.column("id").to_pylist() == ids[0]
    assert objects.column("big").to_pylist() == ids[1]
    assert objects.column("z").to_pylist() == [0.1, 100000]


@pytest.mark.parametrize(
    ("values", "degrees"),
    [
        ([2, 3] * u.hourangle, [30, 45]),
        ([0.5, 1] * u.rad, np.degrees([0.5, 1])),
        (Masked([30, 40] * u.arcmin, mask=[False, True]), [0.5, np.nan]),
        (MaskedColumn([1.0, 2.0], mask=[True, False], unit="deg"), [np.nan, 2]),
        (MaskedColumn([1, 2], mask=[True, False]), [np.nan, 2]),
        (Masked([1, 2], mask=[True, False]), [np.nan, 2]),
        (np.array([1, 2], ">f4"), [1, 2]),
    ],
)
def test_units_masks_and_byte_orders(values: Any, degrees: list[float]) -> None:
    np.testing.assert_allclose(Objects(QTable({"ra": values})).degrees("ra"), degrees)


def test_hours_of_a_fits_table(tmp_path: Path) -> None:
    """FITS has no such unit: astropy reads it as one that it does not know."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        column = fits.Column("ra", "D", "hourangle", array=np.array([2.0, 3]))
        fits.BinTableHDU.from_columns([column]).writeto(tmp_path / "hours.fits")
        objects = Objects(str(tmp_path / "hours.fits"))
    np.testing.assert_allclose(objects.degrees("ra"), [30, 45])


def test_null_and_integers_of_arrow() -> None:
    table = pa.table({"x": pa.array([1, None]), "d": pa.array([1.0, None]).dictionary_encode()})
    for name in table.column_names:
        np.testing.assert_array_equal(Objects(table).pixels(name), [1, np.nan])


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (["10:00:01.5", "x"], "string.*'10:00:01.5'.*Angle"),
        (["1.5", "-"], "string.*'-'.*missing"),
        ([1.0, 2] * u.m, "unit m.*angle"),
        ([True, False], "bool.*numbers in degrees"),
        ([[1.0, 2], [3, 4]], "numbers in degrees"),
    ],
)
def test_no_angles(column: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Objects(Table({"ra": column})).degrees("ra")


def test_no_pixels() -> None:
    objects = Objects(Table({"x": [1.0] * u.deg, "p": [2.0] * u.pix}))
    with pytest.raises(ValueError, match=r"'x'.*unit deg.*pixels"):
        objects.pixels("x")
    assert objects.pixels("p").tolist() == [2]


def test_kept_columns() -> None:
    objects = Objects(
        QTable(
            {
                "y": [1.0, 2.0],
                "hdu": [1, 2],
                "mag": MaskedColumn([7, 8], mask=[True, False]),
                "time": Time(["2020-01-01T00:00:00.5", "2021-01-01"]),
                "flux": [1, 2] * u.mJy,
            }
        )
    )
    kept = objects.kept(None, without=("hdu",))
    assert kept.to_pydict() == {
        "catalogue_y": [1, 2],
        "mag": [None, 8],
        "time": kept["time"].to_pylist(),
        "flux": [1, 2],
    }
    assert kept["time"].cast(pa.int64())[0].as_py() == 1_577_836_800_500_000_000
    renamed = objects.kept({"mag": "magnitude", "y": "row"}, without=())
    assert renamed.column_names == ["magnitude", "row"]
    assert objects.kept(["mag"], without=()).column_names == ["mag"]


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        (["Mag"], KeyError, "'Mag'; did you mean mag.*mag, flux"),
        ({"mag": "a", "flux": "a"}, ValueError, "two columns a"),
        ("mag", TypeError, "columns.*sequence of names"),
        (5, TypeError, "columns.*sequence of names"),
        ({"mag": ""}, ValueError, "name of a column is empty"),
        ({"mag": 5}, TypeError, "name of a column must be text, got 5"),
        ([5], TypeError, "name of a column must be text, got 5"),
    ],
)
def test_columns_that_cannot_be_kept(columns: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Objects(Table({"mag": [1], "flux": [2]})).kept(columns, without=())


def test_a_column_that_would_be_a_part() -> None:
    objects = Objects(Table({"path_note": ["a"], "path_number": [1]}))
    with pytest.raises(ValueError, match=r"\{'path_note': 'note'\}"):
        objects.kept(None, without=())
    renamed = objects.kept({"path_note": "note", "path_number": "path_number"}, without=())
    assert renamed.column_names == ["note", "path_number"]


@pytest.mark.filterwarnings("ignore::erfa.ErfaWarning")
def test_times_of_astropy() -> None:
    """A leap second counts as the second after it, as it does in headers."""
    times = Time(["2016-12-31T23:59:60.5", "1678-01-01", "2261-12-31T23:59:59.987654321"])
    times[1] = np.ma.masked
    found, exist = Objects(Table({"time": times.tai})).times("time")
    assert exist.tolist() == [True, False, True]
    expected = np.array(["2017-01-01T00:00:00.5", "2261-12-31T23:59:59.987654321"], "M8[ns]")
    assert found[exist].tolist() == expected.astype(np.int64).tolist()


@pytest.mark.filterwarnings("ignore::erfa.ErfaWarning")
@pytest.mark.parametrize("text", ["2599-07-21T00:00:00.000", "1515-01-01T00:00:00.000"])
def test_times_that_do_not_fit_are_refused(text: str) -> None:
    objects = Objects(Table({"time": Time(["2015-01-01", text])}))
    with pytest.raises(ValueError, match=f"'time'.*1678 to 2261.*row 1 has {text}"):
        objects.column("time")


def test_times_of_a_local_scale_are_refused() -> None:
    objects = Objects(Table({"time": Time(["2015-01-01"], scale="local")}))
    with pytest.raises(ValueError, match=r"'time'.*scale 'local'"):
        objects.column("time")


def test_columns_that_an_index_cannot_hold_can_be_left_out() -> None:
    sky = SkyCoord([1, 2] * u.deg, [3, 4] * u.deg, frame="altaz")
    objects = Objects(QTable({"mag": [1, 2], "sky": sky}))
    with pytest.raises(TypeError, match=r"'sky'.*SkyCoord"):
        objects.kept(None, without=())
    assert objects.kept(["mag"], without=())["mag"].to_pylist() == [1, 2]


@pytest.mark.parametrize("kind", ["table", "ecsv", "fits"])
@pytest.mark.parametrize("frame", ["icrs", "galactic"])
def test_positions_of_astropy_are_two_columns(tmp_path: Path, frame: str, kind: str) -> None:
    """In place of the SkyCoord, as in the tables of photutils."""
    sky = SkyCoord([350.5, 2, 120] * u.deg, [-3, 4, 80] * u.deg, frame=frame)
    table: Table | str = QTable({"id": [5, 6, 7], "sky_centroid": sky, "mag": [1.0, 2.0, 3.0]})
    if kind != "table":
        QTable(table).write(tmp_path / f"stars.{kind}")
        table = str(tmp_path / f"stars.{kind}")
    objects = Objects(table)
    assert objects.names == ["id", "sky_centroid_ra", "sky_centroid_dec", "mag"]
    np.testing.assert_allclose(objects.degrees("sky_centroid_ra"), sky.icrs.ra.deg, rtol=1e-14)
    np.testing.assert_allclose(objects.degrees("sky_centroid_dec"), sky.icrs.dec.deg, rtol=1e-14)
    if isinstance(table, QTable):
        assert table.colnames == ["id", "sky_centroid", "mag"]  # not changed


def test_masked_positions_of_astropy_are_nan() -> None:
    ra, dec = (Masked(values * u.deg, mask=[False, True]) for values in ([1.0, 2.0], [3.0, 4.0]))
    objects = Objects(QTable({"sky": SkyCoord(ra, dec)}))
    np.testing.assert_allclose(objects.degrees("sky_ra"), [1, np.nan], equal_nan=True)
    np.testing.assert_allclose(objects.degrees("sky_dec"), [3, np.nan], equal_nan=True)


def test_positions_of_astropy_replace_no_other_column() -> None:
    sky = SkyCoord([1] * u.deg, [3] * u.deg)
    objects = Objects(QTable({"sky": sky, "sky_ra": [7.0]}))
    assert objects.kept(["sky_ra"], without=())["sky_ra"].to_pylist() == [7.0]
    with pytest.raises(TypeError, match=r"'sky'.*SkyCoord"):
        objects.kept(None, without=())


def test_vectors() -> None:
    values = np.arange(6, dtype=">f4").reshape(3, 2)
    column = Objects(Table({"flux": values})).column("flux")
    assert column.type == pa.list_(pa.float32(), 2)
    assert column.to_pylist() == values.tolist()
    table = Table({"flux": np.zeros((2, 3, 4))})
    remedy = "table['flux'].reshape(len(table), -1)"
    with pytest.raises(TypeError, match=rf"float64 .*\(2, 3, 4\).*{re.escape(remedy)}"):
        Objects(table).column("flux")
    table["flux"] = eval(remedy)
    assert Objects(table).column("flux").type == pa.list_(pa.float64(), 12)


def test_other_tables_of_the_file_are_named(tmp_path: Path) -> None:
    path = str(tmp_path / "two.fits")
    tables = [
        fits.table_to_hdu(Table({"a": [1]})),
        fits.table_to_hdu(Table({"ra": [1], "dec": [2]})),
    ]
    tables[1].name = "CAT"
    fits.HDUList([fits.PrimaryHDU(), *tables]).writeto(path)
    with pytest.warns(AstropyUserWarning, match="multiple tables are present"):
        objects = Objects(path)
    told = r"HDU 1; .*HDU 2 \(CAT\).*Table.read\(path, hdu="
    with pytest.raises(KeyError, match=told):
        objects.check_either(("ra", "dec"))
    with pytest.raises(KeyError, match=told):
        objects.check(["ra"])
    Objects(Table.read(path, hdu=2)).check(["ra"])


@pytest.mark.parametrize(
    ("objects", "error", "words"),
    [
        ("missing.csv", FileNotFoundError, "missing.csv"),
        ("bad.fits", ValueError, r"bad.fits.*CSV"),
        ("https://example.org/gaia.csv", ValueError, "is a URL"),
        ({"ra": [1]}, TypeError, "Table.*a dict"),
        (Table({"ra": []}), ValueError, "no rows"),
        (pa.Table.from_arrays([pa.array([1])] * 2, names=["a", "a"]), ValueError, "several.* a"),
    ],
)
def test_other_objects_are_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    objects: Any,
    error: type[Exception],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.fits").write_text("no table")
    with pytest.raises(error, match=words):
        Objects(objects)


@pytest.mark.parametrize("values", [np.array([1j]), np.zeros((1, 0)), np.zeros((1, 2, 2))])
def test_a_column_that_no_index_holds_has_a_remedy(values: Any) -> None:
    with pytest.raises(TypeError, match=r"'flux'.*columns="):
        Objects(Table({"flux": values})).column("flux")


@pytest.mark.parametrize("name", ["stars.csv", "STARS.CSV", "Stars.Txt"])
def test_the_format_follows_from_the_suffix_in_any_case(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("ra,dec\n10.5,20\n")
    assert Objects(str(tmp_path / name)).degrees("ra").tolist() == [10.5]
