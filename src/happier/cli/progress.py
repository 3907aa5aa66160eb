"""A progress bar with rate and remaining time on the error stream; silent where that is no terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Told(Protocol):
    """What long work tells of items done and of their total."""

    def __call__(self, done: int, total: int) -> None:
        """Take note."""


@contextmanager
def image_progress(title: str, *, unit: str = "images") -> Iterator[Told]:
    """Show a bar while the block runs; yield what is to be told of the progress."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{{task.fields[rate]:,.0f}} {unit}/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None, rate=0.0)

        def tell(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, rate=bar.tasks[task].speed or 0.0)

        yield tell
