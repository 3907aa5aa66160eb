"""What a run learnt and logged, and runs that are killed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from happier.training.checkpoint import read_checkpoint
from happier.training.config import flatten

KILLED_RUNS = Path(__file__).parents[1] / "training" / "killed_runs.py"


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


def kill_at(places: list[str], overrides: list[str]) -> list[str]:
    """Start the run once for each place and kill -9 it there; what became of each."""
    command = [sys.executable, str(KILLED_RUNS), *places, "--", *overrides]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()
