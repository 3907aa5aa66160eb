"""What a run learnt and logged, and runs that are killed."""

import json
import os
import signal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from processes import run_fresh

from happier.training import loop
from happier.training.checkpoint import read_checkpoint
from happier.training.compose import compose
from happier.training.config import TrainConfig, flatten
from happier.training.gradient import batch_gradient


def weights_of(run: Path) -> dict[str, Any]:
    """All that a run learnt, for comparing to the last bit."""
    state = read_checkpoint(run / "checkpoint" / "last.ckpt")
    return flatten({part: state[part] for part in ("encoder", "criterion", "optimizer")})


def assert_same(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        same = (
            torch.equal(tensor, second[name]) if isinstance(tensor, torch.Tensor) else tensor == second[name]
        )
        assert same, name


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def kill_at(places: list[str], overrides: list[str]) -> list[int]:
    """Start the run once for each place, in a fresh process, and kill -9 it there; the exit code of each.

    Args:
        places: ``STEP:WHERE``: WHERE is ``step`` (before that step of the process), ``save`` (while the first
            checkpoint after it is written), or ``end`` (not killed at all).
        overrides: of ``happier train``.
    """
    config = compose(overrides)
    codes = []
    for place in places:
        step, where = place.split(":")
        done = run_fresh(train_until_killed, config, int(step), where)
        assert done.code in (0, -signal.SIGKILL), done.err
        codes.append(done.code)
    return codes


def train_until_killed(config: TrainConfig, step: int, where: str) -> None:
    """Train, and kill the process at a place of `kill_at`."""
    torch.set_num_threads(1)
    calls = 0
    real_fsync = os.fsync

    def gradient(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if where == "step" and calls == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return batch_gradient(*arguments, **options)

    def fsync(descriptor: int) -> None:
        if where == "save" and calls >= step:
            os.kill(os.getpid(), signal.SIGKILL)
        real_fsync(descriptor)

    with patch.object(loop, "batch_gradient", gradient), patch.object(os, "fsync", fsync):
        loop.train(config)
