from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sunpy.map
from aiapy.calibrate import update_pointing as by_aiapy
from solar_files import (
    POINTING_CHANNELS,
    POINTING_START,
    changed,
    full_header,
    pointed,
    pointing_table,
    save_pointing,
)

from readers import PointingTable
from readers.aia.pointing import update_pointing

WRITERS: dict[str, Callable[[Any, Path], object]] = {
    "published.csv": save_pointing,
    "aiapy.csv": lambda table, path: table.write(path, format="ascii.csv"),
    "aiapy.ecsv": lambda table, path: table.write(path, format="ascii.ecsv"),
}


@pytest.fixture(params=WRITERS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / request.param
    WRITERS[request.param](pointing_table(), path)
    return path


PIXELS = np.broadcast_to(np.int16(1), (4096, 4096))
TIMES = [
    POINTING_START,
    "2011-02-14T23:59:59.999Z",
    "2011-02-15T00:00:00.00Z",
    "2011-02-15T11:59:59.99Z",
    "2011-02-15T21:30:00.00Z",  # in two slots: the first counts
    "2011-02-16T00:30:00.00Z",  # likewise, and a slot between them has ended
]


@pytest.mark.parametrize(("time", "channel"), [*zip(TIMES, [94, 1600] * 3, strict=True)])
def test_words_are_as_aiapy_has_them(path: Path, channel: int, time: str) -> None:
    header = pointed(full_header(T_OBS=time, WAVELNTH=channel))
    found = update_pointing(header, PointingTable.read(path))
    if path.name == "aiapy.csv" or time != POINTING_START:  # aiapy once is enough
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            smap = sunpy.map.Map(PIXELS, header)
            expected = by_aiapy(smap, pointing_table=pointing_table()).meta
        for key, value in found.items():
            assert value == pytest.approx(expected[key], rel=1e-15), key
    assert sorted(found) == ["CDELT1", "CDELT2", "CROTA2", "CRPIX1", "CRPIX2", "X0_MP", "Y0_MP"]
    assert found["CRPIX1"] == found["X0_MP"] + 1


@pytest.fixture
def table(tmp_path: Path) -> PointingTable:
    save_pointing(pointing_table(), tmp_path / "table.csv")
    return PointingTable.read(tmp_path / "table.csv")


def test_it_is_small_when_pickled(tmp_path: Path, table: PointingTable) -> None:
    content = pickle.dumps(table)
    assert len(content) < 3000
    again = pickle.loads(content)
    assert again == table
    assert again.pointing(171, TIMES[2]) == table.pointing(171, TIMES[2])
    assert (again.name, again.channels) == ("table.csv", POINTING_CHANNELS)
    assert len(again.sha256) == 64


def test_another_process_maps_it(table: PointingTable, fresh_python: Callable[..., bytes]) -> None:
    code = (
        "import pickle, sys; table = pickle.load(sys.stdin.buffer)\n"
        f"print(tuple(table.pointing(171, {TIMES[2]!r})))"
    )
    found = fresh_python(code, stdin=pickle.dumps(table)).decode().strip()
    assert found == str(tuple(table.pointing(171, TIMES[2])))


OUTSIDE = ["2011-02-14T20:59:59.999", "2011-02-15T12:00:00", "2011-02-16T03:00:00"]


class TestErrors:
    @pytest.mark.parametrize("time", OUTSIDE)
    def test_no_slot(self, table: PointingTable, time: str) -> None:
        words = f"table.csv .*T_OBS {time}.*2011-02-14T21:00:00Z to 2011-02-16T03:00:00Z"
        with pytest.raises(ValueError, match=words):
            update_pointing(full_header(T_OBS=time), table)

    @pytest.mark.parametrize(
        ("name", "quantity"),
        [
            ("published.csv", "X0"),
            ("published.csv", "Y0"),
            ("aiapy.csv", "IMSCALE"),
            ("aiapy.ecsv", "INSTROT"),
        ],
    )
    def test_no_value(self, tmp_path: Path, name: str, quantity: str) -> None:
        values = pointing_table()
        values[f"A_171_{quantity}"][1] = np.nan
        WRITERS[name](values, tmp_path / name)
        table = PointingTable.read(tmp_path / name)
        words = f"A_171_{quantity} for T_OBS 2011-02-15T00:00:00.00Z: leave"
        with pytest.raises(ValueError, match=words):
            update_pointing(full_header(T_OBS=TIMES[2]), table)
        update_pointing(full_header(T_OBS=TIMES[2], WAVELNTH=193), table)
        update_pointing(full_header(T_OBS=POINTING_START), table)

    def test_no_such_channel(self, table: PointingTable) -> None:
        with pytest.raises(ValueError, match=r"table.csv .*channel 6173.* 94, 131, 171"):
            update_pointing(full_header(WAVELNTH=6173), table)

    def test_a_frame_of_another_size(self, table: PointingTable) -> None:
        header = changed(full_header(), NAXIS1=1024, NAXIS2=1024)
        with pytest.raises(ValueError, match=r"1024x1024.*pointing table"):
            update_pointing(header, table)

    @pytest.mark.parametrize("key", ["T_OBS", "WAVELNTH", "SAT_ROT"])
    def test_a_word_is_missing(self, table: PointingTable, key: str) -> None:
        with pytest.raises(ValueError, match=f"{key} is missing"):
            update_pointing(full_header(**{key: None}), table)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda t: t.remove_column("T_STOP"), "T_STOP; .*T_START, A_094"),
            (lambda t: t.remove_column("A_171_Y0"), "A_171_Y0"),
            (lambda t: t.remove_columns(t.colnames[2:]), "A_171_X0, A_171_Y0"),
            (lambda t: t.remove_rows(slice(0, len(t))), "no rows"),
            (lambda t: t.reverse(), "T_START .*: sort"),
        ],
    )
    def test_another_table(self, tmp_path: Path, change: Callable[..., Any], message: str) -> None:
        table = pointing_table()
        change(table)
        table.write(tmp_path / "table.csv", format="ascii.csv")
        with pytest.raises(ValueError, match=rf"table.csv: .*{message}"):
            PointingTable.read(tmp_path / "table.csv")
