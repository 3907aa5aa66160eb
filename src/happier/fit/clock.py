"""How far a fit is over all its stages, and the time that is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

__all__ = ["Clock", "Moment", "Tell", "no_moments"]


@dataclass(frozen=True)
class Moment:
    """What a progress bar shows.

    Attributes:
        stage: what is being done.
        done: items or steps of the stage.
        total: their number, 0 where the stage cannot be counted.
        fraction: of the whole that is done, 0 to 1.
        seconds_left: for the whole, as far as it can be estimated.
    """

    stage: str
    done: int
    total: int
    fraction: float
    seconds_left: float


Tell = Callable[[Moment], None]
"""Called with every change."""


def no_moments(moment: Moment) -> None:
    """Ignore progress."""


@final
class Clock:
    """Stages with a guessed length each; as a stage proceeds, its measured pace replaces the guess.

    It is a `happier.progress.StageProgress`.

    Args:
        tell: called with every change.
        now: the time in seconds.
    """

    def __init__(self, tell: Tell, now: Callable[[], float] = time.monotonic) -> None:
        self._guesses: dict[str, float] = {}
        self._tell, self._now = tell, now
        self._started = now()
        self._stage = ""
        self._stage_started = self._started
        self._first_fraction = 0.0

    def plan(self, guesses: Mapping[str, float]) -> None:
        """Set the stages to come, in order, and the seconds that each may take."""
        self._guesses = dict(guesses)

    def __call__(self, stage: str, done: int, total: int, /) -> None:
        """Report how far a stage is; the stages before it are over, or were not needed."""
        fraction = done / total if total else 0.0
        if stage != self._stage:
            self._start(stage, fraction)
        spent, gained = self._now() - self._stage_started, fraction - self._first_fraction
        guess = self._guesses[stage] * (1 - fraction) if total else max(0.0, self._guesses[stage] - spent)
        left = guess
        if gained > 0:
            # The more of the stage is done, the more its pace counts; the first steps are slow (compiling).
            pace = spent * (1 - fraction) / gained
            trust = min(1.0, gained / 0.1)
            left = trust * pace + (1 - trust) * guess
        names = list(self._guesses)
        remaining = left + sum(self._guesses[name] for name in names[names.index(stage) + 1 :])
        elapsed = self._now() - self._started
        whole = elapsed + remaining
        self._tell(Moment(stage, done, total, elapsed / whole if whole > 0 else 1.0, remaining))

    def _start(self, stage: str, fraction: float) -> None:
        names = list(self._guesses)
        if stage in self._guesses:
            for name in names[: names.index(stage)]:
                self._guesses[name] = 0.0
        else:  # not planned: nothing is known about it
            self._guesses = {stage: 0.0, **self._guesses}
        self._stage, self._stage_started, self._first_fraction = stage, self._now(), fraction
