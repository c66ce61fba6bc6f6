"""Mode eval: without chance, and each loop from the first row; and Loader.reset."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import run

from dali_pipelines import Index, Loader, PipelineConfig, npy_pipeline

CHANCE: dict[str, Any] = {
    "crop": (4, 4),
    "window": "random",
    "flip": "hv",
    "rotate": 40.0,
    "zoom": (0.5, 2.0),
}


def new_loader(index: Index, **options: Any) -> Loader:
    settings = {"batch_size": 4, "num_read_processes": 1, "devices": [None], **options}
    return Loader(npy_pipeline, index, **settings)


def rows_of(steps: Any) -> list[int]:
    return [row for batches in steps for batch in batches for row in batch["row"].tolist()]


@pytest.fixture(scope="module")
def ramps(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Images each pixel of which has a value of its own."""
    folder = tmp_path_factory.mktemp("ramps")
    for row in range(5):
        np.save(folder / f"{row}.npy", np.arange(99, dtype=np.float32).reshape(9, 11) + 100 * row)
    return Index.scan(folder)


@pytest.mark.parametrize("seed", [0, 3])
def test_all_chance_is_off(ramps: Index, seed: int) -> None:
    with new_loader(ramps, mode="eval", seed=seed, **CHANCE) as loader:
        for _ in range(2):
            found = {int(r): image for (b,) in loader for r, image in _rows(b)}
            assert list(found) == [0, 1, 2, 3, 4]
            for row, image in found.items():
                middle = np.load(str(ramps.table["path"][row]))[2:6, 3:7]
                assert np.array_equal(image[0], middle)


def _rows(batch: Any) -> Any:
    return zip(batch["row"], batch["image"].numpy(), strict=True)


def test_what_eval_leaves_as_it_is() -> None:
    config = PipelineConfig(batch_size=1, mode="eval", crop=4, zoom=(2, 2), rotate=9.0)
    assert (config.zoom, config.rotate, config.shuffle) == ((2, 2), 0.0, False)
    assert PipelineConfig(batch_size=1, mode="eval", shuffle=True).shuffle
    assert PipelineConfig(batch_size=1).shuffle


def test_regions_are_nothing_but_chance() -> None:
    message = "random_area draws regions, and mode 'eval' is without chance: give resize_shorter"
    with pytest.raises(ValueError, match=message):
        PipelineConfig(batch_size=1, mode="eval", random_area=(0.1, 1), resize=8)
    with pytest.raises(ValueError, match="mode must be one of 'train', 'eval', got 'test'"):
        PipelineConfig(batch_size=1, mode="test")  # type: ignore[arg-type]


@pytest.mark.parametrize("shuffle", [None, False, True])
def test_each_loop_starts_anew(npy_index: Index, shuffle: bool | None) -> None:
    with new_loader(npy_index, mode="eval", shuffle=shuffle) as loader:
        for _, (batch,) in zip(range(2), loader, strict=False):
            first = batch["row"].tolist()
        assert loader.step == 2
        rows = rows_of(loader)
        assert sorted(rows) == list(range(23))
        assert (rows == sorted(rows)) == (not shuffle)
        assert rows[4:8] == first
        assert len(rows_of(loader)) == 23


def test_whole_loops_keep_their_readers(npy_index: Index) -> None:
    with new_loader(npy_index, mode="eval") as loader:
        processes = []
        for _ in range(3):
            assert rows_of(loader) == list(range(23))
            processes.append([one.pid for one in loader.pipelines[0].processes()])
        assert processes[0] == processes[1] == processes[2]


@settings(max_examples=8)
@given(
    st.integers(1, 40),
    st.integers(1, 3),
    st.integers(0, 6),
    st.sampled_from(["partial", "fill"]),
)
def test_each_row_once_for_any_batch(
    npy_index: Index, batch_size: int, shards: int, taken: int, tail: str
) -> None:
    options: dict[str, Any] = {"batch_size": batch_size, "devices": [None] * shards, "tail": tail}
    options["num_read_processes"] = shards
    with new_loader(npy_index, mode="eval", **options) as loader:
        for _, _batches in zip(range(taken), loader, strict=False):
            pass
        rows = [
            row
            for batches in loader
            for batch in batches
            for row, valid in zip(batch["row"].tolist(), batch["valid"].tolist(), strict=True)
            if valid
        ]
    assert sorted(rows) == list(range(23))


