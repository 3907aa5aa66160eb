"""The ranking losses on the CPU: value and closed-form gradient of each query in one compiled pass.

Per query the items are put in order of level, so that "lower level" is a prefix. For each positive ``k`` one
loop over that prefix sums the surrogate and keeps its slope; once the rank is known, a second loop adds the
slopes, weighted, to the gradient. ``sigmoid((s_j - s_k) / tau) = 1 / (1 + e_j / e_k)`` with ``e_j = exp(-s_j
/ tau)``, so a query of n items takes n exponentials, not n^2. Large batches are left to `_sum_kernel`.

Arrays, and scalars of the scores' own type, are annotated ``Any``, as in `happier.metrics.kernel`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np
import torch
from numba import prange

from happier.losses._kernel_problem import Problem, gain_of_positive, make_problem
from happier.losses._sum_kernel import pays, ranking_sums
from happier.losses.objective import AP, Objective
from happier.losses.surrogate import Surrogate, surrogate_numbers
from happier.numba_cache import jit

# Sums may be reordered (that is what makes them vector code); infinities must keep their meaning.
FAST = {"reassoc", "nsz", "contract", "arcp"}

# Largest exponent for which e_j and 1 / e_j are finite, by type; beyond it, the next type or no factoring.
LIMIT_FLOAT32 = 80.0
LIMIT_FLOAT64 = 650.0

# The surrogate's parameters as an array of the type of the scores; a literal would turn float32 into float64.
TAU, RHO, DELTA, START, OFFSET, GAMMA, NU, MU, ZERO, ONE = range(10)

# How the loops are compiled; division by zero must give infinity, since a check would end vector code.
# Inlined, so that there is one machine code of each: otherwise a process that compiles calls another copy,
# optimised and rounding differently, than a process that loads the same functions from the cache.
_plain = jit(nogil=True, error_model="numpy", forceinline=True)
_loop = jit(nogil=True, error_model="numpy", fastmath=FAST, forceinline=True)


def ranking_kernel(
    scores: torch.Tensor,
    levels: torch.Tensor,
    objective: Objective,
    surrogate: Surrogate,
    *,
    need_gradient: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Objective of each query ``[Q]``, and the gradient ``[Q, N]`` by the scores of 1 minus its mean."""
    threaded = torch.get_num_threads() > 1
    with _as_many_threads_as_torch():
        if pays(scores, levels, objective, surrogate):
            return ranking_sums(
                scores, levels, objective, surrogate, need_gradient=need_gradient, threaded=threaded
            )
        s = scores.detach().contiguous().numpy()
        values = np.zeros(s.shape[0])
        gradient = torch.zeros(scores.shape, dtype=scores.dtype) if need_gradient else None
        (_all_queries_threaded if threaded else _all_queries)(
            s,
            levels.contiguous().numpy(),
            objective.weights.contiguous().numpy(),
            objective.valid.numpy(),
            objective.cut_weights.contiguous().numpy(),
            np.array([*surrogate_numbers(surrogate), 0.0, 1.0]),
            make_problem(objective, surrogate, need_gradient=need_gradient),
            gradient.numpy() if gradient is not None else np.empty((s.shape[0], 0), dtype=s.dtype),
            values,
        )
    return torch.from_numpy(values), gradient


@contextmanager
def _as_many_threads_as_torch() -> Iterator[None]:
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    before = numba.get_num_threads()
    # Starting numba's threads sets the number that OpenMP gives to torch as well: set it back.
    torch.set_num_threads(threads)
    numba.set_num_threads(min(threads, before))
    try:
        yield
    finally:
        numba.set_num_threads(before)


@_plain
def _all_queries(
    scores: Any, levels: Any, weights: Any, valid: Any, cut_weights: Any, p: Any, problem: Problem,
    gradient: Any, values: Any,
) -> None:  # fmt: skip
    for q in range(scores.shape[0]):
        if valid[q]:
            values[q] = _one_query(scores[q], levels[q], weights[q], cut_weights[q], p, problem, gradient[q])


