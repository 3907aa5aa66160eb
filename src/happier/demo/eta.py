"""Progress over all stages, and the remaining time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Moment:
    """What a progress bar shows.

    Attributes:
        what: is being done.
        fraction: of the whole that is done, 0 to 1.
        seconds_left: for the whole, as far as it can be estimated.
    """

    what: str
    fraction: float
    seconds_left: float


class Clock:
    """Stages with a guessed length each; as a stage proceeds, its measured pace replaces the guess.

    Args:
        guesses: seconds that each stage may take, in order; a stage that is done already takes 0.
        tell: called with every change.
        now: the time in seconds.
    """

    def __init__(
        self,
        guesses: Mapping[str, float],
        tell: Callable[[Moment], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._guesses = dict(guesses)
        self._tell, self._now = tell, now
        self._started = now()
        self._stage = ""
        self._stage_started = self._started
        self._first_fraction = 0.0

    def start(self, stage: str, what: str, fraction: float = 0.0) -> None:
        """Begin a stage, some of which may have been done before."""
        names = list(self._guesses)
        for name in names[: names.index(stage)]:
            self._guesses[name] = 0.0
        self._stage, self._stage_started, self._first_fraction = stage, self._now(), fraction
        self.update(fraction, what)

    def update(self, fraction: float, what: str) -> None:
        """Report how much of the stage is done."""
        now = self._now()
        spent, gained = now - self._stage_started, fraction - self._first_fraction
        guess = self._guesses[self._stage] * (1 - fraction)
        left = guess
        if gained > 0:
            # The more of the stage is done, the more its pace counts; the first steps are slow (compiling).
            pace = spent * (1 - fraction) / gained
            trust = min(1.0, gained / 0.1)
            left = trust * pace + (1 - trust) * guess
        later = list(self._guesses.values())[list(self._guesses).index(self._stage) + 1 :]
        remaining = left + sum(later)
        elapsed = now - self._started
        whole = elapsed + remaining
        self._tell(Moment(what, elapsed / whole if whole > 0 else 1.0, remaining))
