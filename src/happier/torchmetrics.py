"""`happier.evaluate` as a ``torchmetrics.Metric``, so that it drops into Lightning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from happier.errors import InputError
from happier.evaluation import evaluate
from happier.evaluation.options import PAPER_RELEVANCE, Ties
from happier.extras import needs_extra
from happier.relevance import Relevance

with needs_extra("train"):
    from torchmetrics import Metric


class HierarchicalRetrieval(Metric):
    """Leave-one-out retrieval over everything since the last reset.

    Under DDP the embeddings of all ranks are gathered first; a sampler that repeats items to fill the last
    batch changes the gallery, so give ``ids``: repeated items are kept once.

    Args:
        relevance: of each level.
        ks: cut-offs of the metrics at k.
        ties: order of equal scores.
        level_names: names of the levels in the result, coarse first.
        metrics: which names of `happier.evaluate`'s summary to return (default: all).

    >>> import torch
    >>> metric = HierarchicalRetrieval(metrics=("H-AP", "AP/2"))
    >>> labels = torch.tensor([[0, 0], [0, 0], [1, 1], [1, 1]])
    >>> metric.update(torch.eye(2)[[0, 0, 1, 1]], labels)
    >>> {name: float(value) for name, value in metric.compute().items()}
    {'H-AP': 1.0, 'AP/2': 1.0}
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False

    embeddings: list[Tensor]
    labels: list[Tensor]
    ids: list[Tensor]

    def __init__(
        self,
        *,
        relevance: Relevance = PAPER_RELEVANCE,
        ks: Sequence[int] = (1, 10, 100),
        ties: Ties = "worst",
        level_names: Sequence[str] | None = None,
        metrics: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)  # torchmetrics checks these names itself
        self.relevance = relevance
        self.ks = tuple(ks)
        self.ties: Ties = ties
        self.level_names = None if level_names is None else tuple(level_names)
        self.metrics = None if metrics is None else tuple(metrics)
        for state in ("embeddings", "labels", "ids"):
            self.add_state(state, default=[], dist_reduce_fx="cat")

    def update(self, embeddings: Tensor, labels: Tensor, ids: Tensor | None = None) -> None:
        """Add embeddings ``[B, D]`` with labels ``[B, L]``, and integer ids ``[B]`` if items may repeat."""
        labels = labels[:, None] if labels.ndim == 1 else labels
        if embeddings.ndim != 2 or len(embeddings) != len(labels):
            raise InputError(
                f"embeddings [B, D] and labels [B, L] must have one row per item, got "
                f"{tuple(embeddings.shape)} and {tuple(labels.shape)}"
            )
        if self.embeddings and bool(self.ids) != (ids is not None):
            raise InputError("ids must be given in every update or in none")
        self.embeddings.append(embeddings.detach())
        self.labels.append(labels)
        if ids is not None:
            self.ids.append(ids)

    def compute(self) -> dict[str, Tensor]:
        """The summary of `happier.evaluate` over everything seen, as tensors."""
        embeddings, labels = _joined(self.embeddings), _joined(self.labels)
        if embeddings is None or labels is None:
            raise InputError("nothing to evaluate: update was never called")
        ids = _joined(self.ids)
        if ids is not None:
            _, inverse = torch.unique(ids, return_inverse=True)
            first = torch.full((int(inverse.max()) + 1,), len(ids), device=ids.device)
            first.scatter_reduce_(0, inverse, torch.arange(len(ids), device=ids.device), "amin")
            keep = first.sort().values
            embeddings, labels = embeddings[keep], labels[keep]
        # Once synchronised, every rank holds everything: they share the queries instead of repeating them.
        result = evaluate(
            embeddings,
            labels,
            relevance=self.relevance,
            ks=self.ks,
            ties=self.ties,
            level_names=self.level_names,
            distributed=bool(self._is_synced),
        )
        names = result.summary if self.metrics is None else self.metrics
        if missing := [name for name in names if name not in result.summary]:
            raise InputError(f"no such metrics: {missing}; there are {list(result.summary)}")
        return {name: torch.tensor(result.summary[name], dtype=torch.float64) for name in names}


def _joined(state: list[Tensor] | Tensor) -> Tensor | None:
    """A state is a list until torchmetrics has synchronised it, then one tensor."""
    if isinstance(state, Tensor):
        return state
    return torch.cat(state) if state else None
