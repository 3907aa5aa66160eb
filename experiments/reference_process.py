"""Run by `experiments.reference` in a process of its own: the authors' code on given batches.

    python reference_process.py CLONE BATCHES.npz FOUND.npz

``import happier`` means the clone's package here, never ours.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

HEAVISIDE = torch.heaviside
# The values of their configuration files.
STEP = {
    "tau": 0.01,
    "rho": 100.0,
    "offset": 1.44,
    "delta": 0.05,
    "start": 0.5,
    "beta": 25,
    "gamma": 0.5,
    "leak": 10,
}
MARGINS = {2: [0.25, 0.45], 3: [0.25, 0.35, 0.45]}


def load(clone: Path, name: str) -> ModuleType:
    """One module of theirs by its file: its package would import what is not needed here."""
    path = clone / "happier" / (name.replace(".", "/") + ".py")
    spec = importlib.util.spec_from_file_location(f"happier.{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def losses(
    clone: Path, depth: int, proxies: torch.Tensor, labels: torch.Tensor
) -> dict[str, Callable[..., Any]]:
    """Their losses by our names, each called with embeddings and labels, fine to coarse."""
    theirs = importlib.import_module("happier.losses")
    relevance = load(clone, "engine.compute_relevance_on_the_fly")

    def ranking(alpha: float = 1.0, **options: Any) -> Callable[..., Any]:
        of = partial(relevance.compute_relevance_on_the_fly, alpha=alpha, check_for=[depth], type="pop")
        return partial(theirs.HAPLoss(**{**STEP, **options}), relevance_fn=of)

    cluster = theirs.ClusterLoss(proxies.shape[1], len(proxies), hierarchy_level=0)
    cluster.weight = torch.nn.Parameter(proxies)
    csl = theirs.CSLLoss(len(proxies), MARGINS[depth], 32.0, proxies.shape[1])
    csl.register_labels(labels)
    csl.weight = torch.nn.Parameter(proxies)
    return {
        "H-AP loss": ranking(),
        "H-AP loss, iNat's values": ranking(start=0.0, offset=1.0),
        "H-AP loss with hrank": ranking(with_hrank=True),
        "H-AP loss, alpha 3": ranking(alpha=3.0),
        "clustering": cluster,
        "CSL": csl,
    }


def metrics(clone: Path, vectors: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    """Their metrics of each query, which counts in its own class and is not ranked."""
    theirs = load(clone, "engine.metrics")
    relevance = load(clone, "engine.compute_relevance_on_the_fly")
    depth = labels.shape[1]
    levels = (labels[:, None] == labels[None]).sum(-1)
    table = relevance.relevance_for_batch(levels, alpha=1.0, check_for=[depth], type="pop").double()
    order = (vectors @ vectors.T).fill_diagonal_(-torch.inf).argsort(1, descending=True)[:, :-1]
    ranked = levels.gather(1, order)
    found = {
        "H-AP": theirs.hap(table.gather(1, ranked), table, reduce=False),
        "ASI": theirs.asi(ranked, reduce=False),
        "NDCG": theirs.ndcg(ranked, reduce=False),
    }
    for level in range(1, depth + 1):
        positive = (ranked >= level).double()
        found[f"AP, level {level}"] = theirs.ap(positive, reduce=False)
        found[f"R@1, level {level}"] = theirs.recall_rate_at_k(positive, 1, reduce=False)
    return found


def flat_heaviside(tens: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """`torch.heaviside` without a gradient: torch now refuses to pass through it, where it once gave 0."""
    return HEAVISIDE(tens.detach(), values)


def main(clone: Path, given: Path, out: Path) -> None:
    """Read batches, write every value and gradient."""
    sys.path.insert(0, str(clone))
    torch.heaviside = flat_heaviside  # type: ignore[assignment]
    batches = np.load(given)
    found: dict[str, Any] = {}
    for number in range(len(batches.files) // 3):
        vectors, labels, proxies = (
            torch.from_numpy(batches[f"{number}/{name}"]) for name in ("vectors", "labels", "proxies")
        )
        labels = labels.flip(1)  # they store fine to coarse
        for name, loss in losses(clone, labels.shape[1], proxies, labels).items():
            leaf = vectors.clone().requires_grad_()
            value = loss(leaf, labels)
            (gradient,) = torch.autograd.grad(value, leaf)
            found[f"{number}/{name}"] = value.detach().numpy()
            found[f"{number}/{name} gradient"] = gradient.numpy()
        for name, values in metrics(clone, vectors, labels).items():
            found[f"{number}/{name}"] = values.numpy()
    np.savez(out, **found)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
