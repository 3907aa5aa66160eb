"""HAPPIER: the H-AP loss and its clustering term."""

from __future__ import annotations

from typing import final

import torch

from happier.errors import OptionError
from happier.losses.hap import HAPLoss
from happier.losses.norm_softmax import ClusterLoss
from happier.losses.old_options import accepts_old_options
from happier.losses.ranking import LossEngine
from happier.losses.retrieval_loss import Batch, RetrievalLoss
from happier.losses.surrogate import Surrogate
from happier.relevance import Relevance


@final
class HAPPIERLoss(RetrievalLoss):
    """The paper's loss: a smooth bound of 1 - H-AP within the batch, and clusters that hold across batches.

        L = (1 - weight) L_HAP + weight L_clust

    where ``L_HAP`` is `HAPLoss` and ``L_clust`` is `ClusterLoss` on the finest classes; ``weight`` is the
    paper's lambda. A reference set takes part in ``L_HAP`` only.

    Relations: ``weight=0`` is `HAPLoss`, ``weight=1`` is `NormSoftmaxLoss`; ``alpha`` 5 (products) or 3
    (species) is the paper's HAPPIER_F; ``surrogate=SigmoidSurrogate(0.05)`` is
    HAPPIER_S, with `SigmoidHAPLoss` instead of the bound.

    Args:
        num_classes: number of finest classes C; labels of the last column are 0..C-1.
        dim: size of the embeddings D.
        alpha: see `HAPLoss`.
        weight: lambda, 0 to 1.
        sigma: temperature of the clustering term.
        preset: see `HAPLoss`, as the following.
        surrogate: instead of ``preset``.
        relevance: instead of ``alpha``.
        include_query: leave each query in its own retrieval set.
        engine: ``"kernel"`` or ``"torch"``; by default the device decides.
        generator: where the first proxies come from; None uses torch's global one.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]``; a scalar comes back.

    Reference:
        Ramzi et al., Hierarchical Average Precision Training for Pertinent Image Retrieval, ECCV 2022.

    >>> import torch
    >>> loss = HAPPIERLoss(num_classes=3, dim=4, alpha=1.0, weight=0.1)
    >>> embeddings = torch.eye(4).requires_grad_()
    >>> loss(embeddings, torch.tensor([[0, 0], [0, 0], [0, 1], [1, 2]])).backward()
    >>> embeddings.grad.shape
    torch.Size([4, 4])
    """

    @accepts_old_options
    def __init__(  # noqa: PLR0913 - the options of its two terms
        self,
        num_classes: int,
        dim: int,
        alpha: float = 1.0,
        weight: float = 0.1,
        *,
        sigma: float = 0.05,
        preset: str = "paper",
        surrogate: Surrogate | None = None,
        relevance: Relevance | None = None,
        include_query: bool = False,
        engine: LossEngine | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if not 0 <= weight <= 1:
            raise OptionError(f"weight must be in 0..1, got {weight}")
        self.weight = float(weight)
        self.ranking = HAPLoss(
            alpha,
            preset,
            surrogate=surrogate,
            relevance=relevance,
            include_query=include_query,
            engine=engine,
        )
        self.cluster = ClusterLoss(num_classes, dim, sigma=sigma, generator=generator)

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch."""
        return (1 - self.weight) * self.ranking.compute(batch) + self.weight * self.cluster.compute(batch)

    def extra_repr(self) -> str:
        """Weight."""
        return f"weight={self.weight}"
