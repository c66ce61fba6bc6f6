"""A Trainer resumes from each kind of checkpoint; test_launchers.py does so on other ranks."""

from __future__ import annotations

import importlib
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from dali_pipelines import Index, Loader, npy_pipeline
from dali_pipelines import lightning as module_of_loaders
from dali_pipelines.lightning import DataModule

pytestmark = [
    pytest.mark.filterwarnings("ignore:::lightning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
]
ROWS, SIZE, EPOCHS = 23, 3, 2
QUIET: Any = dict.fromkeys(
    ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
)


class Module(LightningModule):
    """Note the rows that each epoch learns from, and how many validations there are."""

    def __init__(self, asks: bool = True) -> None:
        super().__init__()
        self.asks = asks
        self.layer = torch.nn.Linear(1, 1)
        self.rows: list[list[int]] = [[] for _ in range(EPOCHS)]
        self.validations = 0

    def training_step(self, batch: Any, _: int) -> Any:
        self.rows[self.current_epoch] += batch["row"].tolist()
        return self.layer(batch["image"].mean().reshape(1, 1)).mean()

    def validation_step(self, batch: Any, _: int) -> None:
        pass

    def on_validation_epoch_end(self) -> None:
        self.validations += not self.trainer.sanity_checking

    def predict_step(self, batch: Any, _: int) -> list[tuple[int, int, float]]:
        """Return height, width and mean of each image."""
        images = batch["image"]
        if "size" in batch:
            pairs = zip(images, batch["size"].tolist(), strict=True)
            images = [image[:, :height, :width] for image, (height, width) in pairs]
        return [(*image.shape[1:], float(image.mean())) for image in images]

    def configure_optimizers(self) -> Any:
        if self.asks:  # for the Loader, before Lightning restores what it saves itself
            assert self.trainer.estimated_stepping_batches > 0
        return torch.optim.SGD(self.parameters(), 0.0)


def fit(
    index: Index,
    size: int,
    callbacks: Any = (),
    checkpoint: Path | None = None,
    asks: bool = True,
    **options: Any,
) -> Module:
    settings: Any = {"num_read_processes": 1}
    data = DataModule(
        Loader(npy_pipeline, index, batch_size=size, **settings),
        val=Loader(npy_pipeline, index, batch_size=ROWS, mode="eval", **settings),
    )
    module = Module(asks)
    options = {"accelerator": "cpu", "max_epochs": EPOCHS, **options, **QUIET}
    trainer = Trainer(callbacks=list(callbacks), **options)
    trainer.fit(module, datamodule=data, ckpt_path=checkpoint)
    assert not any(loader.pipelines for loader in data.loaders.values())
    return module


class Saving(Callback):
    """Save a checkpoint at each of the moments at which a ModelCheckpoint may do so."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, trainer: Trainer, moment: str) -> None:
        trainer.save_checkpoint(self.folder / f"{moment} {trainer.global_step}.ckpt")

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self.save(trainer, "step")

    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        if not trainer.sanity_checking:
            self.save(trainer, "validation")

    def on_train_epoch_end(self, trainer: Trainer, *_: Any) -> None:
        self.save(trainer, "epoch")


@pytest.fixture(scope="module")
def folder(npy_index: Index, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    fit(npy_index, SIZE, [Saving(folder)])
    return folder


@pytest.mark.parametrize(
    ("saved", "size"),
    [("step 3", 2), ("step 3", 6), ("step 8", SIZE), ("validation 8", 2), ("epoch 8", 6)],
)
def test_resumed_rows_are_those_that_are_left(
    saved: str, size: int, folder: Path, npy_index: Index
) -> None:
    """With other batches. Lightning itself leaves out the validation that comes after "step 8"."""
    with Loader(npy_pipeline, npy_index, batch_size=ROWS, num_read_processes=1) as loader:
        first, second = ([*batch["row"].tolist()] for _ in range(EPOCHS) for (batch,) in loader)
    resumed = fit(npy_index, size, checkpoint=folder / f"{saved}.ckpt")
    assert resumed.rows == [first[3 * SIZE :] if saved == "step 3" else [], second]
    assert resumed.validations == (2 if saved == "step 3" else 1)


@pytest.mark.parametrize("ragged", ["list", "pad"])
def test_images_of_several_sizes(tmp_path: Path, ragged: Any) -> None:
    for row in range(5):
        np.save(tmp_path / f"{row}.npy", np.full((4 + row, 9 - row), row, np.float32))
    settings: Any = {"batch_size": 3, "mode": "eval", "num_read_processes": 1, "ragged": ragged}
    data = DataModule(predict=Loader(npy_pipeline, Index.scan(tmp_path), **settings))
    found: Any = Trainer(accelerator="cpu", **QUIET).predict(Module(), datamodule=data)
    expected = [(4 + row, 9 - row, row) for row in range(5)]
    assert [one for batch in found for one in batch] == expected


class Breaking(Callback):
    """Fail in the middle of a step, and save then, as `OnExceptionCheckpoint` does.

    With SIGUSR1 save as Lightning does at that signal of Slurm, before the process is ended.
    """

    def __init__(self, path: Path, moment: str, step: int, error: Any) -> None:
        self.path, self.step, self.error, self.steps = path, step, error, 0
        self.trainer: Any = None
        setattr(self, moment, self.count)

    def count(self, trainer: Trainer, *_: Any) -> None:
        self.steps += 1
        if self.steps <= self.step:
            return
        if self.error is signal.SIGUSR1:
            before = signal.signal(self.error, lambda *_: trainer.save_checkpoint(self.path))
            signal.raise_signal(self.error)
            signal.signal(self.error, before)
            raise RuntimeError("in the middle")
        raise self.error

    def on_exception(self, trainer: Trainer, *_: Any) -> None:
        if self.error is not signal.SIGUSR1:
            trainer.save_checkpoint(self.path)


@pytest.mark.parametrize(
    ("moment", "step", "error", "asks"),
    [
        ("on_train_batch_start", 2, RuntimeError("in the middle"), True),
        ("on_train_batch_start", 2, RuntimeError("in the middle"), False),
        ("on_after_backward", 8, KeyboardInterrupt(), True),
        ("on_before_optimizer_step", 5, signal.SIGUSR1, False),
        ("on_validation_start", 1, RuntimeError("in the middle"), True),
    ],
)
def test_a_batch_is_learned_again_if_its_step_was_not_done(
    moment: str, step: int, error: Any, asks: bool, npy_index: Index, tmp_path: Path
) -> None:
    """Step 8 is the first of an epoch, after a validation; the first of these checks the loop."""
    with Loader(npy_pipeline, npy_index, batch_size=ROWS, num_read_processes=1) as loader:
        rows = [row for _ in range(EPOCHS) for (batch,) in loader for row in batch["row"].tolist()]
    path = tmp_path / "broken.ckpt"
    with pytest.raises((RuntimeError, SystemExit)):  # a Trainer exits at Ctrl-C
        fit(npy_index, SIZE, [Breaking(path, moment, step, error)], asks=asks)
    at_once = Breaking(tmp_path / "again.ckpt", "on_train_start", 0, error)
    with pytest.raises((RuntimeError, SystemExit)):
        fit(npy_index, SIZE, [at_once], path, asks)
    first, second = fit(npy_index, SIZE, checkpoint=at_once.path, asks=asks).rows
    done = 8 if moment == "on_validation_start" else step
    assert first + second == rows[min(done * SIZE, ROWS) :]


class Validated(Module):
    """Takes the batches of Loaders themselves, and notes the rows of each validation."""

    def __init__(self) -> None:
        super().__init__()
        self.validated: list[list[int]] = []

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        del dataloader_idx
        return batch[0]

    def on_validation_epoch_start(self) -> None:
        self.validated.append([])

    def validation_step(self, batch: Any, _: int) -> None:
        self.validated[-1] += batch["row"].tolist()


def test_the_check_before_training_takes_no_rows_from_a_validation(npy_index: Index) -> None:
    settings: Any = {"batch_size": 4, "num_read_processes": 1, "devices": [None]}
    module, trainer = Validated(), Trainer(accelerator="cpu", max_epochs=EPOCHS, **QUIET)
    with (
        Loader(npy_pipeline, npy_index, **settings) as train,
        Loader(npy_pipeline, npy_index, mode="eval", **settings) as validation,
    ):
        trainer.fit(module, train, validation)
    assert module.validated == [[*range(8)], [*range(ROWS)], [*range(ROWS)]]


@pytest.mark.parametrize("name", ["val", "test", "predict"])
def test_other_loops_take_all_rows_each_time(name: str, npy_index: Index) -> None:
    loader = Loader(npy_pipeline, npy_index, batch_size=ROWS, num_read_processes=1)
    with pytest.raises(ValueError, match=f"{name} .*mode 'eval'"):
        DataModule(**{name: loader})


def test_a_rank_has_one_device(npy_index: Index) -> None:
    data = DataModule()
    assert data.on_before_batch_transfer([{"row": 1}], 0) == {"row": 1}
    with pytest.raises(ValueError, match=r"one device.* 2"):
        data.on_before_batch_transfer([{}, {}], 0)


def test_without_lightning_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install '\.\[lightning\]'"):
        importlib.reload(module_of_loaders)