@jit(nogil=True, error_model="numpy", parallel=True)
def _all_queries_threaded(
    scores: Any, levels: Any, weights: Any, valid: Any, cut_weights: Any, p: Any, problem: Problem,
    gradient: Any, values: Any,
) -> None:  # fmt: skip
    for q in prange(scores.shape[0]):
        if valid[q]:
            values[q] = _one_query(scores[q], levels[q], weights[q], cut_weights[q], p, problem, gradient[q])


@_plain
def _one_query(
    scores: Any, levels: Any, weights: Any, cut_weights: Any, p: Any, problem: Problem, gradient: Any
) -> Any:
    """Objective of one query; its gradient goes to ``gradient``, if that is not empty."""
    depth = weights.shape[0] - 1
    starts = np.zeros(depth + 2, np.int64)
    for level in levels:
        if level >= 0:
            starts[level + 1] += 1
    for level in range(depth + 1):
        starts[level + 1] += starts[level]
    order = np.empty(starts[depth + 1], np.int64)
    fill = starts.copy()
    low, high = np.inf, -np.inf
    for j in range(levels.shape[0]):
        if levels[j] >= 0:
            order[fill[levels[j]]] = j
            fill[levels[j]] += 1
            low, high = min(low, scores[j]), max(high, scores[j])
    spread = 0.5 * (high - low) / p[TAU]
    centre = 0.5 * (high + low)

    s = scores[order]
    if scores.itemsize == 8 or spread <= LIMIT_FLOAT32:
        narrow = p.astype(s.dtype)
        value, g = _ranked(s, centre, spread, starts, weights, cut_weights, narrow, problem)
        gradient[order[: g.shape[0]]] = g
        return value
    # Scores spread too wide for exponentials in float32: this query goes through float64.
    wide = s.astype(np.float64)
    value, g_wide = _ranked(wide, centre, spread, starts, weights, cut_weights, p, problem)
    for j in range(g_wide.shape[0]):
        gradient[order[j]] = g_wide[j]
    return value


@_plain
def _ranked(
    s: Any, centre: float, spread: float, starts: Any, weights: Any, cut_weights: Any, p: Any,
    problem: Problem,
) -> Any:  # fmt: skip
    """Sum of the objective over the positives of a query, and its gradient; items are in order of level."""
    kind, smooth, hrank, share = problem.kind, problem.smooth, problem.hrank, problem.share
    depth = weights.shape[0] - 1
    items = s.shape[0]
    factored = spread <= LIMIT_FLOAT64
    # Rows of one block: vector code looks whether arrays lie close together, and falls back to loops that
    # round differently; that must not depend on where the allocator places small arrays.
    block = np.zeros((6, items), s.dtype)
    block[0] = s
    s, e, slopes, own_weights = block[0], block[1], block[2], block[3]
    least = block[4]  # min(weight of the item, weight of the level being ranked)
    g = block[5, : items if problem.need_gradient else 0]
    tau = p[TAU]
    if factored:
        for j in range(items):
            e[j] = np.exp((centre - s[j]) / tau)
    for level in range(1, depth + 1):
        own_weights[starts[level] : starts[level + 1]] = weights[level]
    value = 0.0
    for level in range(1, depth + 1):
        if starts[level] == starts[level + 1]:
            continue
        weight = weights[level]
        for j in range(starts[1], items):
            least[j] = min(own_weights[j], weight)
        # Items before `first` are of a lower level, those from `last` on of a higher one.
        first, last = starts[level], starts[level + 1]
        smoothed = items if smooth else first
        for k in range(first, last):
            score = s[k]
            inverse = p[ONE]
            if factored:
                inverse /= e[k]
            else:
                for j in range(smoothed):
                    e[j] = np.exp(min(max((score - s[j]) / tau, -LIMIT_FLOAT64), LIMIT_FLOAT64))

            rank, graded = 1.0, weight
            slope, graded_slope = 0.0, 0.0
            if smooth:
                total, graded_total, slope, graded_slope = _sigmoid(e, inverse, p, least, slopes)
                own = p[ONE] / (p[ONE] + e[k] * inverse)  # no item is compared with itself
                rank += total - own
                graded += graded_total - own * least[k]
            else:
                total, slope = _below(s[:first], e[:first], score, inverse, p, slopes[:first])
                rank += total + _count(s[first:], score, p)
                if kind == AP:
                    counted = last if hrank else items
                    graded += _graded_count(s[starts[1] : counted], score, p, least[starts[1] : counted])
                    if hrank:
                        total, graded_slope = _above(s[last:], score, p, least[last:], slopes[last:])
                        graded += total

            gain, by_rank, by_graded = gain_of_positive(problem, rank, graded, weight, cut_weights)
            value += gain
            if problem.need_gradient:
                # The loss falls as the objective grows: hence the minus.
                by_rank *= -share
                by_graded *= -share
                if smooth:
                    _add_graded(g, slopes, by_rank, by_graded, least)
                else:
                    _add(g[:first], slopes[:first], by_rank)
                    if kind == AP and hrank:
                        _add(g[last:], slopes[last:], by_graded)
                g[k] -= by_rank * slope + by_graded * graded_slope
    return value, g


