"""The ranking losses in plain torch on any device, with the closed-form gradient of the compiled form.

Per query the items are in order of falling level, so that positives come first. Some positives of some
queries are ranked at a time, so that memory does not grow with the cube of the batch. All shapes are known
from the shapes of the input: nothing waits for the device, and ``torch.compile(fullgraph=True)`` traces it.
Comparisons are written as arithmetic (``clamp`` and ``sign`` of differences): selecting by masks costs
several times as much.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from happier.losses.objective import AP, NDCG, Objective
from happier.losses.surrogate import SigmoidSurrogate, StepSurrogate, Surrogate

# Elements of one chunk: what stays in a core's cache, or what fills an accelerator.
CHUNK_CPU = 1 << 18
CHUNK_ACCELERATOR = 1 << 24


class _Rows(NamedTuple):
    """Scores, levels and weights ``[C, N]`` of the items of some queries, positives in the first columns."""

    scores: torch.Tensor
    levels: torch.Tensor
    weights: torch.Tensor

    def part(self, first: int, last: int) -> _Rows:
        """Some of the columns."""
        return _Rows(self.scores[:, first:last], self.levels[:, first:last], self.weights[:, first:last])


class _Ranks(NamedTuple):
    """Ranks ``[C, K]`` of some positives, and the slopes by the scores of other items.

    Attributes:
        rank: smooth rank.
        graded: smooth hierarchical rank; None where the objective has no use for it.
        slopes: of the rank, ``[C, K, N]``.
        graded_slopes: of the hierarchical rank, ``[C, K, N]`` or, by the positives alone, ``[C, K, P]``.
    """

    rank: torch.Tensor
    graded: torch.Tensor | None
    slopes: torch.Tensor
    graded_slopes: torch.Tensor | None


@torch.no_grad()
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
    if not scores.numel():
        return objective.weights.new_zeros(queries), torch.zeros_like(scores) if need_gradient else None
    scores = scores.detach()
    # An item that is not retrieved comes so far behind that no surrogate sees it.
    behind = scores.min() - 1000 * max(1.0, surrogate.tau)
    order = torch.argsort(levels, dim=1, descending=True, stable=True)
    ordered = levels.gather(1, order)
    rows = _Rows(
        torch.where(ordered < 0, behind, scores.gather(1, order)),
        ordered.to(scores.dtype),
        objective.weights.to(scores.dtype).gather(1, ordered.clamp(min=0).long()),
    )
    share = 1 / objective.valid.sum().clamp(min=1).to(scores.dtype)
    positives = _most_positives(levels)
    size = _chunk_size(scores)
    together = max(1, size // (positives * items))  # queries
    width = max(1, size // (together * items))  # positives
    values, gradients = [], []
    for q in range(0, queries, together):
        some = _Rows(*(column[q : q + together] for column in rows))
        valid = objective.valid[q : q + together, None]
        value = objective.weights.new_zeros(some.scores.shape[0])
        gradient = torch.zeros_like(some.scores)
        for first in range(0, positives, width):
            last = min(first + width, positives)
            own = some.part(first, last)
            ranks = _rank(some, own, positives, first, surrogate, graded=objective.kind == AP)
            counts = (own.levels > 0) & valid
            gain, by_rank, by_graded = _objective(objective, q, ranks, own.weights)
            # NaN stays NaN, so that a model that diverged shows; what is no positive adds nothing.
            value = value + torch.where(counts, gain, 0.0).sum(1).to(value.dtype)
            if need_gradient:
                # The loss falls as the objective grows: hence the minus.
                factor = torch.where(counts, -share, 0.0)
                _add_gradient(gradient, ranks, by_rank * factor, by_graded * factor, first, last)
        values.append(value)
        gradients.append(gradient)
    if not need_gradient:
        return torch.cat(values), None
    return torch.cat(values), torch.zeros_like(scores).scatter(1, order, torch.cat(gradients))


def _most_positives(levels: torch.Tensor) -> int:
    """Columns that may hold a positive; looking at the data is free on the CPU, and only there."""
    if levels.device.type == "cpu" and not torch.compiler.is_compiling():
        return max(1, int((levels > 0).sum(1).max()))
    return levels.shape[1]


def _chunk_size(scores: torch.Tensor) -> int:
    small = scores.device.type == "cpu" and not torch.compiler.is_compiling()
    return CHUNK_CPU if small else CHUNK_ACCELERATOR


def _rank(
    rows: _Rows, own: _Rows, positives: int, first: int, surrogate: Surrogate, *, graded: bool
) -> _Ranks:
    """Ranks of the positives ``own``, which start at column ``first``."""
    if isinstance(surrogate, StepSurrogate):
        return _step_ranks(rows, own, rows.part(0, positives), surrogate, graded=graded)
    return _sigmoid_ranks(rows, own, first, surrogate, graded=graded)


def _step_ranks(rows: _Rows, own: _Rows, among: _Rows, p: StepSurrogate, *, graded: bool) -> _Ranks:
    score, level, weight = (column[:, :, None] for column in own)

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
    rank = 1 + down.mul_(lower).sum(2)
    # sigmoid' = sigmoid (1 - sigmoid) / tau is constant beyond delta, where the slope is rho.
    slopes = (sigmoid - sigmoid * sigmoid).div_(p.tau)
    slopes.add_(far, alpha=p.rho - at_delta * (1 - at_delta) / p.tau).mul_(lower)
    del lower, sigmoid, beyond, far

    # Positives among themselves, [C, K, P].
    t = among.scores[:, None, :] - score
    ahead = t.sign().clamp_(min=0)
    above = among.levels[:, None, :] - level
    real = among.levels.clamp(0, 1)[:, None, :]
    rank = rank + (above.add(1).clamp_(0, 1).mul_(ahead) * real).sum(2)
    if not graded:
        return _Ranks(rank, None, slopes, None)
    least = torch.minimum(among.weights[:, None, :], weight)
    if not p.hrank:
        return _Ranks(rank, own.weights + ahead.mul_(least).sum(2), slopes, None)
    higher = above.clamp_(0, 1)
    rise = (t * p.nu).add_(p.mu).clamp_(max=1.0)
    slope = (1 - rise).sign_().mul_(p.nu).sub_(p.gamma).mul_(ahead).add_(p.gamma)
    up = rise.mul_(ahead).add_(t.clamp_(max=0.0), alpha=p.gamma)
    counted = up.sub_(ahead).mul_(higher).add_(ahead)
    hrank = own.weights + counted.mul_(least).sum(2)
    return _Ranks(rank, hrank, slopes, slope.mul_(higher).mul_(least))


def _sigmoid_ranks(rows: _Rows, own: _Rows, first: int, p: SigmoidSurrogate, *, graded: bool) -> _Ranks:
    t = rows.scores[:, None, :] - own.scores[:, :, None]  # [C, K, N]
    sigmoid = t.div_(p.tau).sigmoid_()
    # No item is compared with itself: the diagonal that begins at column `first` is 0.
    sigmoid.diagonal(first, 1, 2).zero_()
    rank = 1 + sigmoid.sum(2)
    slopes = (sigmoid - sigmoid * sigmoid).div_(p.tau)
    if not graded:
        return _Ranks(rank, None, slopes, None)
    least = torch.minimum(rows.weights[:, None, :], own.weights[:, :, None])
    hrank = own.weights + sigmoid.mul_(least).sum(2)
    return _Ranks(rank, hrank, slopes, least.mul_(slopes))


def _add_gradient(
    gradient: torch.Tensor,
    ranks: _Ranks,
    by_rank: torch.Tensor,
    by_graded: torch.Tensor,
    first: int,
    last: int,
) -> None:
    """Add to the gradient ``[C, N]`` what the derivatives ``[C, K]`` of columns first..last give."""
    gradient += torch.bmm(by_rank[:, None, :], ranks.slopes).squeeze(1)
    own = by_rank * ranks.slopes.sum(2)
    if ranks.graded_slopes is not None:
        columns = ranks.graded_slopes.shape[2]
        gradient[:, :columns] += torch.bmm(by_graded[:, None, :], ranks.graded_slopes).squeeze(1)
        own = own + by_graded * ranks.graded_slopes.sum(2)
    gradient[:, first:last] -= own


def _objective(
    objective: Objective, q: int, ranks: _Ranks, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What each positive ``[C, K]`` adds to the objective; its derivatives by rank and hierarchical rank.

    The queries are those from ``q`` on.
    """
    rank, graded = ranks.rank, ranks.graded
    if objective.kind == AP:
        assert graded is not None
        return graded / rank, -graded / rank.square(), 1 / rank
    if objective.kind == NDCG:
        bits = torch.log2(1 + rank)
        by_rank = -weight / (bits.square() * (1 + rank) * math.log(2.0))
        return weight / bits, by_rank, torch.zeros_like(rank)
    cut_weights = objective.cut_weights[q : q + rank.shape[0], None].to(rank.dtype)  # [C, 1, cuts]
    inside = torch.sigmoid((objective.cuts.to(rank.dtype) - rank[:, :, None]) / objective.temperature)
    slope = (cut_weights * inside * (1 - inside)).sum(2) / objective.temperature
    return (cut_weights * inside).sum(2), -slope, torch.zeros_like(rank)
