# ruff: noqa: ANN001, ANN202, N803
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
"""The ranking losses on a GPU: value and closed-form gradient of each query by two Triton kernels.

Per query the items are in order of falling level, so that positives come first. `_rank_kernel` takes a
block of positives ``k`` of one query and passes over all items ``j`` once: it sums rank, hierarchical rank
and their slopes by the score of ``k``, and stores what ``k`` adds to the objective and the derivatives by
both ranks. `_gradient_kernel` takes a block of items ``j`` and passes over the positives: it sums the slopes
by the score of ``j``, weighted with those derivatives. Memory is a few numbers for each pair of query and
item; nothing waits for the device, and there are no atomic additions, so that results repeat bit by bit.

Triton runs the same functions without a GPU when ``TRITON_INTERPRET=1`` is set in the environment. Its
functions have no annotations but ``constexpr``: it would read others as values.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from happier.losses.objective import Objective
from happier.losses.surrogate import StepSurrogate, Surrogate, surrogate_numbers

# Positives and items that one program holds at a time.
BLOCK_POSITIVES = 16
BLOCK_ITEMS = 128
WARPS = 4

AP = tl.constexpr(0)
NDCG = tl.constexpr(1)


def ranking_triton(
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
    order = torch.argsort(levels, dim=1, descending=True, stable=True)
    ordered = levels.gather(1, order)
    s = scores.detach().float().gather(1, order)
    weights = objective.weights.float().gather(1, ordered.clamp(min=0).long())
    ordered = ordered.to(torch.int32)
    counts = torch.where(objective.valid, (levels > 0).sum(1), 0).to(torch.int32)  # [Q] positives
    gain, by_rank, by_graded, own = (torch.zeros_like(s) for _ in range(4))
    step = isinstance(surrogate, StepSurrogate)
    options: dict[str, Any] = {
        "KIND": objective.kind,
        "STEP": step,
        "HRANK": isinstance(surrogate, StepSurrogate) and surrogate.hrank,
        "CUTS": objective.cuts.shape[0],
        "BLOCK_K": BLOCK_POSITIVES,
        "BLOCK_J": BLOCK_ITEMS,
        "num_warps": WARPS,
    }
    tau, *others = surrogate_numbers(surrogate)
    numbers = (1 / tau, *others)
    cuts = objective.cuts.float()
    cut_weights = objective.cut_weights.float().contiguous()
    blocks = (queries, triton.cdiv(items, BLOCK_POSITIVES))
    _rank_kernel[blocks](
        s, ordered, weights, counts, cuts, cut_weights, gain, by_rank, by_graded, own, items,
        1 / objective.temperature, *numbers, **options,
    )  # fmt: skip
    values = gain.to(objective.weights.dtype).sum(1)
    if not need_gradient:
        return values, None
    gradient = torch.empty_like(s)
    del options["CUTS"]
    blocks = (queries, triton.cdiv(items, BLOCK_ITEMS))
    _gradient_kernel[blocks](
        s, ordered, weights, counts, by_rank, by_graded, own, gradient, items, *numbers, **options
    )
    # The loss falls as the objective grows: hence the minus.
    gradient = gradient * (-1 / objective.valid.sum().clamp(min=1).float())
    return values, torch.zeros_like(gradient).scatter(1, order, gradient).to(scores.dtype)


@triton.jit
def _sigmoid(x):
    # exp of a number that is never positive: nothing overflows.
    small = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, small) / (1.0 + small)


@triton.jit
def _down(t, sharpness, rho, delta, start, offset):
    """H_down and its slope."""
    sigmoid = _sigmoid(t * sharpness)
    far = t > delta
    value = tl.where(far, rho * (t - delta) + offset, sigmoid + tl.where(t > 0, start, 0.0))
    slope = tl.where(far, rho, sigmoid * (1 - sigmoid) * sharpness)
    return value, slope


@triton.jit
def _up(t, gamma, nu, mu):
    """H_up and its slope."""
    rise = nu * t + mu
    value = tl.where(t > 0, tl.minimum(rise, 1.0), gamma * t)
    slope = tl.where(t > 0, tl.where(rise < 1.0, nu, 0.0), gamma)
    return value, slope


@triton.jit
def _pair(
    t, level_j, level_k, least, seen, sharpness, rho, delta, start,
    offset, gamma, nu, mu, KIND: tl.constexpr, STEP: tl.constexpr, HRANK: tl.constexpr,
):  # fmt: skip
    """What item j adds to rank and hierarchical rank of positive k, and the slopes by its score."""
    if STEP:
        lower = seen & (level_j < level_k)
        down, down_slope = _down(t, sharpness, rho, delta, start, offset)
        ahead = tl.where(t > 0, 1.0, 0.0)
        rank = tl.where(lower, down, tl.where(seen, ahead, 0.0))
        slope = tl.where(lower, down_slope, 0.0)
        graded = tl.where(seen, ahead * least, 0.0)
        graded_slope = tl.zeros_like(slope)
        if KIND == AP and HRANK:
            higher = seen & (level_j > level_k)
            up, up_slope = _up(t, gamma, nu, mu)
            graded = tl.where(higher, up * least, graded)
            graded_slope = tl.where(higher, up_slope * least, 0.0)
    else:
        sigmoid = _sigmoid(t * sharpness)
        rank = tl.where(seen, sigmoid, 0.0)
        slope = tl.where(seen, sigmoid * (1 - sigmoid) * sharpness, 0.0)
        graded = rank * least
        graded_slope = slope * least
    return rank, graded, slope, graded_slope


@triton.jit
def _rank_kernel(
    scores, levels, weights, counts, cuts, cut_weights, gain, by_rank, by_graded, own, items, coldness,
    sharpness, rho, delta, start, offset, gamma, nu, mu,
    KIND: tl.constexpr, STEP: tl.constexpr, HRANK: tl.constexpr, CUTS: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_J: tl.constexpr,
):  # fmt: skip
    """What each positive of a block adds to the objective, and its derivatives."""
    query = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * BLOCK_K
    positives = tl.load(counts + query)
    if first < positives:
        row = query * items
        k = first + tl.arange(0, BLOCK_K)
        real = k < positives
        score = tl.load(scores + row + k, mask=real, other=0.0)
        level = tl.load(levels + row + k, mask=real, other=0)
        weight = tl.load(weights + row + k, mask=real, other=0.0)
        rank = tl.full((BLOCK_K,), 1.0, tl.float32)
        graded = weight
        slope = tl.zeros((BLOCK_K,), tl.float32)
        graded_slope = tl.zeros((BLOCK_K,), tl.float32)
        for begin in range(0, items, BLOCK_J):
            j = begin + tl.arange(0, BLOCK_J)
            there = j < items
            level_j = tl.load(levels + row + j, mask=there, other=-1)
            t = tl.load(scores + row + j, mask=there, other=0.0)[None, :] - score[:, None]
            least = tl.minimum(tl.load(weights + row + j, mask=there, other=0.0)[None, :], weight[:, None])
            seen = (level_j >= 0)[None, :] & (j[None, :] != k[:, None])
            pair_rank, pair_graded, pair_slope, pair_graded_slope = _pair(
                t, level_j[None, :], level[:, None], least, seen, sharpness, rho, delta, start, offset, gamma,
                nu, mu, KIND, STEP, HRANK,
            )  # fmt: skip
            rank += tl.sum(pair_rank, 1)
            slope += tl.sum(pair_slope, 1)
            if KIND == AP:
                graded += tl.sum(pair_graded, 1)
                graded_slope += tl.sum(pair_graded_slope, 1)
        if KIND == AP:
            value = graded / rank
            d_rank = -graded / (rank * rank)
            d_graded = 1 / rank
        elif KIND == NDCG:
            bits = tl.log2(1 + rank)
            value = weight / bits
            d_rank = -weight / (bits * bits * (1 + rank) * 0.6931471805599453)
            d_graded = tl.zeros_like(rank)
        else:
            value = tl.zeros_like(rank)
            d_rank = tl.zeros_like(rank)
            d_graded = tl.zeros_like(rank)
            for c in range(CUTS):
                share = tl.load(cut_weights + query * CUTS + c)
                inside = _sigmoid((tl.load(cuts + c) - rank) * coldness)
                value += share * inside
                d_rank -= share * inside * (1 - inside) * coldness
        tl.store(gain + row + k, value, mask=real)
        tl.store(by_rank + row + k, d_rank, mask=real)
        tl.store(by_graded + row + k, d_graded, mask=real)
        tl.store(own + row + k, d_rank * slope + d_graded * graded_slope, mask=real)


@triton.jit
def _gradient_kernel(
    scores, levels, weights, counts, by_rank, by_graded, own, gradient, items,
    sharpness, rho, delta, start, offset, gamma, nu, mu,
    KIND: tl.constexpr, STEP: tl.constexpr, HRANK: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_J: tl.constexpr,
):  # fmt: skip
    """Gradient of the objective by the scores of a block of items."""
    query = tl.program_id(0).to(tl.int64)
    row = query * items
    j = tl.program_id(1) * BLOCK_J + tl.arange(0, BLOCK_J)
    there = j < items
    positives = tl.load(counts + query)
    score_j = tl.load(scores + row + j, mask=there, other=0.0)
    level_j = tl.load(levels + row + j, mask=there, other=-1)
    weight_j = tl.load(weights + row + j, mask=there, other=0.0)
    total = -tl.load(own + row + j, mask=there, other=0.0)
    for first in range(0, positives, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        real = k < positives
        t = score_j[None, :] - tl.load(scores + row + k, mask=real, other=0.0)[:, None]
        level = tl.load(levels + row + k, mask=real, other=0)
        weight = tl.load(weights + row + k, mask=real, other=0.0)
        least = tl.minimum(weight_j[None, :], weight[:, None])
        seen = (level_j >= 0)[None, :] & (j[None, :] != k[:, None]) & real[:, None]
        _, _, slope, graded_slope = _pair(
            t, level_j[None, :], level[:, None], least, seen, sharpness, rho, delta, start, offset, gamma, nu,
            mu, KIND, STEP, HRANK,
        )  # fmt: skip
        d_rank = tl.load(by_rank + row + k, mask=real, other=0.0)
        total += tl.sum(d_rank[:, None] * slope, 0)
        if KIND == AP:
            d_graded = tl.load(by_graded + row + k, mask=real, other=0.0)
            total += tl.sum(d_graded[:, None] * graded_slope, 0)
    tl.store(gradient + row + j, total, mask=there)