def test_a_state_does_not_move_where_a_loop_starts(npy_index: Index) -> None:
    with new_loader(npy_index, mode="eval") as loader:
        next(iter(loader))
        state = loader.state_dict()
        assert state["position"] == 4
    with new_loader(npy_index, mode="eval") as other:
        other.load_state_dict(state)
        assert rows_of(other) == list(range(23))


def test_reset_begins_the_epoch_again(npy_index: Index) -> None:
    with new_loader(npy_index) as whole:
        epochs = [rows_of(whole) for _ in range(2)]
    with new_loader(npy_index) as loader:
        next(iter(loader))
        loader.reset()
        assert (loader.epoch, loader.step) == (0, 0)
        assert rows_of(loader) == epochs[0]
        loader.reset()  # nothing of the next one was taken: the readers go on
        assert loader.pipelines
        assert rows_of(loader) == epochs[1]
        loader.reset(0)
        assert not loader.pipelines
        assert rows_of(loader) == epochs[0]
        next(iter(loader))
        loader.reset(loader.epoch + 1)
        assert (loader.epoch, loader.step) == (2, 0)


@pytest.mark.parametrize("epoch", [-1, 1.5, "0", True])
def test_reset_takes_an_epoch(npy_index: Index, epoch: Any) -> None:
    with pytest.raises(ValueError, match="epoch must be an integer, at least 0"):
        new_loader(npy_index).reset(epoch)


_LIGHTNING = """
import json, sys, warnings
warnings.simplefilter("ignore")
import torch
from lightning.pytorch import LightningModule, Trainer
from dali_pipelines import Index, Loader, npy_pipeline

class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.rows = []
    def training_step(self, batches, _):
        return self.layer(batches[0]["image"].sum().reshape(1, 1)).mean()
    def on_validation_epoch_start(self):
        self.rows.append([])
    def validation_step(self, batches, _):
        self.rows[-1] += batches[0]["row"].tolist()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.0)

def main():
    index = Index.scan(sys.argv[1])
    options = dict(batch_size=4, num_read_processes=1, devices=[None])
    module = Module()
    trainer = Trainer(max_epochs=2, num_sanity_val_steps=2, accelerator="cpu", logger=False,
                      enable_checkpointing=False, enable_progress_bar=False,
                      enable_model_summary=False)
    with Loader(npy_pipeline, index, **options) as train:
        with Loader(npy_pipeline, index, mode="eval", **options) as validation:
            trainer.fit(module, train, validation)
    sys.stdout.write("rows " + json.dumps(module.rows))

if __name__ == "__main__":
    main()
"""


def test_lightning_checks_first_and_loses_nothing(npy_folder: Path) -> None:
    """Its sanity check takes two batches of the validation; then come all rows."""
    done = run([sys.executable, "-c", _LIGHTNING, str(npy_folder)])
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.split("rows ")[-1])
    assert rows == [list(range(8)), list(range(23)), list(range(23))]


def test_with_epoch_steps_each_loop_starts_at_the_first_row(npy_index: Index) -> None:
    with new_loader(npy_index, mode="eval", epoch_steps=2) as loader:
        assert [rows_of(loader) for _ in range(3)] == [list(range(8))] * 3


def test_reset_with_epoch_steps(npy_index: Index) -> None:
    """Epochs begin where they would if nothing had been left out."""
    with new_loader(npy_index, epoch_steps=3) as loader:
        epochs = [rows_of(loader) for _ in range(4)]
    with new_loader(npy_index, epoch_steps=3) as loader:
        for epoch in (2, 0, 3):
            loader.reset(epoch)
            assert (loader.epoch, loader.step) == (epoch, 0)
            next(iter(loader))
            loader.reset()
            assert rows_of(loader) == epochs[epoch]
            assert loader.epoch == epoch + 1
