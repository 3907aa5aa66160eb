"""The figures of a run while it runs: metrics.jsonl, TensorBoard, another logger, and a bar in a terminal."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

import orjson

from happier.errors import CheckpointError
from happier.progress import ProgressBar
from happier.storage.regular_file import open_regular

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from happier.runs.run_directory import RunDirectory
    from happier.training.loggers import FigureLogger
    from happier.training.state import Position

__all__ = ["RunLog"]


class RunLog:
    """Lines for programs, curves for TensorBoard, a progress bar for people.

    Args:
        run: directory of the run; None on ranks that write nothing.
        position: where the run continues.
        steps: steps of the whole run.
        tensorboard: write TensorBoard's files.
        logger: where the figures go beside that.
    """

    def __init__(
        self,
        run: RunDirectory | None,
        *,
        position: Position,
        steps: int,
        tensorboard: bool,
        logger: FigureLogger | None = None,
    ) -> None:
        self._file: IO[str] | None = None
        self._writer: SummaryWriter | None = None
        self._steps, self._logger = steps, logger
        if run is not None:
            self._file = _reopen(run.metrics_file, position.log_size)
        if run is not None and tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            # Hides what a killed run drew after the step from which it continues.
            purge = position.step + 1 if position.step else None
            self._writer = SummaryWriter(str(run.tensorboard_folder), purge_step=purge)
        self._window_start, self._window_images = time.perf_counter(), 0
        self._bar = ProgressBar("epoch 1", done=position.step, total=steps, quiet=run is None)

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.__exit__(kind, error, trace)
        if self._file is not None:
            self._file.close()
        if self._writer is not None:
            self._writer.close()
        if self._logger is not None:
            self._logger.close(failed=kind is not None)

    @property
    def size(self) -> int:
        """Current size of metrics.jsonl in bytes."""
        return self._file.tell() if self._file is not None else 0

    def step(self, at: Position, *, loss: float, lr: float, images: int, every: int) -> None:
        """Move the bar, and write a line of training figures every few steps."""
        self._window_images += images
        rate = self._window_images / (time.perf_counter() - self._window_start)
        epoch = at.epoch + 1
        note = f"loss {loss:.4f}  {rate:.0f} images/s"
        self._bar.show(at.step, self._steps, title=f"epoch {epoch}", note=note)
        if at.step % every == 0:
            values = {"loss": loss, "lr": lr, "images_per_second": round(rate, 1)}
            self._write(
                {"kind": "train", "step": at.step, "epoch": epoch, **values}, "train", at.step, values
            )
            self._window_start, self._window_images = time.perf_counter(), 0

    def evaluation(
        self, at: Position, *, split: str, seconds: float, best: bool, metrics: dict[str, float]
    ) -> None:
        """One line with an evaluation."""
        line = {
            "kind": "evaluation",
            "step": at.step,
            "epoch": at.epoch,
            "split": split,
            "seconds": round(seconds, 3),
            "best": best,
            "metrics": metrics,
        }
        self._write(line, split, at.step, metrics)
        note = ", the best so far" if best else ""
        self._bar.print(f"epoch {at.epoch}: H-AP {metrics['H-AP']:.4f} on {split}{note}")
        self._window_start, self._window_images = time.perf_counter(), 0

    def _write(self, line: dict[str, Any], group: str, step: int, values: dict[str, float]) -> None:
        if self._file is not None:
            # An undefined metric is null: JSON has no NaN.
            self._file.write(orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY).decode() + "\n")
            self._file.flush()
        if self._logger is not None:
            self._logger.write(group, values, step)
        if self._writer is not None:
            for name, value in values.items():
                # TensorBoard does not accept "@" in names.
                self._writer.add_scalar(f"{group}/{name.replace('@', '_at_')}", value, step)


def _reopen(path: Path, size: int) -> IO[str]:
    """Open for appending after the first `size` bytes; what follows will be written again."""
    path.touch()
    try:
        open_regular(path).close()  # a pipe cannot be cut
    except OSError as error:
        raise CheckpointError(f"cannot continue {path}: {error.strerror}; remove it") from error
    with path.open("r+b") as file:
        if file.seek(0, 2) > size:
            file.truncate(size)
    return path.open("a", encoding="utf-8")
