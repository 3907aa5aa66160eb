"""H-AP as a loss: the paper's surrogate, and the plain sigmoid of its ablation."""

from __future__ import annotations

from typing import final

import numpy as np
import torch

from happier.errors import OptionError
from happier.losses.objective import Objective
from happier.losses.old_options import accepts_old_options
from happier.losses.ranking import LossEngine, ranking_loss
from happier.losses.retrieval_loss import Batch, RetrievalLoss
from happier.losses.surrogate import SigmoidSurrogate, Surrogate, choose_surrogate
from happier.relevance import HierarchyRelevance, Relevance
from happier.taxonomy import UNKNOWN


class _HAP(RetrievalLoss):
    """One minus a smooth H-AP; the two losses below choose the surrogate."""

    surrogate: Surrogate
    relevance: Relevance
    include_query: bool
    engine: LossEngine | None

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch."""
        return hap_loss(
            batch, self.relevance, self.surrogate, include_query=self.include_query, engine=self.engine
        )

    def extra_repr(self) -> str:
        """Relevance and surrogate."""
        return f"{self.relevance}, {self.surrogate}, include_query={self.include_query}"


@final
class HAPLoss(_HAP):
    """One minus a smooth lower bound of H-AP, the mean over the queries of the batch.

        L = 1 - sum_k hrank(k) / rank(k) / sum_k rel(k)
        rank(k)  = 1 + sum_{level(j) < level(k)} H_down(s_j - s_k) + sum_{level(j) >= level(k)} H(s_j - s_k)
        hrank(k) = rel(k) + sum_{level(j) > level(k)} min(rel(j), rel(k)) H_up(s_j - s_k)
                          + sum_{1 <= level(j) <= level(k)} min(rel(j), rel(k)) H(s_j - s_k)

    where ``k`` runs over the positives of a query, ``j != k`` over the rest of the batch, ``s`` are the
    cosines with the query, ``level`` is the number of levels shared with it, ``H`` is the step (``H(0) = 0``,
    no gradient) and ``H_down``, ``H_up`` are those of `StepSurrogate`. The loss is at least ``1 - H-AP`` for
    every query as long as ``H_down >= H`` and ``H_up <= H``: so for the preset ``"paper"``, not for the
    authors' values of iNaturalist (``start=0, offset=1``).

    A query without a positive adds nothing; a batch of such queries gives a zero that back-propagates.

    Relations: with one level it is the SupAP of `ROADMAPLoss`; `SigmoidHAPLoss` has a sigmoid for every pair;
    `HAPPIERLoss` adds `ClusterLoss`; ``relevance=WeightedAPRelevance(weights)`` trains the weighted sum of
    the levels' AP.

    Args:
        alpha: how fast relevance falls towards the coarse levels (`HierarchyRelevance`); 5 or 3 is HAPPIER_F.
        preset: ``"paper"`` or ``"authors"``, whose values the surrogate has.
        surrogate: a `StepSurrogate` with other values, or a `SigmoidSurrogate`, instead of ``preset``.
        relevance: any relevance of `happier.relevance` instead of ``alpha``.
        include_query: leave each query in its own retrieval set, as the authors do.
        engine: ``"kernel"`` or ``"torch"``; by default the device decides.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]``; a scalar comes back.

    Reference:
        Ramzi et al., Hierarchical Average Precision Training for Pertinent Image Retrieval, ECCV 2022.

    >>> import torch
    >>> embeddings = torch.nn.functional.normalize(torch.eye(4), dim=1).requires_grad_()
    >>> loss = HAPLoss()(embeddings, torch.tensor([[0, 0], [0, 0], [0, 1], [1, 2]]))
    >>> loss.backward()
    >>> loss.shape
    torch.Size([])
    """

    @accepts_old_options
    def __init__(
        self,
        alpha: float = 1.0,
        preset: str = "paper",
        *,
        surrogate: Surrogate | None = None,
        relevance: Relevance | None = None,
        include_query: bool = False,
        engine: LossEngine | None = None,
    ) -> None:
        super().__init__()
        self.surrogate = choose_surrogate(surrogate, preset)
        self.relevance = _relevance(alpha, relevance)
        self.include_query = include_query
        self.engine = engine


@final
class SigmoidHAPLoss(_HAP):
    """One minus H-AP with a plain sigmoid for every comparison: the baseline of the paper's ablation.

        L = 1 - sum_k hrank(k) / rank(k) / sum_k rel(k)
        rank(k)  = 1 + sum_j sigmoid((s_j - s_k) / tau)
        hrank(k) = rel(k) + sum_{level(j) >= 1} min(rel(j), rel(k)) sigmoid((s_j - s_k) / tau)

    where ``k`` runs over the positives of a query and ``j != k`` over the rest of the batch. It tends to ``1
    - H-AP`` as ``tau`` tends to 0, but is no bound of it.

    Relations: with one level it is `SmoothAPLoss`; `HAPLoss` has the paper's bounds instead.

    Args:
        alpha: how fast relevance falls towards the coarse levels (`HierarchyRelevance`).
        relevance: any relevance of `happier.relevance` instead of ``alpha``.
        tau: temperature.
        include_query: leave each query in its own retrieval set.
        engine: ``"kernel"`` or ``"torch"``; by default the device decides.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]``; a scalar comes back.

    Reference:
        Ramzi et al., ECCV 2022, table 5; Brown et al., Smooth-AP, ECCV 2020.

    >>> import torch
    >>> labels = torch.tensor([[0, 0], [0, 0], [0, 1], [1, 2]])
    >>> round(float(SigmoidHAPLoss(tau=0.001)(torch.eye(4)[[0, 1, 0, 1]], labels)), 4)
    0.2778
    """

    @accepts_old_options
    def __init__(
        self,
        alpha: float = 1.0,
        *,
        relevance: Relevance | None = None,
        tau: float = 0.01,
        include_query: bool = False,
        engine: LossEngine | None = None,
    ) -> None:
        super().__init__()
        self.surrogate = SigmoidSurrogate(tau)
        self.relevance = _relevance(alpha, relevance)
        self.include_query = include_query
        self.engine = engine


def hap_loss(
    batch: Batch,
    relevance: Relevance,
    surrogate: Surrogate,
    *,
    include_query: bool,
    engine: LossEngine | None,
) -> torch.Tensor:
    """One minus the mean smooth H-AP of a checked batch."""
    levels = batch.levels(include_query=include_query)
    counts = level_counts(levels, batch.labels.shape[1])
    counted = counts
    if relevance.count_query and not include_query and batch.own is not None:
        # The query was removed, but counts at the level it shares with itself.
        own_level = (batch.labels != UNKNOWN).sum(1, keepdim=True)
        present = (batch.own >= 0).to(counts.dtype)[:, None]
        counted = counts.scatter_add(1, own_level, present)
    objective = Objective.ap(counts, relevance(counted))
    return ranking_loss(batch.scores(), levels, objective, surrogate, engine=engine)


def level_counts(levels: torch.Tensor, depth: int) -> torch.Tensor:
    """int64 ``[Q, L+1]``: how many items each query shares each level with."""
    if type(levels) is torch.Tensor and levels.device.type == "cpu" and not torch.compiler.is_compiling():
        array = levels.numpy()  # counts bytes ten times as fast as torch
        return torch.from_numpy(
            np.stack([np.count_nonzero(array == level, axis=1) for level in range(depth + 1)], axis=1)
        )
    return torch.stack([(levels == level).sum(1) for level in range(depth + 1)], dim=1)


def _relevance(alpha: float, relevance: Relevance | None) -> Relevance:
    if relevance is None:
        return HierarchyRelevance(alpha)
    if alpha != 1.0:
        raise OptionError(
            f"alpha={alpha} has no effect together with relevance={relevance!r}: give one of them"
        )
    return relevance
