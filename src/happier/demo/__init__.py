"""``happier demo``: a fit on the emoji."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from happier.data import fetch
from happier.data.fetching import cache_folder
from happier.errors import FetchError
from happier.fit import Fit, FitOptions, fit
from happier.fit.clock import Moment, Tell, no_moments

__all__ = ["BUDGETS", "Budget", "default_folder", "demo"]

IMAGE_SIZE: Final = 192
"""Side of the emoji: a pass takes half as long as at 224 px, and drawings of 64 px gain little beyond."""
# Drawings fill their frame: no border is cut off.
_DRAWINGS: Final = ("transform=small", "transform.normalize=backbone")


@dataclass(frozen=True)
class Budget:
    """How much to compute.

    Attributes:
        name: of the budget.
        train: ``head``, or ``all`` to fine-tune, too.
        settings: of the trainings.
        tuning: settings of the fine-tuning alone.
    """

    name: str
    train: str
    settings: tuple[str, ...]
    tuning: tuple[str, ...] = ()

    def command(self, out: Path | None, seed: int) -> list[str]:
        """What to type."""
        words = ["happier", "demo"] + ([f"--{self.name}"] if self.name != "default" else [])
        return words + (["-o", str(out)] if out else []) + (["--seed", str(seed)] if seed else [])


BUDGETS: Final = {
    budget.name: budget
    for budget in (
        Budget("quick", "head", ("transform.size=64", "training.steps=100")),
        Budget("default", "head", (f"transform.size={IMAGE_SIZE}",)),
        Budget(
            "full", "all", (f"transform.size={IMAGE_SIZE}",), ("training.epochs=4", "training.batch_size=128")
        ),
    )
}


def demo(
    budget: Budget = BUDGETS["default"],
    *,
    out: Path | None = None,
    seed: int = 0,
    tell: Tell = no_moments,
) -> Fit:
    """Fit HAPPIER and NSM to the emoji; see `happier.fit.fit`.

    Args:
        budget: how much to compute.
        out: directory to write.
        seed: of all trainings.
        tell: called with all progress.

    Raises:
        FetchError: the emoji are not there and cannot be fetched.
    """
    manifest = _fetch_emoji(tell)
    options = FitOptions(
        train=budget.train,
        seed=seed,
        overrides=(*_DRAWINGS, *budget.settings),
        tuning=budget.tuning,
        # Every demo has the same images: their features are computed once.
        features=cache_folder() / "features",
        command=budget.command(out, seed),
        tuning_command=BUDGETS["full"].command(out, seed),
    )
    return fit(manifest, out or default_folder(budget, seed), options, tell=tell)


def default_folder(budget: Budget, seed: int) -> Path:
    """Folder of a demo; the full one continues the default one.

    >>> default_folder(BUDGETS["quick"], 1).as_posix()
    'runs/demo-quick-seed1'
    """
    parts = ["demo"] + (["quick"] if budget.name == "quick" else []) + ([f"seed{seed}"] if seed else [])
    return Path("runs") / "-".join(parts)


def _fetch_emoji(tell: Tell) -> Path:
    def progress(stage: str, done: int, total: int, /) -> None:
        tell(Moment(stage, done, total, 0.0, 0.0))

    try:
        return fetch("emoji", size=IMAGE_SIZE, progress=progress)
    except FetchError as error:
        raise FetchError(
            f"{error}. The demo's images come from npm packages, fetched once; without a network, try your "
            "own: happier fit FOLDER -o DIR (FOLDER/<kind>/<item>/<image>)"
        ) from error
