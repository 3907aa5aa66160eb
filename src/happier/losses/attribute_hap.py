"""H-AP as a loss where relevance is the share of attributes in common."""

from __future__ import annotations

from typing import final

import torch

from happier.errors import InputError
from happier.losses.graded import graded_hap_loss
from happier.losses.ranking import LossEngine
from happier.losses.retrieval_loss import Batch, RetrievalLoss
from happier.losses.surrogate import Surrogate, choose_surrogate
from happier.relevance import jaccard


@final
class AttributeHAPLoss(RetrievalLoss):
    """`GradedHAPLoss` with the share of attributes that two images have in common as their relevance.

        rel(q, j) = |A_q and A_j| / |A_q or A_j|

    where ``A_q`` are the attributes of image ``q``. An image without attributes is relevant to none, and as a
    query adds nothing.

    Relations: `GradedHAPLoss` takes any relevance; this one has the call of all losses here, with attributes
    in the place of labels, so that `CrossBatchMemory` and ``happier train`` take it.

    Args:
        preset: ``"paper"`` or ``"authors"``, whose values the surrogate has.
        surrogate: a `StepSurrogate` with other values, or a `SigmoidSurrogate`, instead of ``preset``.
        engine: ``"kernel"``, ``"triton"`` or ``"torch"``; by default the device decides.

    Shapes:
        embeddings ``[B, D]`` unit vectors, attributes int ``[B, A]``, 0 where an image has not got one; a
        scalar comes back.

    Reference:
        Ramzi et al., Hierarchical Average Precision Training for Pertinent Image Retrieval, ECCV 2022, whose
        conclusion proposes relevances that do not come from a tree.

    >>> import torch
    >>> attributes = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 1]])
    >>> round(float(AttributeHAPLoss()(torch.eye(3)[[0, 0, 1]], attributes)), 4)
    0.0
    """

    def __init__(
        self,
        preset: str = "paper",
        *,
        surrogate: Surrogate | None = None,
        engine: LossEngine | None = None,
    ) -> None:
        super().__init__()
        self.surrogate = choose_surrogate(surrogate, preset)
        self.engine = engine

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch, whose labels are attributes."""
        if batch.mined is not None:
            raise InputError("AttributeHAPLoss looks at all pairs: call it without indices_tuple")
        relevance = jaccard(batch.labels, batch.reference_labels)
        return graded_hap_loss(batch.scores(), relevance, batch.own, self.surrogate, engine=self.engine)

    def extra_repr(self) -> str:
        """Surrogate."""
        return f"{self.surrogate}"
