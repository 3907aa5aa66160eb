"""What a run writes while it trains: figures, checkpoints, the best model so far."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final, NoReturn, Self

from happier import distributed
from happier.errors import DataError, TrainingError
from happier.storage.disk_errors import disk_errors
from happier.training.checkpoint import Checkpoints
from happier.training.config import flatten
from happier.training.log import RunLog
from happier.training.loggers import FigureLogger

if TYPE_CHECKING:
    from happier.runs.run_directory import RunDirectory
    from happier.training.state import RunState
    from happier.training.validation import Validation

__all__ = ["METRIC", "Recorder"]

METRIC: Final = "H-AP"
"""The metric by which the best model is chosen."""


class Recorder:
    """Logs, evaluates and saves a run; entering it resumes from the newest checkpoint, if there is one.

    Files are written by the first rank alone.

    Args:
        run: where to write.
        state: what to save.
        validation: how to evaluate, None for never.
    """

    def __init__(self, run: RunDirectory, state: RunState, validation: Validation | None) -> None:
        self._run, self._state, self._validation = run, state, validation
        self._training, self._evaluation = state.config.training, state.config.evaluation
        self._is_main = distributed.rank() == 0
        self._checkpoints = Checkpoints(run.checkpoint_folder)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        if self._is_main:
            self._checkpoints.clean()
        distributed.barrier()
        self._state.resume(self._checkpoints)
        with self._disk_errors():
            logger = None
            if self._is_main and self._training.logger is not None:
                logger = FigureLogger(self._training.logger, self._run, flatten(self._state.config))
            log = RunLog(
                self._run if self._is_main else None,
                position=self._state.position,
                steps=self._state.steps,
                tensorboard=self._training.tensorboard,
                logger=logger,
            )
            self._log = self._open.enter_context(log)
        self._saved = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._disk_errors():
            self._open.__exit__(kind, error, trace)

    @property
    def is_done(self) -> bool:
        """Whether all epochs are done, or evaluations have not improved for too long."""
        at = self._state.position
        return at.epoch >= self._training.epochs or at.stale >= (self._evaluation.patience or math.inf)

    def step_done(self, loss: float, rate: float) -> None:
        """Count a step, log it, and save where that is due."""
        at = self._state.position
        at.step, at.done = at.step + 1, at.done + 1
        with self._disk_errors():
            self._log.step(
                at, loss=loss, lr=rate, images=self._training.batch_size, every=self._training.log_every
            )
        every = self._training.checkpoint_steps
        due = every is not None and at.step % every == 0
        if due or time.monotonic() - self._saved > 60 * self._training.checkpoint_minutes:
            self.save()

    def epoch_done(self) -> None:
        """Count an epoch, and evaluate where that is due."""
        at = self._state.position
        at.epoch, at.done = at.epoch + 1, 0
        every = self._evaluation.every
        if every and (at.epoch % every == 0 or at.epoch == self._training.epochs):
            self.evaluate()

    def evaluate_once(self) -> None:
        """Evaluate a model that has not been evaluated yet."""
        if not self._state.position.best_metrics:
            self.evaluate()

    def evaluate(self) -> None:
        """Evaluate the encoder, keep it where it is the best so far or the last counts, and save."""
        if self._validation is None:
            return
        at, encoder, started = self._state.position, self._state.encoder, time.perf_counter()
        metrics = self._validation(encoder)
        better = metrics[METRIC] > at.best
        at.stale = 0 if better else at.stale + 1
        if better:
            at.best = metrics[METRIC]
        if better or self._evaluation.keep == "last":
            at.best_epoch, at.best_metrics = at.epoch, metrics
            encoder.metrics = metrics
            self._save_model()
        with self._disk_errors():
            self._log.evaluation(
                at,
                split=self._validation.split,
                seconds=time.perf_counter() - started,
                best=better,
                metrics=metrics,
            )
        self.save(best=better)

    def save(self, *, best: bool = False) -> None:
        """Write a checkpoint."""
        if self._is_main:
            self._state.position.log_size = self._log.size
            self._checkpoints.save(self._state.state_dict(), best=best)
        self._saved = time.monotonic()

    def stop(self, signal: str) -> NoReturn:
        """Save after a signal, and end the run.

        Raises:
            TrainingError: always.
        """
        self.save()
        raise TrainingError(
            f"stopped by {signal} after step {self._state.position.step}, which is saved; run the same "
            "command again to resume"
        )

    def finish(self) -> None:
        """Keep the last model where no evaluation chose one: there was none, or H-AP was never defined."""
        if not self._state.position.best_metrics:
            self._save_model()
            self.save()

    def _save_model(self) -> None:
        if self._is_main:
            with self._disk_errors():
                self._state.encoder.save_pretrained(self._run.path)

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        """Add to every write error that the run can continue from its last checkpoint."""
        hint = "the last checkpoint is intact: free some space, then run the same command again"
        try:
            with disk_errors(self._run.path, error=TrainingError, hint=hint):
                yield
        except DataError as error:
            raise TrainingError(f"{error} ({hint})") from error
