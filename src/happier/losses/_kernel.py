# ruff: noqa: ANN001, ANN202
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""The ranking losses on the CPU: value and closed-form gradient of each query in one compiled pass.

Per query the items are put in order of level, so that "lower level" is a prefix. For each positive ``k`` one loop
over that prefix sums the surrogate and keeps its slope; once the rank is known, a second loop adds the slopes,
weighted, to the gradient. ``sigmoid((s_j - s_k) / tau) = 1 / (1 + e_j / e_k)`` with ``e_j = exp(-s_j / tau)``, so a query of
n items takes n exponentials, not n^2.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from numba import njit, prange

from happier.losses.objective import AP, NDCG, Objective
from happier.losses.surrogate import StepSurrogate, Surrogate

# Sums may be reordered (that is what makes them vector code); infinities must keep their meaning.
FAST = {"reassoc", "nsz", "contract", "arcp"}

# Largest exponent for which e_j and 1 / e_j are finite, by type; beyond it, the next type or no factoring.
LIMIT_FLOAT32 = 80.0
LIMIT_FLOAT64 = 650.0

TAU, RHO, DELTA, START, OFFSET, GAMMA, NU, MU, ZERO, ONE, LARGE = range(11)


def ranking_kernel(
    scores: torch.Tensor,
    levels: torch.Tensor,
    objective: Objective,
    surrogate: Surrogate,
    *,
    need_gradient: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Objective of each query ``[Q]``, and the gradient ``[Q, N]`` by the scores of 1 minus its mean."""
    s = scores.detach().contiguous().numpy()
    values = np.zeros(s.shape[0])
    gradient = torch.zeros(scores.shape, dtype=scores.dtype) if need_gradient else None
    g = gradient.numpy() if gradient is not None else np.empty((s.shape[0], 0), dtype=s.dtype)
    arguments = (
        s,
        levels.contiguous().numpy(),
        objective.weights.contiguous().numpy(),
        objective.valid.numpy(),
        objective.kind,
        objective.cuts.numpy(),
        objective.cut_weights.contiguous().numpy(),
        objective.temperature,
        _parameters(surrogate),
        not isinstance(surrogate, StepSurrogate),
        isinstance(surrogate, StepSurrogate) and surrogate.hrank,
        1.0 / max(int(objective.valid.sum()), 1),
        need_gradient,
        g,
        values,
    )
    threads = min(torch.get_num_threads(), int(numba.config.NUMBA_NUM_THREADS))
    if threads == 1:
        _all_queries(*arguments)
    else:
        before = numba.get_num_threads()
        numba.set_num_threads(threads)
        try:
            _all_queries_threaded(*arguments)
        finally:
            numba.set_num_threads(before)
    return torch.from_numpy(values), gradient


def _parameters(surrogate: Surrogate) -> np.ndarray[Any, np.dtype[np.float64]]:
    if isinstance(surrogate, StepSurrogate):
        p = surrogate
        own = (p.tau, p.rho, p.delta, p.start, p.line_offset, p.gamma, p.nu, p.mu)
    else:
        own = (surrogate.tau, *(0.0,) * 7)
    return np.array([*own, 0.0, 1.0, 1e30])


@njit(cache=True, nogil=True)
def _all_queries(
    scores, levels, weights, valid, kind, cuts, cut_weights, temperature, p, smooth, hrank, share, need_gradient, g,
    values,
):  # fmt: skip
    for q in range(scores.shape[0]):
        if valid[q]:
            values[q] = _one_query(
                scores[q], levels[q], weights[q], kind, cuts, cut_weights[q], temperature, p, smooth, hrank, share,
                need_gradient, g[q],
            )  # fmt: skip


@njit(cache=True, nogil=True, parallel=True)
def _all_queries_threaded(
    scores, levels, weights, valid, kind, cuts, cut_weights, temperature, p, smooth, hrank, share, need_gradient, g,
    values,
):  # fmt: skip
    for q in prange(scores.shape[0]):
        if valid[q]:
            values[q] = _one_query(
                scores[q], levels[q], weights[q], kind, cuts, cut_weights[q], temperature, p, smooth, hrank, share,
                need_gradient, g[q],
            )  # fmt: skip


@njit(cache=True, nogil=True)
def _one_query(
    scores, levels, weights, kind, cuts, cut_weights, temperature, parameters, smooth, hrank, share, need_gradient,
    gradient,
):  # fmt: skip
    depth = weights.shape[0] - 1
    starts = np.zeros(depth + 2, np.int64)
    for level in levels:
        if level >= 0:
            starts[level + 1] += 1
    for level in range(depth + 1):
        starts[level + 1] += starts[level]
    items = starts[depth + 1]
    if starts[1] == items:
        return 0.0
    order = np.empty(items, np.int64)
    fill = starts.copy()
    low, high = np.inf, -np.inf
    for j in range(levels.shape[0]):
        if levels[j] >= 0:
            order[fill[levels[j]]] = j
            fill[levels[j]] += 1
            low, high = min(low, scores[j]), max(high, scores[j])
    centre = 0.5 * (low + high)
    spread = 0.5 * (high - low) / parameters[TAU]

    s = scores[order]
    if scores.itemsize == 8 or spread <= LIMIT_FLOAT32:
        e = np.empty_like(s)
        p = parameters.astype(s.dtype)
        factored = spread <= LIMIT_FLOAT64
        if factored:
            for j in range(items):
                e[j] = np.exp((centre - s[j]) / parameters[TAU])
        g = np.zeros_like(s)
        value = _ranked(
            s, e, factored, starts, weights, kind, cuts, cut_weights, temperature, p, smooth, hrank, share,
            need_gradient, g,
        )  # fmt: skip
        if need_gradient:
            for j in range(items):
                gradient[order[j]] = g[j]
        return value

    # Scores spread too wide for float32 exponentials: this query goes through float64.
    wide = s.astype(np.float64)
    e_wide = np.empty_like(wide)
    factored = spread <= LIMIT_FLOAT64
    if factored:
        for j in range(items):
            e_wide[j] = np.exp((centre - wide[j]) / parameters[TAU])
    g_wide = np.zeros_like(wide)
    value = _ranked(
        wide, e_wide, factored, starts, weights, kind, cuts, cut_weights, temperature, parameters, smooth, hrank,
        share, need_gradient, g_wide,
    )  # fmt: skip
    if need_gradient:
        for j in range(items):
            gradient[order[j]] = g_wide[j]
    return value


@njit(cache=True, nogil=True)
def _ranked(
    s,
    e,
    factored,
    starts,
    weights,
    kind,
    cuts,
    cut_weights,
    temperature,
    p,
    smooth,
    hrank,
    share,
    need_gradient,
    g,
):
    """Sum of the objective over the positives of one query; its gradient goes to ``g``."""
    depth = weights.shape[0] - 1
    items = starts[depth + 1]
    slopes = np.empty_like(s)
    x = np.empty_like(s)
    above = np.zeros(depth + 1, np.float64)  # surrogate (or count) of each level
    slope_of = np.zeros(depth + 1, np.float64)
    value = 0.0
    for a in range(1, depth + 1):
        weight = weights[a]
        first = 0 if smooth else starts[a]
        end = items if smooth else first  # the items whose sigmoid is needed
        for k in range(starts[a], starts[a + 1]):
            score = s[k]
            if factored:
                inverse = p[ONE] / e[k]
            else:
                inverse = p[ZERO]
                _exponentials(s[:end], score, p, x[:end])

            rank = 1.0
            graded = weight
            below_slope = 0.0
            if smooth:
                for level in range(depth + 1):
                    lo, hi = starts[level], starts[level + 1]
                    total, slope = _sigmoid(e[lo:hi], x[lo:hi], factored, inverse, p, slopes[lo:hi])
                    if level == a:
                        # Itself: a score equal to its own, which no item is compared with.
                        own = p[ONE] / (p[ONE] + e[k] * inverse) if factored else 0.5
                        total -= own
                    above[level], slope_of[level] = total, slope
                    rank += total
                    graded += min(weights[level], weight) * total
            else:
                total, slope = _below(s[:end], e[:end], x[:end], factored, score, inverse, p, slopes[:end])
                rank += total
                below_slope = slope
                for level in range(a, depth + 1):
                    lo, hi = starts[level], starts[level + 1]
                    count = _count(s[lo:hi], score, p)
                    rank += count
                    if kind == AP:
                        least = min(weights[level], weight)
                        if level == a or not hrank:
                            graded += least * count
                        else:
                            total, slope = _above(s[lo:hi], score, p, slopes[lo:hi])
                            graded += least * total
                            slope_of[level] = slope
                if kind == AP:
                    for level in range(1, a):
                        lo, hi = starts[level], starts[level + 1]
                        graded += min(weights[level], weight) * _count(s[lo:hi], score, p)

            gain, by_rank, by_graded = _objective(kind, rank, graded, weight, cuts, cut_weights, temperature)
            value += gain
            if not need_gradient:
                continue

            # The loss falls as the objective grows: hence the minus.
            if smooth:
                for level in range(depth + 1):
                    lo, hi = starts[level], starts[level + 1]
                    factor = -share * (by_rank + by_graded * min(weights[level], weight))
                    _add(g[lo:hi], slopes[lo:hi], factor * p[ONE])
                    g[k] -= factor * slope_of[level]
            else:
                factor = -share * by_rank
                _add(g[:end], slopes[:end], factor)
                g[k] -= factor * below_slope
                if kind == AP and hrank:
                    for level in range(a + 1, depth + 1):
                        lo, hi = starts[level], starts[level + 1]
                        factor = -share * by_graded * min(weights[level], weight)
                        _add(g[lo:hi], slopes[lo:hi], factor)
                        g[k] -= factor * slope_of[level]
    return value


@njit(cache=True, nogil=True)
def _objective(kind, rank, graded, weight, cuts, cut_weights, temperature):
    """What one positive adds to the objective, and its derivatives by rank and hierarchical rank."""
    if kind == AP:
        return graded / rank, -graded / (rank * rank), 1.0 / rank
    if kind == NDCG:
        bits = np.log2(1.0 + rank)
        return weight / bits, -weight / (bits * bits * (1.0 + rank) * np.log(2.0)), 0.0
    gain, slope = 0.0, 0.0
    for c in range(cuts.shape[0]):
        inside = 1.0 / (1.0 + np.exp(min(max((rank - cuts[c]) / temperature, -LIMIT_FLOAT64), LIMIT_FLOAT64)))
        gain += cut_weights[c] * inside
        slope -= cut_weights[c] * inside * (1.0 - inside) / temperature
    return gain, slope, 0.0


@njit(cache=True, nogil=True)
def _exponentials(s, score, p, x):
    """exp((s_k - s_j) / tau) itself, where its two factors would overflow."""
    for j in range(s.shape[0]):
        t = (score - s[j]) / p[TAU]
        x[j] = np.exp(min(max(t, -69.0), 69.0))


@njit(cache=True, nogil=True, fastmath=FAST)
def _below(s, e, x, factored, score, inverse, p, slopes):
    """Sum of H_down over items of lower levels; slopes are kept."""
    one, zero, large = p[ONE], p[ZERO], p[LARGE]
    rho, delta, start, offset = p[RHO], p[DELTA], p[START], p[OFFSET]
    sharpness = one / p[TAU]
    total, total_slope = zero, zero
    if factored:
        for j in range(s.shape[0]):
            t = s[j] - score
            ratio = min(e[j] * inverse, large)
            sigmoid = one / (one + ratio)
            jump = start if t > zero else zero
            line = rho * (t - delta) + offset
            bent = ratio * sigmoid * sigmoid * sharpness
            slope = rho if t > delta else bent
            slopes[j] = slope
            total += line if t > delta else sigmoid + jump
            total_slope += slope
    else:
        for j in range(s.shape[0]):
            t = s[j] - score
            sigmoid = one / (one + x[j])
            jump = start if t > zero else zero
            slope = rho if t > delta else x[j] * sigmoid * sigmoid * sharpness
            slopes[j] = slope
            total += rho * (t - delta) + offset if t > delta else sigmoid + jump
            total_slope += slope
    return total, total_slope


@njit(cache=True, nogil=True, fastmath=FAST)
def _sigmoid(e, x, factored, inverse, p, slopes):
    """Sum of the sigmoid over some items; slopes are kept."""
    one, zero, large = p[ONE], p[ZERO], p[LARGE]
    sharpness = one / p[TAU]
    total, total_slope = zero, zero
    for j in range(e.shape[0]):
        ratio = min(e[j] * inverse, large) if factored else x[j]
        sigmoid = one / (one + ratio)
        slope = ratio * sigmoid * sigmoid * sharpness
        slopes[j] = slope
        total += sigmoid
        total_slope += slope
    return total, total_slope


@njit(cache=True, nogil=True, fastmath=FAST)
def _above(s, score, p, slopes):
    """Sum of H_up over items of higher levels; slopes are kept."""
    one, zero = p[ONE], p[ZERO]
    gamma, nu, mu = p[GAMMA], p[NU], p[MU]
    total, total_slope = zero, zero
    for j in range(s.shape[0]):
        t = s[j] - score
        rise = nu * t + mu
        ahead = min(rise, one)
        ahead_slope = nu if rise < one else zero
        slope = ahead_slope if t > zero else gamma
        slopes[j] = slope
        total += ahead if t > zero else gamma * t
        total_slope += slope
    return total, total_slope


@njit(cache=True, nogil=True, fastmath=FAST)
def _count(s, score, p):
    """Number of items with a higher score."""
    one, zero = p[ONE], p[ZERO]
    total = zero
    for j in range(s.shape[0]):
        total += one if s[j] > score else zero
    return total


@njit(cache=True, nogil=True, fastmath=FAST)
def _add(target, source, factor):
    scale = target.dtype.type(factor)
    for j in range(target.shape[0]):
        target[j] += scale * source[j]
