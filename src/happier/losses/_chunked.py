"""The ranking losses in plain torch on any device, with the closed-form gradient of the compiled form.

One row per (query, positive) pair, a chunk of rows at a time, so that memory does not grow with the cube of
the batch.
"""

from __future__ import annotations

import math

import torch

from happier.losses.objective import AP, NDCG, Objective
from happier.losses.surrogate import StepSurrogate, Surrogate

# Elements of one chunk: what stays in a core's cache, or what fills an accelerator.
CHUNK_CPU = 1 << 16
CHUNK_ACCELERATOR = 1 << 24


def ranking_chunked(
    scores: torch.Tensor,
    levels: torch.Tensor,
    objective: Objective,
    surrogate: Surrogate,
    *,
    need_gradient: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Objective of each query ``[Q]``, and the gradient ``[Q, N]`` by the scores of 1 minus its mean."""
    queries, items = scores.shape
    dtype = scores.dtype
    # An item that is not retrieved comes after all others.
    scores = scores.detach().masked_fill(levels < 0, -math.inf)
    weights = objective.weights.to(dtype)
    item_weights = weights.gather(1, levels.clamp(min=0).long())  # [Q, N]
    share = 1.0 / max(int(objective.valid.sum()), 1)
    values = torch.zeros(queries, dtype=torch.float64, device=scores.device)
    gradient = torch.zeros_like(scores) if need_gradient else None
    query, positive = ((levels > 0) & objective.valid[:, None]).nonzero(as_tuple=True)  # [pairs] each
    chunk = max(1, (CHUNK_CPU if scores.device.type == "cpu" else CHUNK_ACCELERATOR) // items)
    for q, k in zip(torch.split(query, chunk), torch.split(positive, chunk), strict=True):
        t = scores[q] - scores[q, k][:, None]  # [pairs, N]
        level = levels[q]
        own_level = levels[q, k][:, None]
        own_weight = item_weights[q, k]
        least = torch.minimum(item_weights[q], own_weight[:, None]) if objective.kind == AP else None
        pairs: _StepPairs | _SigmoidPairs
        if isinstance(surrogate, StepSurrogate):
            pairs = _StepPairs(t, level, own_level, least, surrogate)
        else:
            pairs = _SigmoidPairs(t, k, least, surrogate)
        graded = own_weight + pairs.graded if pairs.graded is not None else None
        gain, by_rank, by_graded = _objective(objective, q, 1 + pairs.rank, graded, own_weight)
        values.index_add_(0, q, gain.to(torch.float64))
        if gradient is not None:
            # The loss falls as the objective grows: hence the minus.
            slopes = pairs.slopes(by_rank, by_graded).mul_(-share)
            gradient.index_add_(0, q, slopes)
            gradient.index_put_((q, k), -slopes.sum(1), accumulate=True)
    return values, gradient


class _StepPairs:
    """Ranks of some positives with `StepSurrogate`; ``t`` is ``[pairs, N]``."""

    def __init__(
        self,
        t: torch.Tensor,
        level: torch.Tensor,
        own_level: torch.Tensor,
        least: torch.Tensor | None,
        surrogate: StepSurrogate,
    ) -> None:
        self.t, self.least, self.surrogate = t, least, surrogate
        self.lower = level < own_level
        self.ahead = t > 0
        self.sigmoid = torch.sigmoid(t / surrogate.tau)
        down = torch.add(self.sigmoid, self.ahead, alpha=surrogate.start)
        line = (t - surrogate.delta).mul_(surrogate.rho).add_(surrogate.line_offset)
        down = torch.where(t > surrogate.delta, line, down)
        counted = self.ahead.to(t.dtype)
        self.rank = torch.where(self.lower, down, counted).sum(1)
        self.higher: torch.Tensor | None = None
        self.graded: torch.Tensor | None = None
        if least is not None:
            if surrogate.hrank:
                self.higher = level > own_level
                rise = torch.add(t * surrogate.nu, surrogate.mu)
                up = torch.where(self.ahead, rise.clamp(max=1.0), t * surrogate.gamma)
                counted = torch.where(self.higher, up, counted)
            self.graded = counted.mul_(least).sum(1)

    def slopes(self, by_rank: torch.Tensor, by_graded: torch.Tensor | None) -> torch.Tensor:
        p = self.surrogate
        bent = (1 - self.sigmoid).mul_(self.sigmoid).div_(p.tau)
        down = bent.masked_fill_(self.t > p.delta, p.rho).mul_(self.lower)
        slopes = down.mul_(by_rank[:, None])
        if self.higher is not None and self.least is not None and by_graded is not None:
            rising = (self.t * p.nu).add_(p.mu) < 1
            up = torch.where(self.ahead, rising.to(slopes.dtype).mul_(p.nu), p.gamma)
            slopes.addcmul_(up.mul_(self.least).mul_(self.higher), by_graded[:, None])
        return slopes


class _SigmoidPairs:
    """Ranks of some positives with `SigmoidSurrogate`; ``t`` is ``[pairs, N]``."""

    def __init__(
        self, t: torch.Tensor, k: torch.Tensor, least: torch.Tensor | None, surrogate: Surrogate
    ) -> None:
        self.least, self.tau = least, surrogate.tau
        self.sigmoid = torch.sigmoid(t / surrogate.tau)
        # No item is compared with itself.
        self.sigmoid.scatter_(1, k[:, None], 0.0)
        self.rank = self.sigmoid.sum(1)
        self.graded = (self.sigmoid * least).sum(1) if least is not None else None

    def slopes(self, by_rank: torch.Tensor, by_graded: torch.Tensor | None) -> torch.Tensor:
        slopes = (1 - self.sigmoid).mul_(self.sigmoid).div_(self.tau)
        if self.least is None or by_graded is None:
            return slopes.mul_(by_rank[:, None])
        return slopes.mul_(torch.addcmul(by_rank[:, None], self.least, by_graded[:, None]))


def _objective(
    objective: Objective,
    q: torch.Tensor,
    rank: torch.Tensor,
    graded: torch.Tensor | None,
    weight: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """What each positive adds to the objective, and its derivatives by rank and hierarchical rank."""
    if objective.kind == AP:
        assert graded is not None
        return graded / rank, -graded / rank.square(), 1 / rank
    if objective.kind == NDCG:
        bits = torch.log2(1 + rank)
        return weight / bits, -weight / (bits.square() * (1 + rank) * math.log(2.0)), None
    cut_weights = objective.cut_weights[q].to(rank.dtype)  # [pairs, C]
    inside = torch.sigmoid((objective.cuts.to(rank.dtype) - rank[:, None]) / objective.temperature)
    slope = (cut_weights * inside * (1 - inside)).sum(1) / objective.temperature
    return (cut_weights * inside).sum(1), -slope, None
