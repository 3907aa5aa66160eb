"""Our losses and metrics beside the authors' own code, on random batches.

    git clone https://github.com/elias-ramzi/HAPPIER
    python -m experiments reference HAPPIER

Nothing of theirs is in this repository: their modules are imported from the clone, in a process of its own,
for their package has the name of ours. They get the same float64 arrays, with labels fine to coarse as they
store them. What differs by intent is set to theirs here: the query stays in its own retrieval set and counts
in its class, and there are no ties.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from happier import HierarchyRelevance, Taxonomy, evaluate
from happier.errors import InputError
from happier.losses import ClusterLoss, CSLLoss, HAPLoss, StepSurrogate
from happier.losses.proxies import Proxies

THEIRS = Path(__file__).with_name("reference_process.py")
NEEDED = ("losses/hap_loss.py", "losses/cluster_loss.py", "losses/csl_loss.py", "engine/metrics.py")
TOLERANCE = 1e-6  # their relevances are float32
SIZES = {2: (4, 4, 4), 3: (3, 2, 3, 4)}  # levels -> children at each level, then images of each class
Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Comparison:
    """The largest relative difference between ours and theirs over all batches.

    Attributes:
        name: of the loss or metric.
        value: of its values.
        gradient: of its gradients with respect to the embeddings; None for a metric.
    """

    name: str
    value: float
    gradient: float | None = None

    @property
    def agrees(self) -> bool:
        """Whether both are within the tolerance."""
        return max(self.value, self.gradient or 0.0) <= TOLERANCE


def compare_with_reference(clone: Path, *, batches: int = 10, seed: int = 0) -> list[Comparison]:
    """Compare every loss and metric that both have.

    Args:
        clone: of the authors' repository.
        batches: random batches for each number of levels.
        seed: of the batches.

    Raises:
        InputError: the path is no such clone, or its code does not run here.
    """
    if missing := [name for name in NEEDED if not (clone / "happier" / name).is_file()]:
        raise InputError(
            f"{clone} is not a clone of the authors' code (github.com/elias-ramzi/HAPPIER): "
            f"it has no happier/{missing[0]}"
        )
    generator = np.random.default_rng(seed)
    given = [random_batch(generator, depth) for depth in SIZES for _ in range(batches)]
    found: dict[str, list[float]] = {}
    for batch, theirs in zip(given, _theirs(clone, given), strict=True):
        ours = _ours(batch)
        for name, expected in theirs.items():
            found.setdefault(name, []).append(_difference(ours[name], expected))
    names = [name for name in found if not name.endswith(" gradient")]
    gradients = {name: found.get(f"{name} gradient") for name in names}
    return [
        Comparison(name, max(found[name]), None if (own := gradients[name]) is None else max(own))
        for name in names
    ]


def random_batch(generator: np.random.Generator, depth: int) -> Arrays:
    """Unit vectors, labels coarse to fine, and a proxy for each class, all float64."""
    *children, images = SIZES[depth]
    labels = np.stack(np.unravel_index(np.arange(np.prod(children)), children), axis=1)
    labels = Taxonomy.from_labels(np.repeat(labels, images, axis=0)).codes
    centres = generator.standard_normal((labels[-1, -1] + 1, 16))[labels[:, -1]]
    vectors = centres + 1.5 * generator.standard_normal(centres.shape)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    proxies = generator.uniform(-0.25, 0.25, size=(labels[-1, -1] + 1, 16))
    return {"vectors": vectors, "labels": labels, "proxies": proxies}


def _ours(batch: Arrays) -> Arrays:
    labels, taxonomy = batch["labels"], Taxonomy.from_labels(batch["labels"])
    dim, classes = batch["vectors"].shape[1], taxonomy.num_classes[-1]
    kept: dict[str, Any] = {"include_query": True}
    losses: dict[str, torch.nn.Module] = {
        "H-AP loss": HAPLoss(preset="authors", **kept),
        "H-AP loss, iNat's values": HAPLoss(
            surrogate=StepSurrogate(start=0.0, offset=1.0, hrank=False), **kept
        ),
        "H-AP loss with hrank": HAPLoss(surrogate=StepSurrogate(offset=1.44), **kept),
        "H-AP loss, alpha 3": HAPLoss(preset="authors", alpha=3.0, **kept),
        "clustering": ClusterLoss(classes, dim),
        "CSL": CSLLoss(taxonomy, dim),
    }
    found: Arrays = {}
    for name, loss in losses.items():
        _set_proxies(loss, batch["proxies"])
        found |= value_and_gradient(name, batch["vectors"], partial(_call, loss, torch.from_numpy(labels)))
    result = evaluate(
        batch["vectors"], labels, relevance=HierarchyRelevance(count_query=True), ks=(1,), engine="torch"
    )
    for name in ("H-AP", "ASI", "NDCG"):
        found[name] = result.per_query[name]
    for level in range(1, labels.shape[1] + 1):
        found[f"AP, level {level}"] = result.per_query[f"AP/{level}"]
        found[f"R@1, level {level}"] = result.per_query[f"R@1/{level}"]
    return found


def _call(loss: torch.nn.Module, labels: Tensor, vectors: Tensor) -> Tensor:
    value: Tensor = loss(vectors, labels)
    return value


def value_and_gradient(
    name: str, vectors: npt.NDArray[np.float64], loss: Callable[[Tensor], Tensor]
) -> Arrays:
    """A loss and its gradient with respect to the vectors."""
    given = torch.from_numpy(vectors).requires_grad_()
    value = loss(given)
    (gradient,) = torch.autograd.grad(value, given)
    return {name: value.detach().numpy(), f"{name} gradient": gradient.numpy()}


def _set_proxies(loss: torch.nn.Module, values: npt.NDArray[np.float64]) -> None:
    for part in loss.modules():
        if isinstance(part, Proxies):
            part.weight = torch.nn.Parameter(torch.from_numpy(values))


def _theirs(clone: Path, batches: list[Arrays]) -> list[Arrays]:
    """What their code computes for the same batches, in a process that imports it from the clone."""
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "batches.npz", Path(folder) / "found.npz"
        arrays: dict[str, Any] = {f"{i}/{name}": one[name] for i, one in enumerate(batches) for name in one}
        np.savez(given, **arrays)
        command = [sys.executable, str(THEIRS), str(clone.resolve()), str(given), str(found)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip() or "no message").splitlines()[-1]
            raise InputError(f"the code in {clone} does not run here: {reason}")
        read = np.load(found)
        results: list[Arrays] = [{} for _ in batches]
        for key in read.files:
            number, _, name = key.partition("/")
            results[int(number)][name] = read[key]
    return results


def _difference(ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> float:
    scale = max(float(np.abs(theirs).max()), 1e-12)
    return float(np.abs(ours - theirs).max()) / scale