@_loop
def _below(s: Any, e: Any, score: Any, inverse: Any, p: Any, slopes: Any) -> Any:
    """Sum of H_down over items of lower levels, and of its slopes, which are kept."""
    one, zero = p[ONE], p[ZERO]
    rho, delta, start, offset = p[RHO], p[DELTA], p[START], p[OFFSET]
    sharpness = one / p[TAU]
    total, total_slope = zero, zero
    for j in range(s.shape[0]):
        t = s[j] - score
        sigmoid = one / (one + e[j] * inverse)
        bent = sigmoid * (one - sigmoid) * sharpness
        line = rho * (t - delta) + offset
        jump = start if t > zero else zero
        far = t > delta
        slope = rho if far else bent
        slopes[j] = slope
        total += line if far else sigmoid + jump
        total_slope += slope
    return total, total_slope


@_loop
def _above(s: Any, score: Any, p: Any, least: Any, slopes: Any) -> Any:
    """Sum of least * H_up over items of higher levels, and of its slopes, which are kept."""
    one, zero = p[ONE], p[ZERO]
    gamma, nu, mu = p[GAMMA], p[NU], p[MU]
    total, total_slope = zero, zero
    for j in range(s.shape[0]):
        t = s[j] - score
        rise = nu * t + mu
        ahead = rise if rise < one else one
        ahead_slope = nu if rise < one else zero
        behind = gamma * t
        slope = least[j] * (ahead_slope if t > zero else gamma)
        slopes[j] = slope
        total += least[j] * (ahead if t > zero else behind)
        total_slope += slope
    return total, total_slope


@_loop
def _sigmoid(e: Any, inverse: Any, p: Any, least: Any, slopes: Any) -> Any:
    """Sums of sigmoid and least * sigmoid over all items, and of their slopes, which are kept."""
    one, zero = p[ONE], p[ZERO]
    sharpness = one / p[TAU]
    total, graded, total_slope, graded_slope = zero, zero, zero, zero
    for j in range(e.shape[0]):
        sigmoid = one / (one + e[j] * inverse)
        slope = sigmoid * (one - sigmoid) * sharpness
        slopes[j] = slope
        total += sigmoid
        graded += least[j] * sigmoid
        total_slope += slope
        graded_slope += least[j] * slope
    return total, graded, total_slope, graded_slope


@_loop
def _count(s: Any, score: Any, p: Any) -> Any:
    """Number of items with a higher score."""
    one, zero = p[ONE], p[ZERO]
    total = zero
    for j in range(s.shape[0]):
        total += one if s[j] > score else zero
    return total


@_loop
def _graded_count(s: Any, score: Any, p: Any, least: Any) -> Any:
    """Weight of the items with a higher score."""
    zero = p[ZERO]
    total = zero
    for j in range(s.shape[0]):
        total += least[j] if s[j] > score else zero
    return total


@_loop
def _add(target: Any, slopes: Any, factor: Any) -> Any:
    scale = target.dtype.type(factor)
    for j in range(target.shape[0]):
        target[j] += scale * slopes[j]


@_loop
def _add_graded(target: Any, slopes: Any, factor: Any, graded_factor: Any, least: Any) -> Any:
    scale, graded_scale = target.dtype.type(factor), target.dtype.type(graded_factor)
    for j in range(target.shape[0]):
        target[j] += (scale + graded_scale * least[j]) * slopes[j]
