"""Average precision at the finest level: Smooth-AP, and SupAP with its calibration (ROADMAP)."""

from __future__ import annotations

import math
from typing import final

import torch

from happier.errors import OptionError
from happier.losses.hap import level_counts
from happier.losses.loss import Batch, RetrievalLoss
from happier.losses.objective import Objective
from happier.losses.ranking import Form, ranking_loss
from happier.losses.surrogate import SigmoidSurrogate, Surrogate, step_surrogate


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
        form: ``"kernel"`` or ``"torch"``; by default the device decides.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]`` of which the whole path counts; a scalar comes
        back.

    Reference:
        Brown et al., Smooth-AP: Smoothing the Path Towards Large-Scale Image Retrieval, ECCV 2020.

    >>> import torch
    >>> float(SmoothAPLoss()(torch.eye(2)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1])))
    0.0
    """

    def __init__(self, *, tau: float = 0.01, include_query: bool = False, form: Form | None = None) -> None:
        super().__init__()
        self.surrogate = SigmoidSurrogate(tau)
        self.include_query = include_query
        self.form = form

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch."""
        return _ap_loss(
            batch, batch.scores(), self.surrogate, include_query=self.include_query, form=self.form
        )

    def extra_repr(self) -> str:
        """Surrogate."""
        return f"{self.surrogate}, include_query={self.include_query}"


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
        tau: see `StepSurrogate`, as the following.
        rho: slope beyond the margin of ``H_down``.
        delta: margin of ``H_down``.
        start: jump at 0.
        offset: value at the margin.
        include_query: leave each query in its own retrieval set.
        form: ``"kernel"`` or ``"torch"``; by default the device decides.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]`` of which the whole path counts; a scalar comes
        back.

    Reference:
        Ramzi et al., Robust and Decomposable Average Precision for Image Retrieval, NeurIPS 2021.

    >>> import torch
    >>> round(float(ROADMAPLoss()(torch.eye(2)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1]))), 6)
    0.0
    """

    def __init__(
        self,
        *,
        weight: float = 0.1,
        ap_weight: float | None = None,
        positive_margin: float = 0.9,
        negative_margin: float = 0.6,
        tau: float = 0.01,
        rho: float = 100.0,
        delta: float = 0.05,
        start: float = 0.5,
        offset: float | None = None,
        include_query: bool = False,
        form: Form | None = None,
    ) -> None:
        super().__init__()
        if not (math.isfinite(weight) and weight >= 0) or (ap_weight is None and weight > 1):
            raise OptionError(f"weight must be in 0..1, or 0 or more beside an ap_weight, got {weight}")
        self.weight = weight
        self.ap_weight = 1 - weight if ap_weight is None else ap_weight
        self.positive_margin = positive_margin
        self.negative_margin = negative_margin
        self.surrogate = step_surrogate("paper", tau=tau, rho=rho, delta=delta, start=start, offset=offset)
        self.include_query = include_query
        self.form = form

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch."""
        scores = batch.scores()
        ap = _ap_loss(batch, scores, self.surrogate, include_query=self.include_query, form=self.form)
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


def _ap_loss(
    batch: Batch, scores: torch.Tensor, surrogate: Surrogate, *, include_query: bool, form: Form | None
) -> torch.Tensor:
    matches = batch.fine_matches(include_query=include_query)
    counts = level_counts(matches, 1)
    relevances = torch.zeros(counts.shape, dtype=torch.float64, device=counts.device)
    relevances[:, 1] = 1.0
    return ranking_loss(scores, matches, Objective.ap(counts, relevances), surrogate, form=form)


def _mean_of_violations(violations: torch.Tensor) -> torch.Tensor:
    return violations.sum() / (violations > 0).sum().clamp(min=1)
