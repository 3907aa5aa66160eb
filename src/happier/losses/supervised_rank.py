"""Recall and NDCG with the rank surrogate of the H-AP loss (the authors' later SupRank)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch

from happier.errors import OptionError
from happier.losses.hap import level_counts
from happier.losses.objective import Objective
from happier.losses.old_options import accepts_old_options
from happier.losses.option_checks import check_positive
from happier.losses.ranking import LossEngine, ranking_loss
from happier.losses.retrieval_loss import Batch, RetrievalLoss
from happier.losses.surrogate import Surrogate, choose_surrogate


@final
class SupRecallLoss(RetrievalLoss):
    """One minus smooth recall at several depths, for the finest class.

        L = 1 - mean_K 1/min(K, |P|) sum_{k in P} sigmoid((K - rank(k)) / temperature)
        rank(k) = 1 + sum_{j in P} H(s_j - s_k) + sum_{j not in P} H_down(s_j - s_k)

    where ``P`` are the items of the query's finest class, ``H`` is the step (no gradient) and ``H_down`` that
    of `StepSurrogate`.

    Relations: same ranks as the SupAP of `ROADMAPLoss`, another function of them; `SupNDCGLoss` uses all
    levels.

    Args:
        ks: the depths K.
        temperature: of the sigmoid over ranks.
        surrogate: how ranks are made smooth; the paper's `StepSurrogate` by default.
        include_query: leave each query in its own retrieval set.
        engine: ``"kernel"`` or ``"torch"``; by default the device decides.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]`` of which the whole path counts; a scalar comes
        back.

    Reference:
        Ramzi et al., Optimization of Rank Losses for Image Retrieval, 2023; Patel et al., Recall@k Surrogate
        Loss with Large Batches and Similarity Mixup, CVPR 2022.

    >>> import torch
    >>> loss = SupRecallLoss(ks=(1,), temperature=0.01)
    >>> float(loss(torch.eye(2)[[0, 1, 0, 1]], torch.tensor([0, 0, 1, 1])))
    1.0
    """

    @accepts_old_options
    def __init__(
        self,
        *,
        ks: Sequence[int] = (1, 2, 4, 8, 16),
        temperature: float = 1.0,
        surrogate: Surrogate | None = None,
        include_query: bool = False,
        engine: LossEngine | None = None,
    ) -> None:
        super().__init__()
        self.ks = tuple(int(k) for k in ks)
        if not self.ks or min(self.ks) < 1:
            raise OptionError(f"ks must be depths of 1 or more, got {list(ks)}")
        self.temperature = check_positive("temperature", temperature)
        self.surrogate = choose_surrogate(surrogate, "paper")
        self.include_query = include_query
        self.engine = engine

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch."""
        matches = batch.fine_matches(include_query=self.include_query)
        objective = Objective.recall(level_counts(matches, 1), self.ks, self.temperature)
        return ranking_loss(batch.scores(), matches, objective, self.surrogate, engine=self.engine)

    def extra_repr(self) -> str:
        """Depths and surrogate."""
        return f"ks={self.ks}, temperature={self.temperature}, {self.surrogate}"


@final
class SupNDCGLoss(RetrievalLoss):
    """One minus a smooth lower bound of NDCG over all levels.

        L = 1 - sum_k (2^level(k) - 1) / log2(1 + rank(k)) / ideal
        rank(k) = 1 + sum_{level(j) < level(k)} H_down(s_j - s_k) + sum_{level(j) >= level(k)} H(s_j - s_k)

    where ``ideal`` is the largest value of the sum over all orders of the same items, ``H`` is the step (no
    gradient) and ``H_down`` that of `StepSurrogate`.

    Relations: same ranks as `HAPLoss`; NDCG's gain depends on the level alone, not on how many items share
    it.

    Args:
        surrogate: how ranks are made smooth; the paper's `StepSurrogate` by default.
        include_query: leave each query in its own retrieval set.
        engine: ``"kernel"`` or ``"torch"``; by default the device decides.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]``; a scalar comes back.

    Reference:
        Ramzi et al., Optimization of Rank Losses for Image Retrieval, 2023.

    >>> import torch
    >>> labels = torch.tensor([[0, 0], [0, 0], [1, 1], [1, 1]])
    >>> round(float(SupNDCGLoss()(torch.eye(2)[[0, 0, 1, 1]], labels)), 6)
    0.0
    """

    @accepts_old_options
    def __init__(
        self,
        *,
        surrogate: Surrogate | None = None,
        include_query: bool = False,
        engine: LossEngine | None = None,
    ) -> None:
        super().__init__()
        self.surrogate = choose_surrogate(surrogate, "paper")
        self.include_query = include_query
        self.engine = engine

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch."""
        levels = batch.levels(include_query=self.include_query)
        objective = Objective.ndcg(level_counts(levels, batch.labels.shape[1]), levels.shape[1])
        return ranking_loss(batch.scores(), levels, objective, self.surrogate, engine=self.engine)

    def extra_repr(self) -> str:
        """Surrogate."""
        return f"{self.surrogate}, include_query={self.include_query}"
