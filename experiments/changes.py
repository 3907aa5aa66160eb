"""What does each part of HAPPIER give? Can it be beaten? Its chosen configuration, one change at a time.

Heads on kept features of emoji, as in `tuned`, several seeds of each, where a study names no other protocol
or set. ``changes.yaml`` has the studies. A run is a row of ``results/PROTOCOL-SET.parquet``, like those of
the protocol, some of which it shares.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        ConfigError: there is no such study, or the method that is changed has not been tuned yet.
    """
    studies = _read()
    if name not in studies:
        raise ConfigError(f"no study {name!r}{did_you_mean(name, studies)}; there are {', '.join(studies)}")
    study = studies[name]
    protocol, set_name = study.get("protocol", FEATURES), study.get("set", SET)
    split, start = study["split"], study.get("from", METHOD)

    def settings(row: str) -> tuple[str, ...]:
        if isinstance(start, list):
            return tuple(start)
        return find_method(protocol, set_name, row if start == "rows" else start).first.settings

    return {
        row: tuple(
            TunedRun(protocol, set_name, split, changed(settings(row), overrides), seed)
            for seed in study["seeds"]
        )
        for row, overrides in study["rows"].items()
    }


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
