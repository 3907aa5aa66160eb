"""What a fit came to, in five lines."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from happier.evaluation.statistics import Difference
from happier.fit.directory import FitDirectory

__all__ = ["FROZEN", "Fit"]

FROZEN = "without training"


@dataclass(frozen=True)
class Fit:
    """What a fit came to.

    Attributes:
        directory: of the fit.
        losses: of the model, and on fine classes alone.
        images: that are used.
        left_out: how many are not, for each reason.
        notes: what a reader should know of the data.
        training: H-AP of the model minus that of the network without training.
        hierarchy: H-AP of the model minus that of the same training on fine classes alone.
        h_ap: of the model, of fine classes alone, and without training.
        head: H-AP of the model before it was fine-tuned; None where it was not.
        tuning_command: that fine-tunes it, or, where it is fine-tuned, fine-tunes it further.
    """

    directory: FitDirectory
    losses: tuple[str, str]
    images: int
    left_out: dict[str, int]
    notes: tuple[str, ...]
    training: Difference
    hierarchy: Difference
    h_ap: tuple[float, float, float]
    head: float | None
    tuning_command: Sequence[str]

    def lines(self) -> tuple[str, ...]:
        """The outcome in five lines."""
        model, fine, frozen = (100 * value for value in self.h_ap)
        head = "" if self.head is None else f", {100 * self.head:.1f} before fine-tuning"
        place = self.directory
        return (
            f"{_verdict('Training', self.training)}: H-AP {model:.1f}{head}, {frozen:.1f} {FROZEN} "
            f"({_interval(self.training)})",
            f"{_verdict('The hierarchy', self.hierarchy)}: H-AP {model:.1f}, {fine:.1f} with fine classes "
            f"alone ({_interval(self.hierarchy)})",
            f"Look: {place.page}",
            f"Serve: {shlex.join(['happier', 'serve', str(place.index)])}",
            f"Fine-tune{'' if self.head is None else ' further'}: {shlex.join(self.tuning_command)}",
        )


def further_tuning(directory: FitDirectory, loss: str) -> list[str]:
    """The command that fine-tunes a fine-tuned model further, in a run of its own."""
    return [
        "happier",
        "train",
        "recipe=folder",
        f"loss={loss}",
        "model.train=all",
        "model.freeze_batch_norm=true",
        f"model.start={directory.run(loss, 'all').path}",
        f"data.manifest={directory.manifest}",
        f"run={directory.tuned_further}",
    ]


def _verdict(what: str, difference: Difference) -> str:
    if difference.low > 0:
        return f"{what} helped"
    return f"{what} did harm" if difference.high < 0 else f"{what} made no clear difference"


def _interval(difference: Difference) -> str:
    mean, low, high = (100 * value for value in (difference.mean, difference.low, difference.high))
    return f"{mean:+.1f}, 95 % interval over the test classes {low:+.1f} to {high:+.1f}"
