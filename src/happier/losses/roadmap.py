"""ROADMAP: SupAP, a bound of the finest level's average precision, and a calibration of the scores."""

from __future__ import annotations

import math
from typing import final

import torch

from happier.errors import OptionError
from happier.losses.old_options import accepts_old_options
from happier.losses.ranking import LossEngine
from happier.losses.retrieval_loss import Batch, RetrievalLoss
from happier.losses.smooth_ap import ap_loss
from happier.losses.surrogate import Surrogate, choose_surrogate


@final
class ROADMAPLoss(RetrievalLoss):
    """SupAP, an upper bound of one minus the finest level's AP, and a calibration of the scores.

        L = a L_SupAP + c L_calib
        L_SupAP = 1 - 1/|P| sum_{k in P} rank+(k) / (rank+(k) + sum_{j not in P} H_down(s_j - s_k))
        L_calib = mean_{positive pairs} [m_p - s]_+ + mean_{negative pairs} [s - m_n]_+

    where ``rank+`` is the exact rank among the positives (no gradient), ``H_down`` is that of
    `StepSurrogate`, and each mean is over the pairs that violate their margin, as in the authors' code.

    Relations: L_SupAP is `HAPLoss` with one level; `SmoothAPLoss` has a sigmoid instead of the bound.

    Args:
        weight: c, the weight of the calibration; the SupAP term has 1 - c unless ``ap_weight`` is given.
        ap_weight: a; ``weight=1, ap_weight=1`` is the plain sum.
        positive_margin: m_p.
        negative_margin: m_n.
        surrogate: how ranks are made smooth; the paper's `StepSurrogate` by default.
        include_query: leave each query in its own retrieval set.
        engine: ``"kernel"`` or ``"torch"``; by default the device decides.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]`` of which the whole path counts; a scalar comes
        back.

    Reference:
        Ramzi et al., Robust and Decomposable Average Precision for Image Retrieval, NeurIPS 2021.

    >>> import torch
    >>> round(float(ROADMAPLoss()(torch.eye(2)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1]))), 6)
    0.0
    """

    @accepts_old_options
    def __init__(
        self,
        *,
        weight: float = 0.1,
        ap_weight: float | None = None,
        positive_margin: float = 0.9,
        negative_margin: float = 0.6,
        surrogate: Surrogate | None = None,
        include_query: bool = False,
        engine: LossEngine | None = None,
    ) -> None:
        super().__init__()
        if not (math.isfinite(weight) and weight >= 0) or (ap_weight is None and weight > 1):
            raise OptionError(f"weight must be in 0..1, or 0 or more beside an ap_weight, got {weight}")
        self.weight = weight
        self.ap_weight = 1 - weight if ap_weight is None else ap_weight
        self.positive_margin = positive_margin
        self.negative_margin = negative_margin
        self.surrogate = choose_surrogate(surrogate, "paper")
        self.include_query = include_query
        self.engine = engine

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch."""
        scores = batch.scores()
        ap = ap_loss(batch, scores, self.surrogate, include_query=self.include_query, engine=self.engine)
        matches = batch.fine_matches()
        too_far = torch.relu(self.positive_margin - scores) * (matches == 1)
        too_near = torch.relu(scores - self.negative_margin) * (matches == 0)
        calibration = _mean_of_violations(too_far) + _mean_of_violations(too_near)
        return self.ap_weight * ap + self.weight * calibration

    def extra_repr(self) -> str:
        """Weights, margins and surrogate."""
        return (
            f"weight={self.weight}, ap_weight={self.ap_weight}, positive_margin={self.positive_margin}, "
            f"negative_margin={self.negative_margin}, {self.surrogate}"
        )


def _mean_of_violations(violations: torch.Tensor) -> torch.Tensor:
    return violations.sum() / (violations > 0).sum().clamp(min=1)
