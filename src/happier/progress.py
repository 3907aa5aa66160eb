"""Progress of long work: one callback for the work, one bar for people.

Long-running functions accept a `Progress` and call it with the items done and their total. A `ProgressBar` is
one: it shows the rate and the remaining time on the error stream, and nothing where that is not a terminal.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, final

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

__all__ = ["Progress", "ProgressBar", "StageProgress", "Status", "no_progress", "no_stages", "no_status"]


class Progress(Protocol):
    """Called with the items or steps done and their total."""

    def __call__(self, done: int, total: int, /) -> None:
        """Report progress."""
        ...


class StageProgress(Protocol):
    """Called with the name of a stage, the items done, and their total; 0 where the total is unknown."""

    def __call__(self, stage: str, done: int, total: int, /) -> None:
        """Report the progress of a stage."""
        ...


Status: TypeAlias = Callable[[str], None]
"""Called with the name of the step that begins, by work that cannot be counted."""


def no_progress(done: int, total: int, /) -> None:
    """Ignore progress."""


def no_stages(stage: str, done: int, total: int, /) -> None:
    """Ignore the progress of stages."""


def no_status(step: str) -> None:
    """Ignore the names of steps."""


@final
class ProgressBar:
    """A bar with rate and remaining time while the ``with`` block runs; silent where there is no terminal.

    It is a `Progress`, and its method `stage` a `StageProgress`.

    Args:
        title: text before the bar.
        unit: what is counted, for the rate.
        done: items that were done before; they do not count towards the rate.
        total: number of items, if it is known already.
        quiet: show nothing even on a terminal.

    Example:
        >>> with ProgressBar("Embedding") as progress:
        ...     for done in range(3):
        ...         progress(done + 1, 3)
    """

    def __init__(
        self,
        title: str = "",
        *,
        unit: str = "images",
        done: int = 0,
        total: int | None = None,
        quiet: bool = False,
    ) -> None:
        self._title, self._unit, self._done, self._total = title, unit, done, total
        self._quiet = quiet
        self._bar: RichProgress | None = None
        self._task: Any = None

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        if not self._quiet and console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}", markup=False),
                TimeRemainingColumn(),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task(self._title, total=self._total, completed=self._done, note="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __call__(self, done: int, total: int, /) -> None:
        """Move the bar and show the rate."""
        if self._bar is not None:
            speed = self._bar.tasks[self._task].speed
            note = f"{speed:,.0f} {self._unit}/s" if speed else ""
            self._bar.update(self._task, completed=done, total=total or None, note=note)

    def stage(self, stage: str, done: int, total: int, /) -> None:
        """Move the bar of a stage; it starts again when the stage changes."""
        if self._bar is not None and stage != self._title:
            self._bar.reset(self._task, description=stage)
            self._title = stage
        self(done, total)

    def show(self, done: int, total: int, *, title: str, note: str) -> None:
        """Move the bar, with another title, and with a note instead of the rate."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, description=title, note=note)

    def print(self, text: str) -> None:
        """Print a line above the bar."""
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False)
