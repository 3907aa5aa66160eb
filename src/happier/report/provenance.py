"""Where a report comes from: commands, settings, versions, and the curves of the training runs."""

from __future__ import annotations

import datetime
import math
import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from happier.report.data import Model, Provenance, Series, TrainingCurve
from happier.runs import Run

MAX_POINTS = 60
_PACKAGES = ("happier", "torch", "torchvision", "timm", "numpy", "numba", "openTSNE")


def provenance(runs: Sequence[Run], commands: Sequence[str], settings: dict[str, str]) -> Provenance:
    """What made the report.

    Args:
        runs: the models.
        commands: the commands after training, the report's own last.
        settings: how it was evaluated.
    """
    return Provenance(
        created=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        commands=(*(line for run in runs if (line := train_command(run))), *commands),
        environment=_environment(),
        configs=tuple(run.config_text for run in runs),
        settings=settings,
    )


def model(run: Run) -> Model:
    """What is known about a run's model."""
    config = run.config
    return Model(
        name=run.name,
        source=run.source,
        loss=_text(config, "loss", "name"),
        backbone=_text(config, "model", "backbone"),
        epochs=_number(config, "training", "epochs"),
        fingerprint=run.fingerprint,
    )


def train_command(run: Run) -> str | None:
    """The command that trains this run again, as far as its configuration says."""
    recipe, loss = run.config.get("recipe"), _text(run.config, "loss", "name")
    if not recipe or not loss:
        return None
    epochs = _number(run.config, "training", "epochs")
    words = [f"recipe={recipe}", f"loss={loss}", f"run={run.source}", f"seed={run.config.get('seed', 0)}"]
    if epochs:
        words.append(f"training.epochs={epochs}")
    if manifest := _text(run.config, "data", "manifest"):
        words.append(f"data.manifest={manifest}")
    return " ".join(["happier train", *words])


def training_curves(runs: Sequence[Run]) -> tuple[TrainingCurve, ...]:
    """Loss and H-AP over the steps, for the runs that logged them."""
    curves = []
    for name in ("loss", "H-AP"):
        series = []
        for index, run in enumerate(runs):
            points = _points(run.history, name)
            if len(points) > 1:
                x, y = zip(*points, strict=True)
                series.append(Series(index, tuple(x), tuple(y)))
        if series:
            curves.append(TrainingCurve(name, tuple(series)))
    return tuple(curves)


def _points(history: Sequence[dict[str, Any]], name: str) -> list[tuple[float, float]]:
    """Step and value of every line that has this quantity; many lines become `MAX_POINTS` means."""
    points = []
    for line in history:
        value = (line.get("metrics") or {}).get(name) if line.get("kind") == "evaluation" else line.get(name)
        if isinstance(value, int | float) and isinstance(line.get("step"), int):
            points.append((float(line["step"]), float(value)))
    size = math.ceil(len(points) / MAX_POINTS)
    groups = [points[start : start + size] for start in range(0, len(points), size)] if points else []
    return [tuple(sum(column) / len(column) for column in zip(*group, strict=True)) for group in groups]


def _environment() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    found["Python"] = platform.python_version()
    found["Machine"] = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return found


def _text(config: dict[str, Any], group: str, key: str) -> str | None:
    value = (config.get(group) or {}).get(key)
    return None if value is None else str(value)


def _number(config: dict[str, Any], group: str, key: str) -> int | None:
    value = (config.get(group) or {}).get(key)
    return int(value) if isinstance(value, int | float) else None
