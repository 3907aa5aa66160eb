"""The ranking losses in plain torch on any device, with the closed-form gradient of the compiled form.

A few positives of a few queries at a time, so that memory does not grow with the cube of the batch.
Comparisons are written as arithmetic (``clamp`` and ``sign`` of differences): selecting by masks costs
several times as much.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from happier.losses.objective import AP, NDCG, Objective
from happier.losses.surrogate import SigmoidSurrogate, StepSurrogate, Surrogate

# Elements of one chunk: what stays in a core's cache, or what fills an accelerator.
CHUNK_CPU = 1 << 18
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
    scores = scores.detach()
    values = torch.zeros(scores.shape[0], dtype=torch.float64, device=scores.device)
    gradient = torch.zeros_like(scores) if need_gradient else None
    if not scores.numel():
        return values, gradient
    # An item that is not retrieved comes so far behind that no surrogate sees it.
    behind = float(scores.min()) - 1000 * max(1.0, surrogate.tau)
    scores = scores.masked_fill(levels < 0, behind)
    weights = objective.weights.to(scores.dtype).gather(1, levels.clamp(min=0).long())  # [Q, N]
    share = 1.0 / max(int(objective.valid.sum()), 1)
    for q, places, real in _chunks(levels, objective.valid):
        rows = _Rows(scores[q], levels[q].to(scores.dtype), weights[q], places, real)
        size = max(1, _chunk_size(scores) // (rows.scores.shape[0] * rows.scores.shape[1]))
        for first in range(0, places.shape[1], size):
            part = slice(first, first + size)
            ranks: _StepRanks | _SigmoidRanks
            if isinstance(surrogate, StepSurrogate):
                ranks = _StepRanks(rows, part, surrogate, graded=objective.kind == AP)
            else:
                ranks = _SigmoidRanks(rows, part, surrogate, graded=objective.kind == AP)
            gain, by_rank, by_graded = _objective(objective, q, ranks.rank, ranks.graded, rows.own(part))
            real_part = rows.real[:, part]
            values[q] += (gain * real_part).sum(1).to(torch.float64)
            if gradient is not None:
                # The loss falls as the objective grows: hence the minus.
                factor = real_part.to(scores.dtype) * -share
                gradient[q] += ranks.gradient(by_rank * factor, by_graded * factor)
    return values, gradient


def _chunk_size(scores: torch.Tensor) -> int:
    return CHUNK_CPU if scores.device.type == "cpu" else CHUNK_ACCELERATOR


def _chunks(
    levels: torch.Tensor, valid: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Queries ``[C]``, the places ``[C, P]`` of their positives, and which of these are real, not padding.

    Queries with equally many positives stand together, so that there is little padding.
    """
    positive = (levels > 0) & valid[:, None]
    counts = positive.sum(1)
    order = torch.argsort(counts, descending=True, stable=True)
    sizes = counts[order].tolist()
    row, place = positive.nonzero(as_tuple=True)
    nth = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    table = torch.zeros(levels.shape[0], max(1, sizes[0]), dtype=torch.int64, device=levels.device)
    table[row, nth] = place
    limit = CHUNK_CPU if levels.device.type == "cpu" else CHUNK_ACCELERATOR
    first = 0
    while first < len(sizes) and sizes[first] > 0:
        most = sizes[first]
        last = first + max(1, limit // (most * levels.shape[1]))
        q = order[first:last]
        q = q[counts[q] > 0]
        yield q, table[q, :most], torch.arange(most, device=q.device) < counts[q][:, None]
        first = last


class _Rows:
    """Some queries: scores, levels, weights ``[C, N]`` of their items and ``[C, P]`` of their positives."""

    def __init__(
        self,
        scores: torch.Tensor,
        levels: torch.Tensor,
        weights: torch.Tensor,
        places: torch.Tensor,
        real: torch.Tensor,
    ) -> None:
        self.scores, self.levels, self.weights, self.places, self.real = scores, levels, weights, places, real
        self.positive_scores = scores.gather(1, places)
        # Padding is of level 0: it is no positive.
        self.positive_levels = levels.gather(1, places) * real
        self.positive_weights = weights.gather(1, places) * real

    def own(self, part: slice) -> torch.Tensor:
        """Weights ``[C, K]`` of some positives."""
        return self.positive_weights[:, part]


class _StepRanks:
    """rank and hrank ``[C, K]`` of some positives with `StepSurrogate`."""

    def __init__(self, rows: _Rows, part: slice, p: StepSurrogate, *, graded: bool) -> None:
        self.rows, self.part = rows, part
        score = rows.positive_scores[:, part, None]
        level = rows.positive_levels[:, part, None]
        weight = rows.positive_weights[:, part, None]

        # Items of lower levels, [C, K, N].
        t = rows.scores[:, None, :] - score
        lower = (level - rows.levels[:, None, :]).clamp_(0, 1)
        near = t.clamp(max=p.delta)
        beyond = t - near  # t - delta where t > delta, else 0
        sigmoid = near.div_(p.tau).sigmoid_()
        down = t.sign_().clamp_(min=0).mul_(p.start).add_(sigmoid).add_(beyond, alpha=p.rho)
        at_delta = 1 / (1 + math.exp(-min(p.delta / p.tau, 700.0)))
        far = beyond.sign_()
        if gap := p.line_offset - at_delta - p.start:
            down.add_(far, alpha=gap)
        self.rank = 1 + down.mul_(lower).sum(2)
        # sigmoid' = sigmoid (1 - sigmoid) / tau stands still beyond delta, where the slope is rho.
        slopes = torch.addcmul(sigmoid, sigmoid, sigmoid, value=-1, out=down).div_(p.tau)
        self.slopes = slopes.add_(far, alpha=p.rho - at_delta * (1 - at_delta) / p.tau).mul_(lower)
        del lower, sigmoid, beyond, far

        # Positives among themselves, [C, K, P].
        t = rows.positive_scores[:, None, :] - score
        ahead = t.sign().clamp_(min=0)
        above = rows.positive_levels[:, None, :] - level
        self.rank = self.rank + (above.add(1).clamp_(0, 1).mul_(ahead) * rows.real[:, None, :]).sum(2)
        self.graded: torch.Tensor | None = None
        self.graded_slopes: torch.Tensor | None = None
        if not graded:
            return
        least = torch.minimum(rows.positive_weights[:, None, :], weight)
        if not p.hrank:
            self.graded = weight.squeeze(2) + ahead.mul_(least).sum(2)
            return
        higher = above.clamp_(0, 1)
        rise = (t * p.nu).add_(p.mu).clamp_(max=1.0)
        slope = (1 - rise).sign_().mul_(p.nu).sub_(p.gamma).mul_(ahead).add_(p.gamma)
        up = rise.mul_(ahead).add_(t.clamp_(max=0.0), alpha=p.gamma)
        counted = up.sub_(ahead).mul_(higher).add_(ahead)
        self.graded = weight.squeeze(2) + counted.mul_(least).sum(2)
        self.graded_slopes = slope.mul_(higher).mul_(least)

    def gradient(self, by_rank: torch.Tensor, by_graded: torch.Tensor) -> torch.Tensor:
        """Gradient ``[C, N]`` from the derivatives ``[C, K]``."""
        rows = self.rows
        result = torch.bmm(by_rank[:, None, :], self.slopes).squeeze(1)
        own = by_rank * self.slopes.sum(2)
        if self.graded_slopes is not None:
            result.scatter_add_(
                1, rows.places, torch.bmm(by_graded[:, None, :], self.graded_slopes).squeeze(1)
            )
            own = own + by_graded * self.graded_slopes.sum(2)
        return result.scatter_add_(1, rows.places[:, self.part], -own)


class _SigmoidRanks:
    """rank and hrank ``[C, K]`` of some positives with `SigmoidSurrogate`."""

    def __init__(self, rows: _Rows, part: slice, p: SigmoidSurrogate, *, graded: bool) -> None:
        self.rows, self.part = rows, part
        weight = rows.positive_weights[:, part, None]
        t = rows.scores[:, None, :] - rows.positive_scores[:, part, None]  # [C, K, N]
        sigmoid = t.div_(p.tau).sigmoid_()
        # No item is compared with itself.
        sigmoid.scatter_(2, rows.places[:, part, None], 0.0)
        self.rank = 1 + sigmoid.sum(2)
        self.slopes = torch.addcmul(sigmoid, sigmoid, sigmoid, value=-1).div_(p.tau)
        self.graded: torch.Tensor | None = None
        self.graded_slopes: torch.Tensor | None = None
        if graded:
            least = torch.minimum(rows.weights[:, None, :], weight)
            self.graded = weight.squeeze(2) + sigmoid.mul_(least).sum(2)
            self.graded_slopes = least.mul_(self.slopes)

    def gradient(self, by_rank: torch.Tensor, by_graded: torch.Tensor) -> torch.Tensor:
        """Gradient ``[C, N]`` from the derivatives ``[C, K]``."""
        result = torch.bmm(by_rank[:, None, :], self.slopes).squeeze(1)
        own = by_rank * self.slopes.sum(2)
        if self.graded_slopes is not None:
            result += torch.bmm(by_graded[:, None, :], self.graded_slopes).squeeze(1)
            own = own + by_graded * self.graded_slopes.sum(2)
        return result.scatter_add_(1, self.rows.places[:, self.part], -own)


def _objective(
    objective: Objective,
    q: torch.Tensor,
    rank: torch.Tensor,
    graded: torch.Tensor | None,
    weight: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What each positive ``[C, K]`` adds to the objective; its derivatives by rank and hierarchical rank."""
    if objective.kind == AP:
        assert graded is not None
        return graded / rank, -graded / rank.square(), 1 / rank
    if objective.kind == NDCG:
        bits = torch.log2(1 + rank)
        by_rank = -weight / (bits.square() * (1 + rank) * math.log(2.0))
        return weight / bits, by_rank, torch.zeros_like(rank)
    cut_weights = objective.cut_weights[q].to(rank.dtype)[:, None, :]  # [C, 1, cuts]
    inside = torch.sigmoid((objective.cuts.to(rank.dtype) - rank[:, :, None]) / objective.temperature)
    slope = (cut_weights * inside * (1 - inside)).sum(2) / objective.temperature
    return (cut_weights * inside).sum(2), -slope, torch.zeros_like(rank)
