"""The ranking losses on the CPU for large batches: sums over sorted lists instead of over pairs.

The items of a query are in order of score. What each positive counts then splits into

1. steps and straight lines: differences of prefix sums of counts, weights and scores;
2. the sigmoid over all items, ``sum_j sigmoid((s_j - s_k) / tau)``: the scores are cut into cells of width 2
   tau, where ``sigmoid`` of a difference is a short sum of products of Chebyshev polynomials of either score;
   each cell keeps the sums of its items' polynomials (moments), from which come the coefficients of a
   polynomial for each cell of positives; its derivative gives the slopes. Beyond `REACH` cells the sigmoid is
   0 or 1 to machine precision;
3. the sigmoid beyond the margin, which the line replaces: there ``sigmoid(-x) = e^-x - e^-2x + ...``
   converges fast, and each power is a sum that decays from one positive to the next.

The gradient has the same three parts with positives and items in each other's place. A query of N items in L
levels takes O(N log N + L N + L C) for C pairs of cells in reach of each other; the loops over pairs in
`_kernel` take O(N^2), and less for small N.

Arrays, and scalars of the scores' own type, are annotated ``Any``, as in `happier.metrics.kernel`.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import prange

from happier.losses._kernel_problem import Problem, gain_of_positive, make_problem
from happier.losses.objective import AP, Objective
from happier.losses.surrogate import StepSurrogate, Surrogate, surrogate_numbers
from happier.numba_cache import jit

REACH = 19
"""In cells: sigmoid(2 * 19 - 2) is 1 - 2e-16."""

# Least delta / tau for which the series beyond the margin is used.
LEAST_MARGIN = 1.5
# Largest exponent for which a factor and its inverse are finite.
LIMIT = 650.0
# What a pair costs in `_kernel`, and an item and a product of the cells' tables here, in nanoseconds.
PAIR, ITEM, PRODUCT = 0.25, 60.0, 0.2

# One machine code of each, as in `_kernel`.
_jit = jit(nogil=True, error_model="numpy", forceinline=True)
_sum = jit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"}, forceinline=True)


class _Sums(NamedTuple):
    """How the sums are taken."""

    terms: int  # of the series beyond the margin
    table: Any  # of `sigmoid_table`
    # The surrogate's numbers; with the sigmoid all but the first are 0.
    tau: float
    rho: float
    delta: float
    start: float
    offset: float
    gamma: float
    nu: float
    mu: float


class _Items(NamedTuple):
    """The items of a query in rising order of score."""

    x: Any  # scores, float64 [n]
    level: Any
    weight: Any
    bounds: Any  # where each cell begins, [cells + 1]
    basis: Any  # Chebyshev polynomials of the place within the cell, [p, n]
    after: Any  # first place with a higher score, [n]
    before: Any  # first place with no lower score, [n]
    members: Any  # places of the items of level 0, of level 1, ..., each in rising order, [n]
    starts: Any  # where each level begins among them, [L + 2]
    rise: Any  # exp((x - centre) / tau), [n], or nothing where that would overflow
    fall: Any  # its inverse


@functools.cache
def sigmoid_table(degree: int) -> Any:
    """Chebyshev coefficients ``[p, (2 REACH + 1) p]`` of sigmoid(2 d + v - u).

    The first axis is the degree in u, the place of the target in its cell; the second goes over d from -REACH
    on and, for each, over the degree in v, the place of the source.
    """
    nodes = np.cos(np.pi * (np.arange(degree) + 0.5) / degree)
    transform = np.cos(np.outer(np.arange(degree), np.arccos(nodes))) * (2 / degree)
    transform[0] /= 2
    shift = 2.0 * np.arange(-REACH, REACH + 1)[:, None, None]
    value = 1 / (1 + np.exp(-(shift + nodes[:, None] - nodes[None, :])))  # [d, v, u]
    return np.einsum("av,dvu,bu->bda", transform, value, transform).reshape(degree, -1).copy()


def _degree(scores: torch.Tensor) -> int:
    # The poles of the sigmoid leave an error of 6.4 ** -degree; one more than a multiple of three.
    return 10 if scores.dtype == torch.float32 else 19


def pays(scores: torch.Tensor, levels: torch.Tensor, objective: Objective, surrogate: Surrogate) -> bool:
    """Whether sums take less time than pairs."""
    if not scores.numel():
        return False
    if isinstance(surrogate, StepSurrogate) and surrogate.delta < LEAST_MARGIN * surrogate.tau:
        return False
    queries, items = scores.shape
    depth = objective.weights.shape[1] - 1
    pairs = PAIR * float((levels > 0).sum()) * items / queries
    if pairs <= ITEM * items:
        return False
    low, high = (float(end) for end in torch.aminmax(scores.detach()))
    if not math.isfinite(high - low):
        return False
    cells = (high - low) / (2 * surrogate.tau) + 1
    products = 3 * depth * cells * min(cells, 2 * REACH + 1) * _degree(scores) ** 2
    return pairs > ITEM * items * (1 + depth / 8) + PRODUCT * products


def ranking_sums(
    scores: torch.Tensor,
    levels: torch.Tensor,
    objective: Objective,
    surrogate: Surrogate,
    *,
    need_gradient: bool,
    threaded: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Objective of each query ``[Q]``, and the gradient ``[Q, N]`` by the scores of 1 minus its mean."""
    s = scores.detach().contiguous().numpy()
    values = np.zeros(s.shape[0])
    gradient = torch.zeros(scores.shape, dtype=scores.dtype) if need_gradient else None
    g = gradient.numpy() if gradient is not None else np.empty((s.shape[0], 0), dtype=s.dtype)
    terms = 0
    if isinstance(surrogate, StepSurrogate):
        exact = 12.0 if scores.dtype == torch.float32 else 38.0
        terms = math.ceil(exact * surrogate.tau / surrogate.delta)
    problem = make_problem(objective, surrogate, need_gradient=need_gradient)
    sums = _Sums(terms, sigmoid_table(_degree(scores)), *surrogate_numbers(surrogate))
    all_levels, weights = levels.contiguous().numpy(), objective.weights.contiguous().numpy()
    valid, cut_weights = objective.valid.numpy(), objective.cut_weights.contiguous().numpy()
    run = _all_queries_threaded if threaded else _all_queries
    block = max(1, (1 << 18) // s.shape[1])
    for q in range(0, len(s), block):
        part = slice(q, q + block)
        # Sorting is fastest in numpy; a block of rows at a time stays in cache.
        order = np.argsort(s[part], axis=1)
        run(
            s[part], order, all_levels[part], weights[part], valid[part], cut_weights[part], problem, sums,
            g[part], values[part],
        )  # fmt: skip
    return torch.from_numpy(values), gradient


@_jit
def _all_queries(
    scores: Any, order: Any, levels: Any, weights: Any, valid: Any, cut_weights: Any, problem: Problem,
    sums: _Sums, gradient: Any, values: Any,
) -> None:  # fmt: skip
    for q in range(scores.shape[0]):
        if valid[q]:
            values[q] = _one_query(
                scores[q], order[q], levels[q], weights[q], cut_weights[q], problem, sums, gradient[q]
            )


@jit(nogil=True, error_model="numpy", parallel=True)
def _all_queries_threaded(
    scores: Any, order: Any, levels: Any, weights: Any, valid: Any, cut_weights: Any, problem: Problem,
    sums: _Sums, gradient: Any, values: Any,
) -> None:  # fmt: skip
    for q in prange(scores.shape[0]):
        if valid[q]:
            values[q] = _one_query(
                scores[q], order[q], levels[q], weights[q], cut_weights[q], problem, sums, gradient[q]
            )


@_jit
def _one_query(
    scores: Any, order: Any, levels: Any, weights: Any, cut_weights: Any, problem: Problem, sums: _Sums,
    gradient: Any,
) -> float:  # fmt: skip
    """Objective of one query; its gradient goes to ``gradient``, if that is not empty."""
    kept = np.empty(len(order) + 1, np.int64)
    count = 0
    for i in range(len(order)):
        kept[count] = order[i]
        count += levels[order[i]] >= 0
    kept = kept[:count]
    items = _make_items(scores, kept, levels, weights, sums.tau, len(sums.table))
    # Rank, hierarchical rank, and their slopes by the score of the positive itself.
    ranks = np.zeros((4, count))
    depth = len(weights) - 1
    for level in range(1, depth + 1):
        if items.starts[level] < items.starts[level + 1]:
            if problem.smooth:
                _smooth_ranks(items, level, weights[level], sums, ranks)
            else:
                _step_ranks(items, level, weights[level], problem, sums, ranks)
    value = 0.0
    by_rank, by_graded = np.zeros(count), np.zeros(count)
    for i in items.members[items.starts[1] :]:
        gain, by_rank[i], by_graded[i] = gain_of_positive(
            problem, ranks[0, i], ranks[1, i], items.weight[i], cut_weights
        )
        value += gain
    if not problem.need_gradient:
        return value
    # The loss falls as the objective grows: hence the minus.
    by_rank *= -problem.share
    by_graded *= -problem.share
    g = -(by_rank * ranks[2] + by_graded * ranks[3])
    for level in range(depth + 1):
        if items.starts[level] < items.starts[level + 1]:
            if problem.smooth:
                _smooth_gradient(items, level, weights[level], sums, by_rank, by_graded, g)
            else:
                _step_gradient(items, level, weights[level], problem, sums, by_rank, by_graded, g)
    for i in range(count):
        gradient[kept[i]] = g[i]
    return value


@_jit
def _make_items(scores: Any, kept: Any, levels: Any, weights: Any, tau: float, degree: int) -> _Items:
    n, depth = len(kept), len(weights) - 1
    x, weight, u = np.empty(n), np.empty(n), np.empty(n)
    level = np.empty(n, np.int64)
    starts = np.zeros(depth + 2, np.int64)
    for i in range(n):
        x[i] = scores[kept[i]]
        level[i] = levels[kept[i]]
        weight[i] = weights[level[i]]
        starts[level[i] + 1] += 1
    for one in range(depth + 1):
        starts[one + 1] += starts[one]
    members, fill = np.empty(n, np.int64), starts.copy()
    for i in range(n):
        members[fill[level[i]]] = i
        fill[level[i]] += 1
    scale, spread = 0.5 / tau, x[n - 1] - x[0]
    bounds = np.zeros(int(spread * scale) + 2, np.int64)
    for i in range(n):
        place = (x[i] - x[0]) * scale
        cell = int(place)
        bounds[cell + 1] = i + 1
        u[i] = 2 * (place - cell) - 1
    for cell in range(len(bounds) - 1):
        bounds[cell + 1] = max(bounds[cell + 1], bounds[cell])
    after, before = np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(n):
        before[i] = before[i - 1] if i > 0 and x[i] == x[i - 1] else i
    for i in range(n - 1, -1, -1):
        after[i] = after[i + 1] if i + 1 < n and x[i] == x[i + 1] else i + 1
    factored = n if spread / tau < 2 * LIMIT else 0
    rise = np.empty(factored)
    centre = 0.5 * (x[0] + x[n - 1])
    for i in range(factored):
        rise[i] = np.exp((x[i] - centre) / tau)
    return _Items(
        x, level, weight, bounds, _chebyshev(u, degree), after, before, members, starts, rise, 1.0 / rise
    )


@_sum
def _chebyshev(u: Any, degree: int) -> Any:
    basis = np.empty((degree, len(u)))
    basis[0] = 1.0
    basis[1] = u
    for a in range(2, degree):
        one, two, three = basis[a - 2], basis[a - 1], basis[a]
        for i in range(len(u)):
            three[i] = 2 * u[i] * two[i] - one[i]
    return basis


@_sum
def _dots(rows: Any, first: int, last: int, other: Any, out: Any) -> None:
    """Product of columns first..last of each row with ``other``."""
    for a in range(rows.shape[0]):
        row, total = rows[a][first:last], 0.0  # contiguous, unlike rows of rows[:, first:last]
        for i in range(len(other)):
            total += row[i] * other[i]
        out[a] = total


@_sum
def _polynomials(rows: Any, first: int, last: int, local: Any, steep: Any, value: Any, slope: Any) -> None:
    """Two sums of rows, the first of which is 1; three rows at a time, which spares loads and stores."""
    for i in range(len(value)):
        value[i] = local[0]
        slope[i] = steep[0]
    for a in range(1, rows.shape[0] - 2, 3):
        one, two, three = rows[a][first:last], rows[a + 1][first:last], rows[a + 2][first:last]
        f1, f2, f3 = local[a], local[a + 1], local[a + 2]
        g1, g2, g3 = steep[a], steep[a + 1], steep[a + 2]
        for i in range(len(value)):
            value[i] += f1 * one[i] + f2 * two[i] + f3 * three[i]
            slope[i] += g1 * one[i] + g2 * two[i] + g3 * three[i]


@_jit
def _sigmoid_sums(items: _Items, factor: Any, table: Any, value: Any, slope: Any) -> None:
    """For each item k: sum_j factor_j sigmoid((x_j - x_k) / tau), and its slope, times tau, by -x_k."""
    cells, degree = len(items.bounds) - 1, len(items.basis)
    moments = np.zeros(cells * degree)
    above = np.zeros(cells + 1)
    for c in range(cells - 1, -1, -1):
        first, last = items.bounds[c], items.bounds[c + 1]
        own = moments[c * degree : (c + 1) * degree]
        if first < last:
            _dots(items.basis, first, last, factor[first:last], own)
        above[c] = above[c + 1] + own[0]
    local, steep = np.empty(degree), np.empty(degree + 1)
    for c in range(cells):
        first, last = items.bounds[c], items.bounds[c + 1]
        if first == last:
            continue
        lowest, highest = max(0, c - REACH), min(cells, c + REACH + 1)
        begin, end = (lowest - c + REACH) * degree, (highest - c + REACH) * degree
        _dots(table, begin, end, moments[lowest * degree : highest * degree], local)
        local[0] += above[highest]
        steep[degree] = 0.0
        steep[degree - 1] = 0.0
        for a in range(degree - 1, 0, -1):  # minus the derivative
            steep[a - 1] = steep[a + 1] - 2 * a * local[a]
        steep[0] /= 2
        _polynomials(items.basis, first, last, local, steep, value[first:last], slope[first:last])


@_jit
def _prefix(values: Any) -> Any:
    result = np.empty(len(values) + 1)
    total = 0.0
    for i in range(len(values)):
        result[i] = total
        total += values[i]
    result[len(values)] = total
    return result


@_jit
def _decay(items: _Items, source: int, target: int, tau: float, upwards: bool) -> Any:
    """exp(-distance / tau)."""
    if len(items.rise) > 0:
        if upwards:
            return items.rise[source] * items.fall[target]
        return items.rise[target] * items.fall[source]
    return np.exp(-abs(items.x[source] - items.x[target]) / tau)


@_jit
def _beyond(
    items: _Items, sources: Any, factor: Any, targets: Any, sums: _Sums, upwards: bool, out: Any
) -> None:
    """For each target: sums over the sources that are further than delta above it, or, ``upwards``, below it.

    Rows of ``out``: sum of the factors f, of f x, of f sigmoid(-t / tau) and of f sigmoid'(t / tau), where t
    is the distance. Sources and targets are places in rising order.
    """
    x, tau, delta = items.x, sums.tau, sums.delta
    powers = np.zeros(sums.terms)
    total, weighted = 0.0, 0.0
    passed, count = 0, len(sources)
    previous = -1
    for step in range(len(targets)):
        target = targets[step] if upwards else targets[len(targets) - 1 - step]
        if previous >= 0 and total != 0.0:
            ratio = _decay(items, previous, target, tau, upwards)
            power = 1.0
            for m in range(sums.terms):
                power *= ratio
                powers[m] *= power
        previous = target
        while passed < count:
            source = sources[passed] if upwards else sources[count - 1 - passed]
            distance = x[target] - x[source] if upwards else x[source] - x[target]
            if not distance > delta:
                break
            total += factor[source]
            weighted += factor[source] * x[source]
            ratio = _decay(items, source, target, tau, upwards)
            power = factor[source]
            for m in range(sums.terms):
                power *= ratio
                powers[m] += power
            passed += 1
        value, slope, sign = 0.0, 0.0, 1.0
        for m in range(sums.terms):
            value += sign * powers[m]
            slope += sign * (m + 1) * powers[m]
            sign = -sign
        out[0, target], out[1, target], out[2, target], out[3, target] = total, weighted, value, slope


@_jit
def _places(items: _Items, first: int, last: int) -> Any:
    """Places of the items of levels first..last, in rising order."""
    result = np.empty(len(items.x) + 1, np.int64)
    count = 0
    for i in range(len(items.x)):
        result[count] = i
        count += (items.level[i] >= first) & (items.level[i] <= last)
    return result[:count]


@_jit
def _step_ranks(items: _Items, level: int, weight: float, problem: Problem, sums: _Sums, ranks: Any) -> None:
    x, n = items.x, len(items.x)
    tau, rho, delta, start, offset = sums.tau, sums.rho, sums.delta, sums.start, sums.offset
    gamma, nu, mu = sums.gamma, sums.nu, sums.mu
    lower, same, higher = np.empty(n), np.empty(n), np.empty(n)
    # Only where there are items of higher levels.
    hrank = problem.hrank and problem.kind == AP and items.starts[level + 1] < n
    for i in range(n):
        lower[i] = 1.0 if items.level[i] < level else 0.0
        least = min(items.weight[i], weight)
        above = hrank and items.level[i] > level
        higher[i] = least if above else 0.0
        same[i] = 0.0 if above else least  # the weight of level 0 is 0
    smooth, smooth_slope, far = np.empty(n), np.empty(n), np.empty((4, n))
    _sigmoid_sums(items, lower, sums.table, smooth, smooth_slope)
    targets = items.members[items.starts[level] : items.starts[level + 1]]
    _beyond(items, _places(items, 0, level - 1), lower, targets, sums, False, far)
    lowers, sames = _prefix(lower), _prefix(same)
    highers, products = (_prefix(higher), _prefix(higher * x)) if hrank else (lowers, lowers)
    one = 0  # first place where H_up is 1
    for i in targets:
        after = items.after[i]
        ahead = lowers[n] - lowers[after]
        line = rho * (far[1, i] - far[0, i] * (x[i] + delta)) + far[0, i] * (offset - start - 1.0)
        ranks[0, i] = 1.0 + (n - after) - ahead + smooth[i] + start * ahead + line + far[2, i]
        ranks[2, i] = (smooth_slope[i] - far[3, i]) / tau + rho * far[0, i]
        ranks[1, i] = weight + sames[n] - sames[after]
        if hrank:
            one = max(one, after)
            while one < n and nu * (x[one] - x[i]) + mu < 1.0:
                one += 1
            between = highers[one] - highers[after]
            ranks[1, i] += gamma * (products[after] - x[i] * highers[after]) + highers[n] - highers[one]
            ranks[1, i] += nu * (products[one] - products[after] - x[i] * between) + mu * between
            ranks[3, i] = gamma * highers[after] + nu * between


@_jit
def _step_gradient(
    items: _Items, level: int, weight: float, problem: Problem, sums: _Sums, by_rank: Any,
    by_graded: Any, g: Any,
) -> None:  # fmt: skip
    """Add the gradient by the scores of the items of a level, from positives of other levels."""
    x, n = items.x, len(items.x)
    tau, rho, gamma, nu, mu = sums.tau, sums.rho, sums.gamma, sums.nu, sums.mu
    depth = len(items.starts) - 2
    targets = items.members[items.starts[level] : items.starts[level + 1]]
    if items.starts[level + 1] < n:  # there are items of higher levels
        factor = np.empty(n)
        for i in range(n):
            factor[i] = by_rank[i] if items.level[i] > level else 0.0
        smooth, smooth_slope, far = np.empty(n), np.empty(n), np.empty((4, n))
        _sigmoid_sums(items, factor, sums.table, smooth, smooth_slope)
        _beyond(items, _places(items, level + 1, depth), factor, targets, sums, True, far)
        for i in targets:
            g[i] += (smooth_slope[i] - far[3, i]) / tau + rho * far[0, i]
    if level > 1 and problem.hrank and problem.kind == AP:
        factor = np.empty(n)
        for i in range(n):
            factor[i] = by_graded[i] * min(items.weight[i], weight) if items.level[i] < level else 0.0
        factors = _prefix(factor)
        near = 0  # first place where H_up still rises
        for i in targets:
            before = items.before[i]
            while near < before and not nu * (x[i] - x[near]) + mu < 1.0:
                near += 1
            g[i] += gamma * (factors[n] - factors[before]) + nu * (
                factors[before] - factors[min(near, before)]
            )


@_jit
def _smooth_ranks(items: _Items, level: int, weight: float, sums: _Sums, ranks: Any) -> None:
    n, tau = len(items.x), sums.tau
    value, slope, graded, graded_slope = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    _sigmoid_sums(items, np.ones(n), sums.table, value, slope)
    _sigmoid_sums(items, np.minimum(items.weight, weight), sums.table, graded, graded_slope)
    for i in items.members[items.starts[level] : items.starts[level + 1]]:
        # No item is compared with itself, where the sigmoid is 1/2.
        ranks[0, i] = 0.5 + value[i]
        ranks[1, i] = 0.5 * weight + graded[i]
        ranks[2, i] = slope[i] / tau
        ranks[3, i] = graded_slope[i] / tau


@_jit
def _smooth_gradient(
    items: _Items, level: int, weight: float, sums: _Sums, by_rank: Any, by_graded: Any, g: Any
) -> None:
    n = len(items.x)
    factor = by_rank + by_graded * np.minimum(items.weight, weight)
    value, slope = np.empty(n), np.empty(n)
    _sigmoid_sums(items, factor, sums.table, value, slope)
    for i in items.members[items.starts[level] : items.starts[level + 1]]:
        g[i] += slope[i] / sums.tau
