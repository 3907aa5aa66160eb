"""What a run tells while it runs: metrics.jsonl, TensorBoard, and a bar where there is a terminal."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

__all__ = ["RunLog"]


class RunLog:
    """Lines for programs, curves for TensorBoard, one moving line for people.

    Args:
        run_dir: directory of the run; None on ranks that keep silent.
        steps: steps of the whole run.
        step: step that the run goes on from.
        resume_at: size of metrics.jsonl when that step was saved.
        tensorboard: write TensorBoard's files.
    """

    def __init__(
        self, run_dir: Path | None, *, steps: int, step: int, resume_at: int, tensorboard: bool
    ) -> None:
        self._file: IO[str] | None = None
        self._writer: SummaryWriter | None = None
        if run_dir is not None:
            self._file = _reopen(run_dir / "metrics.jsonl", resume_at)
        if run_dir is not None and tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            # What a killed run drew after the step it goes on from is hidden.
            self._writer = SummaryWriter(str(run_dir / "tensorboard"), purge_step=step + 1 if step else None)
        self._window_start, self._window_images = time.perf_counter(), 0
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=console,
            disable=run_dir is None or not console.is_terminal,
            transient=True,
        )
        self._task = self._progress.add_task("", total=steps, completed=step, epoch=1, note="")

    def __enter__(self) -> RunLog:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
        if self._file is not None:
            self._file.close()
        if self._writer is not None:
            self._writer.close()

    @property
    def size(self) -> int:
        """Bytes of metrics.jsonl by now."""
        return self._file.tell() if self._file is not None else 0

    def step(self, *, step: int, epoch: int, loss: float, lr: float, images: int, write: bool) -> None:
        """Move the bar, and write a line of training figures where one is due."""
        self._window_images += images
        rate = self._window_images / (time.perf_counter() - self._window_start)
        if not self._progress.disable:
            note = f"loss {loss:.4f}  {rate:.0f} images/s"
            self._progress.update(self._task, completed=step, epoch=epoch, note=note)
        if write:
            values = {"loss": loss, "lr": lr, "images_per_second": round(rate, 1)}
            self._write({"kind": "train", "step": step, "epoch": epoch, **values}, "train", step, values)
            self._window_start, self._window_images = time.perf_counter(), 0

    def evaluation(
        self, *, step: int, epoch: int, split: str, seconds: float, best: bool, metrics: dict[str, float]
    ) -> None:
        """One line with an evaluation."""
        line = {
            "kind": "evaluation",
            "step": step,
            "epoch": epoch,
            "split": split,
            "seconds": round(seconds, 3),
            "best": best,
            "metrics": metrics,
        }
        self._write(line, split, step, metrics)
        if not self._progress.disable:
            text = (
                f"epoch {epoch}: H-AP {metrics['H-AP']:.4f} on {split}{', the best so far' if best else ''}"
            )
            self._progress.console.print(text, highlight=False, markup=False)
        self._window_start, self._window_images = time.perf_counter(), 0

    def _write(self, line: dict[str, Any], group: str, step: int, values: dict[str, float]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(_plain(line)) + "\n")
            self._file.flush()
        if self._writer is not None:
            for name, value in values.items():
                # TensorBoard takes "@" as a fault of its own.
                self._writer.add_scalar(f"{group}/{name.replace('@', '_at_')}", value, step)


def _reopen(path: Path, size: int) -> IO[str]:
    """Open for appending after the first `size` bytes; what follows will be written again."""
    path.touch()
    with path.open("r+b") as file:
        if file.seek(0, 2) > size:
            file.truncate(size)
    return path.open("a", encoding="utf-8")


def _plain(value: Any) -> Any:
    """JSON has no NaN: an undefined metric is null."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
