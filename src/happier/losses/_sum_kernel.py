"""The ranking losses on the CPU for large batches: sums over sorted lists instead of over pairs.

The items of a query are in order of score. What each positive counts then splits into

1. steps and straight lines: differences of prefix sums of counts, weights and scores;
2. the sigmoid over all items, ``sum_j sigmoid((s_j - s_k) / tau)``: the scores are cut into cells of width 2
   tau, where ``sigmoid`` of a difference is a short sum of products of Chebyshev polynomials of either score;
   each cell keeps the sums of its items' polynomials (moments), from which come the coefficients of a
   polynomial for each cell of positives; its derivative gives the slopes. Beyond the reach of the table of
   coefficients the sigmoid is 0 or 1 to the precision wanted;
3. the sigmoid beyond the margin, which the line replaces: there ``sigmoid(-x) = e^-x - e^-2x + ...``
   converges fast, and each power is a sum over sorted items that decays from one to the next.

The gradient has the same three parts with positives and items in each other's place. Moments are kept for
each level, since what a positive is compared with depends on its level alone: each item enters one moment and
each positive is evaluated once, whatever the number of levels. A query of N items in L levels takes
O(L N + L C) for C pairs of cells in reach of each other; the loops over pairs in `_kernel` take O(N^2), and
less for small N.

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

# Least delta / tau for which the series beyond the margin is used.
LEAST_MARGIN = 1.5
# Digits of the radix sort.
DIGITS, DIGIT_BITS = 3, 11
DIGIT_MASK = np.uint64((1 << DIGIT_BITS) - 1)
# Powers that `_add_powers` sums at a time.
GROUP = 4
# Beyond so many cells exp(-2 d) is 0.
FARTHEST = 400
# What a pair costs in `_kernel`, and an item and a product of the cells' tables here, in nanoseconds.
PAIR, ITEM, PRODUCT = 0.25, 60.0, 0.1

# One machine code of each, as in `_kernel`.
_jit = jit(nogil=True, error_model="numpy", forceinline=True)
_sum = jit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"}, forceinline=True)


class _Sums(NamedTuple):
    """How the sums are taken."""

    terms: int  # of the series beyond the margin
    table: Any  # of `sigmoid_table`
    exponentials: Any  # Chebyshev coefficients of exp(u) and exp(-u), [2, p]
    decays: Any  # exp(-2 d) for cells that are d apart
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
    """The items of a query in rising order of score, by place; as members, by level first."""

    x: Any  # scores, float64 [n]
    level: Any
    weight: Any
    after: Any  # first place with a higher score, [n]
    before: Any  # first place with no lower score, [n]
    members: Any  # places of the items of level 0, of level 1, ..., each in rising order, [n]
    starts: Any  # where each level begins among the members, [L + 2]
    cells: Any  # where each cell of each level begins among the members, [L + 1, cells + 1]
    basis: Any  # Chebyshev polynomials of the position of each member within its cell, [p, n]
    cell: Any  # number of its cell, [n]
    rise: Any  # exp((x - centre of the cell) / tau), [n]
    fall: Any  # its inverse


@functools.cache
def sigmoid_table(degree: int, reach: int) -> Any:
    """Chebyshev coefficients ``[p, (2 reach + 1) p]`` of sigmoid(2 d + v - u).

    The first axis is the degree in u, the position of the target in its cell; the second goes over d from
    -reach on and, for each, over the degree in v, the position of the source.
    """
    nodes = np.cos(np.pi * (np.arange(degree) + 0.5) / degree)
    transform = np.cos(np.outer(np.arange(degree), np.arccos(nodes))) * (2 / degree)
    transform[0] /= 2
    shift = 2.0 * np.arange(-reach, reach + 1)[:, None, None]
    value = 1 / (1 + np.exp(-(shift + nodes[:, None] - nodes[None, :])))  # [d, v, u]
    return np.einsum("av,dvu,bu->bda", transform, value, transform).reshape(degree, -1).copy()


@functools.cache
def exponential_tables(degree: int) -> tuple[Any, Any]:
    """Chebyshev coefficients ``[2, p]`` of exp(u) and exp(-u), and exp(-2 d) for d = 0, 1, ..."""
    rise = np.polynomial.chebyshev.chebinterpolate(np.exp, degree - 1)
    signs = np.where(np.arange(degree) % 2, -1.0, 1.0)
    return np.stack([rise, rise * signs]), np.exp(-2.0 * np.arange(FARTHEST + 1))


def _precision(scores: torch.Tensor) -> tuple[int, int]:
    """Degree and reach; the sigmoid's poles leave an error of 6.4^-degree, the tails exp(2 - 2 reach)."""
    # The degree is one more than a multiple of three, for `_polynomial`.
    return (10, 11) if scores.dtype == torch.float32 else (19, 19)


