"""Smooth-AP: average precision at the finest level, with a sigmoid for every comparison."""

from __future__ import annotations

from typing import final

import torch

from happier.losses.hap import level_counts
from happier.losses.objective import Objective
from happier.losses.old_options import accepts_old_options
from happier.losses.ranking import LossEngine, ranking_loss
from happier.losses.retrieval_loss import Batch, RetrievalLoss
from happier.losses.surrogate import SigmoidSurrogate, Surrogate


@final
class SmoothAPLoss(RetrievalLoss):
    """One minus average precision at the finest level, with a sigmoid for every comparison.

        L = 1 - 1/|P| sum_{k in P} (1 + sum_{j in P} g(s_j - s_k)) / (1 + sum_j g(s_j - s_k))
        g(t) = sigmoid(t / tau)

    where ``P`` are the items of the query's finest class, ``j != k`` and the query is not retrieved for
    itself. Classes may have any number of items.

    Relations: `SigmoidHAPLoss` is its extension to levels; `ROADMAPLoss` replaces the sigmoid by an upper
    bound.

    Args:
        tau: temperature.
        include_query: leave each query in its own retrieval set.
        engine: ``"kernel"`` or ``"torch"``; by default the device decides.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]`` of which the whole path counts; a scalar comes
        back.

    Reference:
        Brown et al., Smooth-AP: Smoothing the Path Towards Large-Scale Image Retrieval, ECCV 2020.

    >>> import torch
    >>> float(SmoothAPLoss()(torch.eye(2)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1])))
    0.0
    """

    @accepts_old_options
    def __init__(
        self, *, tau: float = 0.01, include_query: bool = False, engine: LossEngine | None = None
    ) -> None:
        super().__init__()
        self.surrogate = SigmoidSurrogate(tau)
        self.include_query = include_query
        self.engine = engine

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch."""
        return ap_loss(
            batch, batch.scores(), self.surrogate, include_query=self.include_query, engine=self.engine
        )

    def extra_repr(self) -> str:
        """Surrogate."""
        return f"{self.surrogate}, include_query={self.include_query}"


def ap_loss(
    batch: Batch,
    scores: torch.Tensor,
    surrogate: Surrogate,
    *,
    include_query: bool,
    engine: LossEngine | None,
) -> torch.Tensor:
    """One minus the mean smooth AP of the finest level of a checked batch."""
    matches = batch.fine_matches(include_query=include_query)
    counts = level_counts(matches, 1)
    relevances = torch.zeros(counts.shape, dtype=torch.float64, device=counts.device)
    relevances[:, 1] = 1.0
    return ranking_loss(scores, matches, Objective.ap(counts, relevances), surrogate, engine=engine)
