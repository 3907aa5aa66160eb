"""What does each part of HAPPIER give? Can it be beaten? Its chosen configuration, one change at a time.

Heads on kept features, as in `tuned`, several seeds of each; of emoji where a study names no other set.
``changes.yaml`` has the studies. A run is a row of ``results/features-SET.parquet``, like those of the
protocol, some of which it shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from experiments.tuned import FEATURES, TunedRun, find_method, run_missing
from happier.errors import ConfigError, did_you_mean

CHANGES = Path(__file__).parent / "changes.yaml"
SET, METHOD = "emoji", "HAPPIER"


def change_names() -> list[str]:
    """Names of the studies."""
    return list(_read())


def read_changes(name: str) -> dict[str, tuple[TunedRun, ...]]:
    """The runs of each row of a study, one for each seed.

    Raises:
        ConfigError: there is no such study, or HAPPIER has not been tuned yet.
    """
    studies = _read()
    if name not in studies:
        raise ConfigError(f"no study {name!r}{did_you_mean(name, studies)}; there are {', '.join(studies)}")
    study = studies[name]
    chosen = find_method(FEATURES, study.get("set", SET), METHOD).first
    rows = {
        row: replace(chosen, split=study["split"], settings=changed(chosen.settings, overrides))
        for row, overrides in study["rows"].items()
    }
    return {row: tuple(replace(run, seed=seed) for seed in study["seeds"]) for row, run in rows.items()}


def changed(settings: Sequence[str], overrides: Sequence[str]) -> tuple[str, ...]:
    """Settings with some of them set otherwise, or left out.

    >>> changed(["loss=happier", "loss.tau=0.04"], ["loss.tau=0.01", "model.dim=512"])
    ('loss=happier', 'loss.tau=0.01', 'model.dim=512')
    >>> changed(["loss=happier", "loss.tau=0.04"], ["~loss.tau"])
    ('loss=happier',)
    """
    pairs = dict(text.split("=", 1) for text in settings)
    for text in overrides:
        key, _, value = text.partition("=")
        if key.startswith("~"):
            del pairs[key.removeprefix("~")]
        else:
            pairs[key] = value
    return tuple(map("=".join, pairs.items()))


def run_changes(names: Sequence[str], *, workers: int, runs: Path) -> None:
    """Train and evaluate what has no result yet; it can be stopped at any time and run again.

    Args:
        names: of the studies.
        workers: parallel processes; each uses one core.
        runs: folder of features and unfinished runs.
    """
    for name in names:
        run_missing(list(read_changes(name).values()), workers, runs)


def _read() -> dict[str, dict[str, Any]]:
    content: dict[str, dict[str, Any]] = yaml.safe_load(CHANGES.read_text(encoding="utf-8"))
    return content
