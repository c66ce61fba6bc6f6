from __future__ import annotations

import gzip
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
    ("column", "message"),
    [
        (["10:00:01.5", "x"], r"string, expected numbers .* has '10:00:01.5': .*Angle"),
        (["1.5", "-"], "string, expected numbers in degrees, but it has '-': leave missing"),
        ([1.0, 2] * u.m, "has unit m, expected an angle"),
        ([True, False], "is bool, expected numbers in degrees"),
        ([[1.0, 2], [3, 4]], "expected numbers in degrees"),
    ],
)
def test_no_angles(column: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Objects(Table({"ra": column})).degrees("ra")


def test_no_pixels() -> None:
    objects = Objects(Table({"x": [1.0] * u.deg, "p": [2.0] * u.pix}))
    with pytest.raises(ValueError, match="'x' of the catalogue has unit deg, expected pixels"):
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
    with pytest.raises(KeyError, match=r"no column 'Mag'; did you mean mag\? it has y, hdu, mag"):
        objects.kept(["Mag"], without=())
    with pytest.raises(ValueError, match="two columns a"):
        objects.kept({"mag": "a", "flux": "a"}, without=())
    wrong: Any
    for wrong in ("mag", 5):
        with pytest.raises(TypeError, match="columns must be a sequence of names"):
            objects.kept(wrong, without=())
    with pytest.raises(ValueError, match="the name of a column is empty"):
        objects.kept({"mag": ""}, without=())
    for wrong in ({"mag": 5}, [5]):
        with pytest.raises(TypeError, match="the name of a column must be text, got 5"):
            objects.kept(wrong, without=())


def test_a_column_that_would_be_a_part() -> None:
    objects = Objects(Table({"path_note": ["a"], "path_number": [1]}))
    with pytest.raises(ValueError, match=r"another name, \{'path_note': 'note'\}"):
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
    message = (
        f"column 'time' of the catalogue must hold times from 1678 to 2261, .* row 1 has {text}"
    )
    with pytest.raises(ValueError, match=message):
        objects.column("time")


def test_times_of_a_local_scale_are_refused() -> None:
    objects = Objects(Table({"time": Time(["2015-01-01"], scale="local")}))
    with pytest.raises(ValueError, match=r"column 'time' of the catalogue: .* scale 'local'"):
        objects.column("time")


def test_columns_that_an_index_cannot_hold_can_be_left_out() -> None:
    sky = SkyCoord([1, 2] * u.deg, [3, 4] * u.deg)
    objects = Objects(QTable({"mag": [1, 2], "sky": sky}))
    with pytest.raises(TypeError, match="'sky' of the catalogue is a SkyCoord"):
        objects.kept(None, without=())
    assert objects.kept(["mag"], without=())["mag"].to_pylist() == [1, 2]


def test_vectors() -> None:
    values = np.arange(6, dtype=">f4").reshape(3, 2)
    column = Objects(Table({"flux": values})).column("flux")
    assert column.type == pa.list_(pa.float32(), 2)
    assert column.to_pylist() == values.tolist()
    table = Table({"flux": np.zeros((2, 3, 4))})
    with pytest.raises(
        TypeError, match=r"a Column of float64 and shape \(2, 3, 4\), which"
    ) as caught:
        Objects(table).column("flux")
    remedy = "table['flux'].reshape(len(table), -1)"
    assert f"put a vector for each row, {remedy}, in its place" in str(caught.value)
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
    told = r"it has a\. This is HDU 1; tables are also in HDU 2 \(CAT\): .* Table.read\(path, hdu="
    with pytest.raises(KeyError, match=told):
        objects.check_either(("ra", "dec"))
    with pytest.raises(KeyError, match=told):
        objects.check(["ra"])
    Objects(Table.read(path, hdu=2)).check(["ra"])


def test_what_is_no_catalogue(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Objects(tmp_path / "missing.csv")
    bad = tmp_path / "bad.fits"
    bad.write_text("no table")
    with pytest.raises(ValueError, match=r"bad.fits: expected a catalogue \(CSV"):
        Objects(bad)
    with pytest.raises(TypeError, match="an astropy Table or a pyarrow Table, got a dict"):
        Objects({"ra": [1]})
    with pytest.raises(ValueError, match="the catalogue has no rows"):
        Objects(Table({"ra": []}))
    twice = pa.Table.from_arrays([pa.array([1])] * 2, names=["a", "a"])
    with pytest.raises(ValueError, match="the catalogue has several columns a"):
        Objects(twice)
    with pytest.raises(ValueError, match="is a URL"):
        Objects("https://example.org/gaia.csv")
