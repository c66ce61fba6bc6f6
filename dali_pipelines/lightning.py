"""Loaders for a Trainer of PyTorch Lightning, with exact resume."""

from __future__ import annotations

from functools import partial
from typing import Any

from readers.messages import install

try:
    from lightning.pytorch import LightningDataModule, Trainer
    from lightning.pytorch.callbacks import LambdaCallback
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"dali_pipelines.lightning needs Lightning: {install('lightning')}",
        name=error.name,
    ) from error

from dali_pipelines.loader import Loader


class DataModule(LightningDataModule):
    """Loaders for the loops of a Trainer of ``lightning.pytorch``.

    Each step gets the dict of its device. The Loaders are closed when the Trainer is done. Each
    checkpoint has the state of `train`. ``fit(..., ckpt_path=...)`` continues after the last batch
    of which the model has learned, even with another batch size or number of ranks.

    Parameters
    ----------
    train, val, test, predict : Loader, optional
        Loaders of the loops. `val`, `test` and `predict` must have mode ``eval``.

    Raises
    ------
    ValueError
        If val, test or predict is in another mode.
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
        self._loaded: dict[str, Any] | None = None
        # Steps done when the newest batch came; states of `train` before and after that batch.
        self._newest: tuple[int, dict[str, Any], dict[str, Any]] | None = None
        for name, loader in self.loaders.items():
            if name != "train" and not loader.starts_anew:
                raise ValueError(
                    f"{name} needs a Loader in mode 'eval', because in mode 'train' it would "
                    "continue after the rows of Lightning's sanity check: set mode='eval'"
                )
            # Lightning runs a loop if its method exists.
            setattr(self, f"{name}_dataloader", partial(self._loader, name))

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Return the dict of this rank's device; ValueError if the Loader has several devices."""
        if len(batch) != 1:
            raise ValueError(
                f"a rank of Lightning has one device, but its Loader has {len(batch)}: leave out "
                "devices, or set one device"
            )
        if self._newest is not None and self.trainer is not None and self.trainer.training:
            done, before, after = self._newest
            if self._steps_done > done:  # a step may take several batches
                before = after
            self._newest = self._steps_done, before, self.loaders["train"].state_dict()
        return batch[0]

    def state_dict(self) -> dict[str, Any]:
        """Return the state and the number of steps of `train`; empty without `train`.

        If Lightning saves in the middle of a step, after an exception or a signal of Slurm, the
        state is that before the batch of this step.
        """
        train = self.loaders.get("train")
        if train is None:
            return {}
        if self._newest is None:
            return {"loader": train.state_dict(), "steps": len(train)}
        done, before, after = self._newest
        return {"loader": after if self._steps_done > done else before, "steps": len(train)}

    @property
    def _steps_done(self) -> int:
        trainer: Any = self.trainer
        return 0 if trainer is None else trainer.fit_loop.epoch_loop.batch_progress.total.processed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a fit, see `Loader.load_state_dict`."""
        trainer: Any = self.trainer
        if trainer.state.fn == "fit" and "train" in self.loaders:
            self.loaders["train"].load_state_dict(state_dict["loader"])
            self._loaded, state = state_dict, state_dict["loader"]
            self._newest = -1, state, state
            trainer.callbacks.append(LambdaCallback(on_train_start=self._resume))

    def _resume(self, trainer: Trainer, _: Any) -> None:
        """Load the state again, and correct Lightning's number of finished steps.

        Lightning has loaded a state of the Loader that it saved itself, which would skip the batch
        of an unfinished step. Its number of steps refers to the batch size with which it was saved.
        """
        if self._loaded is None:
            return
        loader, current = self.loaders["train"], trainer.fit_loop.epoch_loop.batch_progress.current
        state, self._loaded = self._loaded, None
        loader.load_state_dict(state["loader"])
        if len(loader) != state["steps"] and len(loader) == trainer.num_training_batches:
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
            self._newest = -1, loader.state_dict(), loader.state_dict()
        return loader
