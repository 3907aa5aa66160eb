"""Which pairs does each surrogate of H-AP move? Its gradient at the scores, on real batches of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.results import RESULTS
from experiments.tuned import FEATURES, find_method, train_tuned
from happier.data import MPerClassBatchSampler
from happier.losses.hap import level_counts
from happier.losses.objective import Objective
from happier.losses.ranking import ranking_loss
from happier.losses.surrogate import SigmoidSurrogate, Surrogate, step_surrogate
from happier.relevance import HierarchyRelevance
from happier.runs import read_run
from happier.storage.atomic import atomic_file
from happier.taxonomy import shared_levels

SURROGATES: dict[str, Surrogate] = {
    "step (HAPPIER)": step_surrogate("paper"),
    "step, hrank off": step_surrogate("paper", hrank=False),
    "sigmoid, τ = 0.01": SigmoidSurrogate(0.01),
    "sigmoid, τ = 0.05": SigmoidSurrogate(0.05),
}
FILE = RESULTS / "gradients.json"
# A model of fine classes only, as at the start of a training, and one trained with HAPPIER.
MODELS = ("NSM", "HAPPIER")
BATCHES, BATCH, PER_CLASS = 20, 128, 4


def measure_gradients(runs: Path) -> Path:
    """Measure how each surrogate's gradient is spread over the pairs of a batch; returns the file.

    Args:
        runs: folder of features and runs; the first seed of `MODELS` is used.
    """
    chosen = {name: find_method(FEATURES, "emoji", name).first for name in MODELS}
    found = {name: _measure(train_tuned(run, runs)) for name, run in chosen.items()}
    FILE.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(FILE) as part:
        part.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return FILE


def _measure(directory: Path) -> dict[str, Any]:
    run = read_run(directory, split="train")
    vectors, labels = torch.from_numpy(np.array(run.vectors)), run.manifest.taxonomy().codes
    sampler = MPerClassBatchSampler(labels, batch_size=BATCH, per_class=PER_CLASS, seed=0)
    batches = list(sampler)[:BATCHES]
    return {
        name: spread(
            [(vectors[rows] @ vectors[rows].T, torch.from_numpy(labels[rows])) for rows in batches],
            surrogate,
            run.manifest.levels,
        )
        for name, surrogate in SURROGATES.items()
    }


def spread(
    batches: list[tuple[torch.Tensor, torch.Tensor]], surrogate: Surrogate, level_names: tuple[str, ...]
) -> dict[str, float]:
    """How the gradient of a surrogate is spread over the pairs of batches.

    Args:
        batches: scores ``[B, B]`` and labels ``[B, L]`` of each.
        surrogate: of the ranks.
        level_names: coarse to fine.

    Returns:
        ``norm``, the mean sum of absolute values; ``moved``, the share of pairs that take 90 % of it; and for
        each level ``pulled/<level>`` and ``pushed/<level>``, the shares of it that raise or lower the scores
        of pairs that share that level (``none``: nothing).
    """
    names = ("none", *level_names)
    total, moved = 0.0, []
    shares = {f"{way}/{name}": 0.0 for way in ("pulled", "pushed") for name in names}
    for scores, labels in batches:
        levels = shared_levels(labels, labels)
        levels.fill_diagonal_(-1)
        counts = level_counts(levels, labels.shape[1])
        leaf = scores.clone().requires_grad_()
        objective = Objective.ap(counts, HierarchyRelevance()(counts))
        ranking_loss(leaf, levels, objective, surrogate).backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        gradient = leaf.grad.double()
        total += float(gradient.abs().sum())
        for level, name in enumerate(names):
            part = gradient[levels == level]
            shares[f"pulled/{name}"] += float(-part.clamp(max=0).sum())
            shares[f"pushed/{name}"] += float(part.clamp(min=0).sum())
        largest = gradient.abs()[levels >= 0].sort(descending=True).values.cumsum(0)
        moved.append(float((largest < 0.9 * largest[-1]).double().mean()))
    found = {"norm": total / len(batches), "moved": float(np.mean(moved))}
    return {
        name: round(value, 5) for name, value in (found | {n: s / total for n, s in shares.items()}).items()
    }
