"""PyTorch Lightning: Loaders for a Trainer, which resumes them exactly."""

from __future__ import annotations

from functools import partial
from typing import Any

try:
    from lightning.pytorch import LightningDataModule, Trainer
    from lightning.pytorch.callbacks import LambdaCallback
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "dali_pipelines.lightning needs Lightning: pip install 'dali-pipelines[lightning]'",
        name=error.name,
    ) from error

from dali_pipelines.loader import Loader


class DataModule(LightningDataModule):
    """Loaders for the loops of a Trainer of ``lightning.pytorch``.

    A step gets the dict of its device. When the Trainer is done, the Loaders are closed. The state
    of `train` is in every checkpoint, and ``fit(..., ckpt_path=...)`` goes on after the last batch
    that was learned from, also with another batch size or number of ranks.

    Parameters
    ----------
    train, val, test, predict : Loader, optional
        All but `train` in mode ``eval``.

    Raises
    ------
    ValueError
        If one of those is in another mode.
    """

    def __init__(
        self,
        train: Loader | None = None,
        *,
        val: Loader | None = None,
        test: Loader | None = None,
        predict: Loader | None = None,
    ) -> None:
        super().__init__()
        given = {"train": train, "val": val, "test": test, "predict": predict}
        self.loaders = {name: loader for name, loader in given.items() if loader is not None}
        self._saved_steps = 0
        self._before: dict[str, Any] = {}  # states of `train`: before the batch of this step,
        self._after: dict[str, Any] = {}  # and after it
        for name, loader in self.loaders.items():  # a method that is defined asks for a loop
            if name != "train" and not loader.starts_anew:
                raise ValueError(
                    f"{name} needs a Loader in mode 'eval', got one that goes on with the rest of "
                    "its rows after Lightning's sanity check: give it mode='eval'"
                )
            setattr(self, f"{name}_dataloader", partial(self._loader, name))

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Return the dict of the one device of this rank; ValueError if there are several."""
        if len(batch) != 1:
            raise ValueError(
                f"a rank of Lightning has one device, and its Loader has {len(batch)}: leave out "
                "devices, or give one"
            )
        if self.trainer is not None and self.trainer.training:
            self._before, self._after = self._after, self.loaders["train"].state_dict()
        return batch[0]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the Loader for training, and its steps; nothing if there is none.

        In the middle of a step, where an exception or a signal of Slurm lets Lightning save, the
        state is that before its batch.
        """
        train = self.loaders.get("train")
        if train is None:
            return {}
        state = self._before if self._is_in_step() else train.state_dict()
        return {"loader": state, "steps": len(train)}

    def _is_in_step(self) -> bool:
        if self.trainer is None:
            return False
        current: Any = self.trainer.fit_loop.epoch_loop.batch_progress.current
        return current.ready != current.processed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a fit, see `Loader.load_state_dict`. Lightning drops what it saves itself."""
        trainer: Any = self.trainer
        if trainer.state.fn == "fit" and "train" in self.loaders:
            self.loaders["train"].load_state_dict(state_dict["loader"])
            self._after = state_dict["loader"]
            self._saved_steps = state_dict["steps"]
            trainer.callbacks.append(LambdaCallback(on_train_start=self._recount))

    def _recount(self, trainer: Trainer, _: Any) -> None:
        """Set the steps of its epoch that Lightning counts as done, if their size is another."""
        loader, current = self.loaders["train"], trainer.fit_loop.epoch_loop.batch_progress.current
        if len(loader) != self._saved_steps and len(loader) == trainer.num_training_batches:
            current.increment_by(len(loader) - loader.steps_left - current.ready)

    def on_exception(self, exception: BaseException) -> None:
        """Close the Loaders."""
        self.teardown()

    def teardown(self, stage: str | None = None) -> None:
        """Close the Loaders."""
        for loader in self.loaders.values():
            loader.close()

    def _loader(self, name: str) -> Loader:
        loader = self.loaders[name]
        if name == "train":
            self._after = loader.state_dict()
        return loader