def pays(scores: torch.Tensor, levels: torch.Tensor, objective: Objective, surrogate: Surrogate) -> bool:
    """Whether sums take less time than pairs."""
    if not scores.numel():
        return False
    if isinstance(surrogate, StepSurrogate) and surrogate.delta < LEAST_MARGIN * surrogate.tau:
        return False
    queries, items = scores.shape
    depth = objective.weights.shape[1] - 1
    pairs = PAIR * float(torch.count_nonzero(levels > 0)) * items / queries
    if pairs <= ITEM * items:
        return False
    low, high = (float(end) for end in torch.aminmax(scores.detach()))
    if not math.isfinite(high - low):
        return False
    degree, reach = _precision(scores)
    # The spread within some queries, without items that are not ranked, such as the query itself.
    some = slice(None, None, max(1, queries // 16))
    ranked = torch.where(levels[some] >= 0, scores.detach()[some], torch.nan)
    spread = (ranked.nan_to_num(low).amax(1) - ranked.nan_to_num(high).amin(1)).clamp(min=0).mean()
    cells = float(spread) / (2 * surrogate.tau) + 1
    products = 2 * depth * cells * min(cells, 2 * reach + 1) * degree**2
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
        terms = GROUP * math.ceil(exact * surrogate.tau / surrogate.delta / GROUP)
    problem = make_problem(objective, surrogate, need_gradient=need_gradient)
    degree, reach = _precision(scores)
    sums = _Sums(
        terms,
        sigmoid_table(degree, reach),
        *exponential_tables(degree),
        *surrogate_numbers(surrogate),
    )
    all_levels, weights = levels.contiguous().numpy(), objective.weights.contiguous().numpy()
    valid, cut_weights = objective.valid.numpy(), objective.cut_weights.contiguous().numpy()
    # The bits of a score without its sign rise with it; of float64 the upper half nearly sorts.
    bits = s.view(np.int32) if s.itemsize == 4 else (s.view(np.int64) >> 32).astype(np.int32)
    (_all_queries_threaded if threaded else _all_queries)(
        s, bits, all_levels, weights, valid, cut_weights, problem, sums, g, values
    )
    return torch.from_numpy(values), gradient


@_jit
def _all_queries(
    scores: Any, bits: Any, levels: Any, weights: Any, valid: Any, cut_weights: Any, problem: Problem,
    sums: _Sums, gradient: Any, values: Any,
) -> None:  # fmt: skip
    for q in range(scores.shape[0]):
        if valid[q]:
            values[q] = _one_query(
                scores[q], bits[q], levels[q], weights[q], cut_weights[q], problem, sums, gradient[q]
            )


@jit(nogil=True, error_model="numpy", parallel=True)
def _all_queries_threaded(
    scores: Any, bits: Any, levels: Any, weights: Any, valid: Any, cut_weights: Any, problem: Problem,
    sums: _Sums, gradient: Any, values: Any,
) -> None:  # fmt: skip
    for q in prange(scores.shape[0]):
        if valid[q]:
            values[q] = _one_query(
                scores[q], bits[q], levels[q], weights[q], cut_weights[q], problem, sums, gradient[q]
            )


@_jit
def _one_query(
    scores: Any, bits: Any, levels: Any, weights: Any, cut_weights: Any, problem: Problem, sums: _Sums,
    gradient: Any,
) -> float:  # fmt: skip
    """Objective of one query; its gradient goes to ``gradient``, if that is not empty."""
    kept = _sorted(scores, bits, levels)
    items = _make_items(scores, kept, levels, weights, sums)
    # Rank, hierarchical rank, and their slopes by the score of the positive itself.
    ranks = np.zeros((4, len(kept)))
    moments = _moments(items, np.ones(len(kept)), 0)
    if problem.smooth:
        _smooth_ranks(items, moments, weights, sums, ranks)
    else:
        _step_ranks(items, moments, weights, problem, sums, ranks)
    value = 0.0
    by_rank, by_graded = np.zeros(len(kept)), np.zeros(len(kept))
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
    if problem.smooth:
        _smooth_gradient(items, weights, sums, by_rank, by_graded, g)
    else:
        _step_gradient(items, weights, problem, sums, by_rank, by_graded, g)
    for i in range(len(kept)):
        gradient[kept[i]] = g[i]
    return value


@_jit
def _sorted(scores: Any, bits: Any, levels: Any) -> Any:
    """The items that are ranked, in rising order of score: a radix sort of 32 bits, then by insertion."""
    keys, other = np.empty(len(bits) + 1, np.uint64), np.empty(len(bits) + 1, np.uint64)
    counts = np.zeros((DIGITS, (1 << DIGIT_BITS) + 1), np.int64)
    count = 0
    for j in range(len(bits)):
        # Negative numbers count backwards; then the lowest comes to 0. The item is in the lower half.
        signed = np.int64(bits[j])
        key = np.uint64((signed ^ ((signed >> 63) & 0x7FFFFFFF)) + 0x80000000)
        keys[count] = key << np.uint64(32) | np.uint64(j)
        kept = levels[j] >= 0
        count += kept
        for digit in range(DIGITS):
            counts[digit, ((key >> np.uint64(digit * DIGIT_BITS)) & DIGIT_MASK) + np.uint64(1)] += kept
    for digit in range(DIGITS):
        places, shift = counts[digit], np.uint64(32 + digit * DIGIT_BITS)
        for value in range(1 << DIGIT_BITS):
            places[value + 1] += places[value]
        for i in range(count):
            own = (keys[i] >> shift) & DIGIT_MASK
            other[places[own]] = keys[i]
            places[own] += 1
        keys, other = other, keys
    order = np.empty(count, np.uint32)
    for i in range(count):
        item = np.uint32(keys[i] & np.uint64(0xFFFFFFFF))
        j = i
        while j > 0 and scores[order[j - 1]] > scores[item]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = item
    return order


@_jit
def _make_items(scores: Any, kept: Any, levels: Any, weights: Any, sums: _Sums) -> _Items:
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
    members, fill = np.empty(n, np.uint32), starts.copy()
    for i in range(n):
        members[fill[level[i]]] = i
        fill[level[i]] += 1
    scale = 0.5 / sums.tau
    cell = np.empty(n, np.int32)
    cells = np.zeros((depth + 1, int((x[n - 1] - x[0]) * scale) + 2), np.int64)
    for own in range(depth + 1):
        row = cells[own]
        row[0] = starts[own]
        for m in range(starts[own], starts[own + 1]):
            position = (x[members[m]] - x[0]) * scale
            c = int(position)
            cell[members[m]] = c
            row[c + 1] = m + 1
            u[m] = 2 * (position - c) - 1
        for c in range(len(row) - 1):
            row[c + 1] = max(row[c + 1], row[c])
    after, before = np.empty(n, np.uint32), np.empty(n, np.uint32)
    for i in range(n):
        before[i] = before[i - 1] if i > 0 and x[i] == x[i - 1] else i
    for i in range(n - 1, -1, -1):
        after[i] = after[i + 1] if i + 1 < n and x[i] == x[i + 1] else i + 1
    basis = _chebyshev(u, len(sums.table))
    rise, fall, both = np.empty(n), np.empty(n), np.empty((2, n))
    if sums.terms > 0:
        _polynomial(basis, 0, n, sums.exponentials[0], both[0])
        _polynomial(basis, 0, n, sums.exponentials[1], both[1])
        for m in range(n):
            rise[members[m]] = both[0, m]
            fall[members[m]] = both[1, m]
    return _Items(x, level, weight, after, before, members, starts, cells, basis, cell, rise, fall)


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
def _polynomial(rows: Any, first: int, last: int, factors: Any, out: Any) -> None:
    """Sum of rows, the first of which is 1; three rows at a time, which spares loads and stores."""
    for i in range(len(out)):
        out[i] = factors[0]
    for a in range(1, rows.shape[0] - 2, 3):
        one, two, three = rows[a][first:last], rows[a + 1][first:last], rows[a + 2][first:last]
        f1, f2, f3 = factors[a], factors[a + 1], factors[a + 2]
        for i in range(len(out)):
            out[i] += f1 * one[i] + f2 * two[i] + f3 * three[i]


@_jit
def _moments(items: _Items, factor: Any, lowest: int) -> Any:
    """Sums of the members' polynomials times a factor, ``[L + 1, cells * p]``, from level ``lowest`` on."""
    depth, cells, degree = len(items.starts) - 2, items.cells.shape[1] - 1, len(items.basis)
    result = np.zeros((depth + 1, cells * degree))
    for level in range(lowest, depth + 1):
        for c in range(cells):
            first, last = items.cells[level, c], items.cells[level, c + 1]
            if first < last:
                own = result[level][c * degree : (c + 1) * degree]
                _dots(items.basis, first, last, factor[first:last], own)
    return result


@_jit
def _sigmoid_sums(items: _Items, level: int, moments: Any, table: Any, value: Any, slope: Any) -> None:
    """For each member k of a level: sum_j f_j sigmoid((x_j - x_k) / tau), and its slope, times tau, by -x_k.

    Args:
        items: sources and targets.
        level: of the targets.
        moments: of the factors f, ``[cells * p]``.
        table: of `sigmoid_table`.
        value: ``[n]``, to fill by member, or empty where only the slope is wanted.
        slope: ``[n]``.
    """
    cells, degree = items.cells.shape[1] - 1, len(items.basis)
    reach = table.shape[1] // degree // 2
    above = np.zeros(cells + 1)
    for c in range(cells - 1, -1, -1):
        above[c] = above[c + 1] + moments[c * degree]
    local, steep = np.empty(degree), np.empty(degree + 1)
    for c in range(cells):
        first, last = items.cells[level, c], items.cells[level, c + 1]
        if first == last:
            continue
        lowest, highest = max(0, c - reach), min(cells, c + reach + 1)
        begin, end = (lowest - c + reach) * degree, (highest - c + reach) * degree
        _dots(table, begin, end, moments[lowest * degree : highest * degree], local)
        local[0] += above[highest]
        steep[degree] = 0.0
        steep[degree - 1] = 0.0
        for a in range(degree - 1, 0, -1):  # minus the derivative
            steep[a - 1] = steep[a + 1] - 2 * a * local[a]
        steep[0] /= 2
        if len(value) > 0:
            _polynomial(items.basis, first, last, local, value[first:last])
        _polynomial(items.basis, first, last, steep, slope[first:last])


@_sum
def _add_powers(
    items: _Items, sources: Any, factor: Any, here: Any, decays: Any, upwards: bool, out: Any, first: int
) -> None:
    """Four of the powers of `_beyond`, from m = ``first`` on, in registers."""
    count = len(sources)
    a1, a2, a3, a4 = 0.0, 0.0, 0.0, 0.0
    last = 0
    for n in range(count):
        source = sources[n] if upwards else sources[count - 1 - n]
        decay = decays[min(abs(items.cell[source] - last), FARTHEST)]
        last = items.cell[source]
        power, decayed = factor[source], 1.0
        for _ in range(1, first):
            power *= here[source]
            decayed *= decay
        power, decayed = power * here[source], decayed * decay
        a1 = a1 * decayed + power
        power, decayed = power * here[source], decayed * decay
        a2 = a2 * decayed + power
        power, decayed = power * here[source], decayed * decay
        a3 = a3 * decayed + power
        power, decayed = power * here[source], decayed * decay
        a4 = a4 * decayed + power
        out[n + 1, 0], out[n + 1, 1], out[n + 1, 2], out[n + 1, 3] = a1, a2, a3, a4


@_jit
def _beyond(
    items: _Items, sources: Any, factor: Any, targets: Any, sums: _Sums, upwards: bool, out: Any
) -> None:
    """For each target: sums over the sources that are further than delta above it, or, ``upwards``, below it.

    Rows of ``out``: sum of the factors f, of f x, of f sigmoid(-t / tau) and of f sigmoid'(t / tau), where t
    is the distance. Sources and targets are places in rising order.
    """
    x, count, terms = items.x, len(sources), sums.terms
    here, there = (items.rise, items.fall) if upwards else (items.fall, items.rise)
    # From the farthest source on: sums of f, of f x, and of f exp(-m t / tau), where t is the distance to the
    # centre of the last source's cell.
    passed = np.empty((count + 1, terms + 2))
    passed[0] = 0.0
    total, weighted = 0.0, 0.0
    for n in range(count):
        source = sources[n] if upwards else sources[count - 1 - n]
        total += factor[source]
        weighted += factor[source] * x[source]
        passed[n + 1, 0], passed[n + 1, 1] = total, weighted
    for m in range(2, terms + 2, GROUP):
        _add_powers(items, sources, factor, here, sums.decays, upwards, passed[:, m : m + GROUP], m - 1)
    n = 0
    for step in range(len(targets)):
        target = targets[step] if upwards else targets[len(targets) - 1 - step]
        while n < count:
            distance = x[target] - x[sources[n]] if upwards else x[sources[count - 1 - n]] - x[target]
            if not distance > sums.delta:
                break
            n += 1
        value, slope = 0.0, 0.0
        if n > 0:
            nearest = items.cell[sources[n - 1] if upwards else sources[count - n]]
            decay = -there[target] * sums.decays[min(abs(items.cell[target] - nearest), FARTHEST)]
            power = -1.0
            for m in range(2, terms + 2):
                power *= decay
                value += power * passed[n, m]
                slope += power * passed[n, m] * (m - 1)
        out[0, target], out[1, target], out[2, target], out[3, target] = (
            passed[n, 0], passed[n, 1], value, slope,
        )  # fmt: skip


@_jit
def _places(items: _Items, first: int, last: int) -> Any:
    """Places of the items of levels first..last, in rising order."""
    if items.starts[first] == items.starts[last] or items.starts[first + 1] == items.starts[last + 1]:
        return items.members[items.starts[first] : items.starts[last + 1]]  # of one level only
    result = np.empty(len(items.x) + 1, np.uint32)
    count = 0
    for i in range(len(items.x)):
        result[count] = i
        count += (items.level[i] >= first) & (items.level[i] <= last)
    return result[:count]


@_jit
def _step_ranks(items: _Items, moments: Any, weights: Any, problem: Problem, sums: _Sums, ranks: Any) -> None:
    n, depth = len(items.x), len(weights) - 1
    value, slope, far, ones = np.empty(n), np.empty(n), np.empty((4, n)), np.ones(n)
    lower = np.zeros(moments.shape[1])
    for level in range(1, depth + 1):
        lower += moments[level - 1]
        targets = items.members[items.starts[level] : items.starts[level + 1]]
        if len(targets) == 0:
            continue
        _sigmoid_sums(items, level, lower, sums.table, value, slope)
        _beyond(items, _places(items, 0, level - 1), ones, targets, sums, False, far)
        for m in range(items.starts[level], items.starts[level + 1]):
            i = items.members[m]
            line = sums.rho * (far[1, i] - far[0, i] * (items.x[i] + sums.delta))
            ranks[0, i] = 1.0 + value[m] + line + far[0, i] * (sums.offset - sums.start - 1.0) + far[2, i]
            ranks[2, i] = (slope[m] - far[3, i]) / sums.tau + sums.rho * far[0, i]
        _add_steps(items, level, weights[level], problem, sums, ranks)


@_jit
def _add_steps(items: _Items, level: int, weight: float, problem: Problem, sums: _Sums, ranks: Any) -> None:
    """What is a step or a straight line in the ranks of a level's positives: differences of prefix sums."""
    n = len(items.x)
    # Number of lower items, and weight of all but the higher.
    lowers, sames = np.empty(n + 1), np.empty(n + 1)
    lower, same = 0.0, 0.0
    # Only where there are items of higher levels.
    hrank = problem.hrank and problem.kind == AP and items.starts[level + 1] < n
    for i in range(n):
        lowers[i], sames[i] = lower, same
        least = min(items.weight[i], weight)  # the weight of level 0 is 0
        lower += 1.0 if items.level[i] < level else 0.0
        same += 0.0 if hrank and items.level[i] > level else least
    lowers[n], sames[n] = lower, same
    targets = items.members[items.starts[level] : items.starts[level + 1]]
    for i in targets:
        after = items.after[i]
        ahead = lower - lowers[after]
        ranks[0, i] += (n - after) - ahead + sums.start * ahead
        ranks[1, i] = weight + same - sames[after]
    if hrank:
        higher = _places(items, level + 1, len(items.starts) - 2)
        _add_up(items, higher, targets, weight, sums, ranks)


@_jit
def _add_up(items: _Items, higher: Any, targets: Any, weight: float, sums: _Sums, ranks: Any) -> None:
    """Add H_up over the items of higher levels to the hierarchical ranks."""
    x, gamma, nu, mu = items.x, sums.gamma, sums.nu, sums.mu
    count = len(higher)
    # Sums of the weights of the first items, and of their weights times scores.
    sizes, products = np.zeros(count + 1), np.zeros(count + 1)
    for n in range(count):
        least = min(items.weight[higher[n]], weight)
        sizes[n + 1] = sizes[n] + least
        products[n + 1] = products[n] + least * x[higher[n]]
    after, one = 0, 0  # the first with a higher score, the first where H_up is 1
    for i in targets:
        while after < count and higher[after] < items.after[i]:
            after += 1
        one = max(one, after)
        while one < count and nu * (x[higher[one]] - x[i]) + mu < 1.0:
            one += 1
        between = sizes[one] - sizes[after]
        ranks[1, i] += gamma * (products[after] - x[i] * sizes[after]) + sizes[count] - sizes[one]
        ranks[1, i] += nu * (products[one] - products[after] - x[i] * between) + mu * between
        ranks[3, i] = gamma * sizes[after] + nu * between


@_jit
def _step_gradient(
    items: _Items, weights: Any, problem: Problem, sums: _Sums, by_rank: Any, by_graded: Any, g: Any
) -> None:
    """Add the gradient by the scores of all items, from positives of other levels."""
    n, depth = len(items.x), len(weights) - 1
    moments = _moments(items, by_rank[items.members], 1)
    slope, far = np.empty(n), np.empty((4, n))
    higher = np.zeros(moments.shape[1])
    for level in range(depth, -1, -1):
        if level < depth:
            higher += moments[level + 1]
        targets = items.members[items.starts[level] : items.starts[level + 1]]
        if len(targets) == 0:
            continue
        if items.starts[level + 1] < n:  # there are items of higher levels
            _sigmoid_sums(items, level, higher, sums.table, slope[:0], slope)
            _beyond(items, _places(items, level + 1, depth), by_rank, targets, sums, True, far)
            for m in range(items.starts[level], items.starts[level + 1]):
                i = items.members[m]
                g[i] += (slope[m] - far[3, i]) / sums.tau + sums.rho * far[0, i]
        if level > 1 and problem.hrank and problem.kind == AP:
            _add_step_gradient(items, level, weights[level], sums, by_graded, g)


@_jit
def _add_step_gradient(items: _Items, level: int, weight: float, sums: _Sums, by_graded: Any, g: Any) -> None:
    """Add the gradient by the scores of a level's items, from the hierarchical rank of lower positives."""
    x, n, gamma, nu, mu = items.x, len(items.x), sums.gamma, sums.nu, sums.mu
    factors, total = np.empty(n + 1), 0.0
    for i in range(n):
        factors[i] = total
        total += by_graded[i] * min(items.weight[i], weight) if items.level[i] < level else 0.0
    factors[n] = total
    near = 0  # first place where H_up still rises
    for i in items.members[items.starts[level] : items.starts[level + 1]]:
        before = items.before[i]
        while near < before and not nu * (x[i] - x[near]) + mu < 1.0:
            near += 1
        g[i] += gamma * (total - factors[before]) + nu * (factors[before] - factors[min(near, before)])


@_jit
def _graded_moments(moments: Any, weights: Any, level: int) -> Any:
    """Moments of all items, each times the smaller weight of its own level and of ``level``."""
    result = np.zeros(moments.shape[1])
    for other in range(1, len(weights)):
        result += min(weights[other], weights[level]) * moments[other]
    return result


@_jit
def _smooth_ranks(items: _Items, moments: Any, weights: Any, sums: _Sums, ranks: Any) -> None:
    n, tau = len(items.x), sums.tau
    value, slope, graded, graded_slope = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    total = moments.sum(0)
    for level in range(1, len(weights)):
        weight = weights[level]
        _sigmoid_sums(items, level, total, sums.table, value, slope)
        _sigmoid_sums(
            items, level, _graded_moments(moments, weights, level), sums.table, graded, graded_slope
        )
        for m in range(items.starts[level], items.starts[level + 1]):
            i = items.members[m]
            # No item is compared with itself, where the sigmoid is 1/2.
            ranks[0, i] = 0.5 + value[m]
            ranks[1, i] = 0.5 * weight + graded[m]
            ranks[2, i] = slope[m] / tau
            ranks[3, i] = graded_slope[m] / tau


@_jit
def _smooth_gradient(items: _Items, weights: Any, sums: _Sums, by_rank: Any, by_graded: Any, g: Any) -> None:
    slope = np.empty(len(items.x))
    total = _moments(items, by_rank[items.members], 1).sum(0)
    graded = _moments(items, by_graded[items.members], 1)
    for level in range(len(weights)):
        moments = total + _graded_moments(graded, weights, level)
        _sigmoid_sums(items, level, moments, sums.table, slope[:0], slope)
        for m in range(items.starts[level], items.starts[level + 1]):
            g[items.members[m]] += slope[m] / sums.tau
