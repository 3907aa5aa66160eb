"""The compiled CPU kernel: one row of scores -> the tallies that every metric is made of, in O(N + P L).

Nothing is sorted but the positives. Negatives are only counted between positives:

1. the gallery's positives at each level are one contiguous range of ``order`` (gallery in depth-first label
   order), so collecting them is a gather, and their level is known from the range they stand in;
2. positives are bucket sorted by score, each bucket then fixed up exactly;
3. each negative looks up its bucket and compares with the few positives in it;
4. one pass over the sorted positives gives every AP, DCG and H-AP; another, over n <= P, gives ASI.

Sums are float64. The mapping from score to bucket is monotone, so the result does not depend on it.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

# Columns of the tally row that `tally_block` writes for each query, before the per-level ones.
ASI, DCG, HAP, FIRST_MISTAKE, TIED = range(5)
SCALARS = 5

_jit = numba.njit(cache=True, nogil=True)
# Below this size a bucket is put in order by insertion, above it by heap: ties can fill one bucket.
_INSERTION = 24


@_jit
def _before(score_a: Any, level_a: Any, score_b: Any, level_b: Any, worst: bool) -> Any:
    """Whether item a stands before item b in the ranking."""
    if score_a != score_b:
        return score_a > score_b
    return level_a < level_b if worst else level_a > level_b


@_jit
def _insertion_sort(scores: Any, levels: Any, start: int, stop: int, worst: bool) -> None:
    for i in range(start + 1, stop):
        score, level = scores[i], levels[i]
        j = i - 1
        while j >= start and _before(score, level, scores[j], levels[j], worst):
            scores[j + 1], levels[j + 1] = scores[j], levels[j]
            j -= 1
        scores[j + 1], levels[j + 1] = score, level


@_jit
def _sift_down(scores: Any, levels: Any, start: int, root: int, size: int, worst: bool) -> None:
    while 2 * root + 1 < size:
        child = 2 * root + 1
        a = start + child
        if child + 1 < size and _before(scores[a], levels[a], scores[a + 1], levels[a + 1], worst):
            child += 1
            a += 1
        r = start + root
        if not _before(scores[r], levels[r], scores[a], levels[a], worst):
            return
        scores[r], scores[a] = scores[a], scores[r]
        levels[r], levels[a] = levels[a], levels[r]
        root = child


@_jit
def _heap_sort(scores: Any, levels: Any, start: int, stop: int, worst: bool) -> None:
    size = stop - start
    for root in range(size // 2 - 1, -1, -1):
        _sift_down(scores, levels, start, root, size, worst)
    for end in range(size - 1, 0, -1):
        a = start + end
        scores[start], scores[a] = scores[a], scores[start]
        levels[start], levels[a] = levels[a], levels[start]
        _sift_down(scores, levels, start, 0, end, worst)


@_jit
def _collect_positives(row: Any, order: Any, starts: Any, stops: Any, scores: Any, levels: Any) -> int:
    """Gather the positives' scores and levels, and blank them in the row; return how many there are.

    ``starts[l], stops[l]`` is the range of level ``l + 1`` or finer in ``order``; ranges are nested, so the
    items of exactly that level are what the next range leaves out on its two sides.
    """
    depth = len(starts)
    blank = row.dtype.type(-np.inf)
    count = 0
    for level in range(1, depth + 1):
        start, stop = starts[level - 1], stops[level - 1]
        if level < depth and starts[level] < stops[level]:
            inner_start, inner_stop = starts[level], stops[level]
        else:
            inner_start, inner_stop = stop, stop
        for side in range(2):
            first = start if side == 0 else inner_stop
            last = inner_start if side == 0 else stop
            for position in range(first, last):
                item = order[position]
                score = row[item]
                if score != blank:
                    scores[count] = score
                    levels[count] = level
                    count += 1
                    row[item] = blank
        if inner_start == inner_stop:
            break
    return count


@_jit
def _bucket_range(scores: Any, count: int) -> tuple[Any, Any]:
    """Scores between which the buckets are spread: nearly all positives, outliers left out."""
    low, high = scores[0], scores[0]
    total, squares = 0.0, 0.0
    for i in range(count):
        score = scores[i]
        low = min(low, score)
        high = max(high, score)
        total += score
        squares += score * score
    mean = total / count
    spread = 3.5 * np.sqrt(max(squares / count - mean * mean, 0.0))
    return max(np.float64(low), mean - spread), min(np.float64(high), mean + spread)


@_jit
def _bucket_number(positives: int) -> int:
    """About one bucket a positive; few enough to be whole numbers in float32."""
    buckets = 1
    while buckets < positives and buckets < 1 << 22:
        buckets *= 2
    return buckets


@_jit
def _bucket_of(score: Any, high: Any, scale: Any, last: Any) -> Any:
    """Bucket 0..last, descending in score; monotone, so equal scores share a bucket."""
    bucket = (high - score) * scale
    zero = last - last  # of the scores' own type: a wider one would halve the vector width
    return np.int32(min(max(bucket, zero), last))


@_jit
def _sort_positives(
    raw: Any, raw_levels: Any, count: int, high: Any, scale: Any, buckets: int, worst: bool,
    scores: Any, levels: Any, first: Any,
) -> None:  # fmt: skip
    """Bucket sort into ``scores, levels``; bucket b then holds ``first[b] .. first[b + 1]``."""
    last = raw.dtype.type(buckets - 1)
    first[: buckets + 2] = 0
    for i in range(count):
        first[_bucket_of(raw[i], high, scale, last) + 2] += 1
    for b in range(2, buckets + 2):
        first[b] += first[b - 1]
    for i in range(count):
        b = _bucket_of(raw[i], high, scale, last) + 1
        place = first[b]
        first[b] = place + 1
        scores[place] = raw[i]
        levels[place] = raw_levels[i]
    for b in range(buckets):
        size = first[b + 1] - first[b]
        if size > _INSERTION:
            _heap_sort(scores, levels, first[b], first[b + 1], worst)
        elif size > 1:
            _insertion_sort(scores, levels, first[b], first[b + 1], worst)


@_jit
def _count_negatives(
    row: Any,
    scores: Any,
    high: Any,
    scale: Any,
    buckets: int,
    first: Any,
    worst: bool,
    index: Any,
    ahead: Any,
) -> bool:
    """Count in ``ahead[i]`` the negatives between positives i-1 and i; return whether one ties a positive."""
    last = row.dtype.type(buckets - 1)
    tied = False
    chunk = len(index)
    for begin in range(0, len(row), chunk):
        size = min(chunk, len(row) - begin)
        # On its own, this loop is turned into vector instructions.
        for j in range(size):
            index[j] = _bucket_of(row[begin + j], high, scale, last)
        for j in range(size):
            score = row[begin + j]
            i, stop = first[index[j]], first[index[j] + 1]
            while stop - i > 8:
                middle = (i + stop) // 2
                if scores[middle] > score or (not worst and scores[middle] == score):
                    i = middle + 1
                else:
                    stop = middle
            while i < stop and (scores[i] > score or (not worst and scores[i] == score)):
                i += 1
            ahead[i] += 1
            if worst:
                tied |= i < stop and scores[i] == score
            else:
                tied |= i > 0 and scores[i - 1] == score
    return tied


@_jit
def _average_set_intersection(ranks: Any, levels: Any, positives: int, counts: Any) -> Any:
    """ASI by the identity: with m the level at which the ideal list stands at depth n, the intersection is
    (items above m in the top n) + min(items of m in the top n, n - items above m in the gallery).
    """  # noqa: D205
    depth = len(counts) - 1
    seen = np.zeros(depth + 1, dtype=np.int64)
    m = depth
    while counts[m] == 0:
        m -= 1
    above_total = 0  # gallery items above level m
    above_seen = 0  # those of them in the top n
    total = 0.0
    i = 0
    for n in range(1, positives + 1):
        while n > above_total + counts[m]:
            above_total += counts[m]
            above_seen += seen[m]
            m -= 1
        if i < positives and ranks[i] == n:
            level = levels[i]
            if level > m:
                above_seen += 1
            else:
                seen[level] += 1
            i += 1
        total += (above_seen + min(seen[m], n - above_total)) / n
    return total / positives


@_jit
def _tally_positives(
    ranks: Any, levels: Any, positives: int, at_least: Any, gains: Any, discounts: Any, out: Any
) -> None:
    """Sums over the sorted positives: AP and AP@R per level, and DCG."""
    depth = len(at_least)
    seen = np.zeros(depth, dtype=np.int64)
    dcg = 0.0
    for i in range(positives):
        rank, level = ranks[i], levels[i]
        inverse = 1.0 / rank
        for l in range(level):  # noqa: E741
            seen[l] += 1
            precision = seen[l] * inverse
            out[SCALARS + l] += precision
            if rank <= at_least[l]:
                out[SCALARS + depth + l] += precision
        dcg += gains[level] * discounts[rank]
    out[DCG] = dcg


@_jit
def _hap_sum(ranks: Any, levels: Any, positives: int, relevance: Any, counts: Any, out: Any) -> Any:
    """Sum of hrank / rank, as ``sum_v (v - v_prev) |S_v| AP(S_v)`` over the distinct relevances v."""
    depth = len(relevance) - 1
    filled = np.zeros(depth + 1)  # an empty level takes its neighbour's value: its step is then 0
    rising = True
    for level in range(1, depth + 1):
        filled[level] = relevance[level] if counts[level] > 0 else filled[level - 1]
        rising &= filled[level] >= filled[level - 1]
    total = 0.0
    if rising:  # then S_v are the levels' own positives, whose AP sums are already there
        for level in range(1, depth + 1):
            total += (filled[level] - filled[level - 1]) * out[SCALARS + level - 1]
        return total
    by_value = np.argsort(filled)
    place = np.empty(depth + 1, dtype=np.int64)
    for position in range(depth + 1):
        place[by_value[position]] = position
    seen = np.zeros(depth + 1, dtype=np.int64)
    for i in range(positives):
        top = place[levels[i]]
        numerator = 0.0
        for position in range(1, top + 1):
            seen[position] += 1
            numerator += (filled[by_value[position]] - filled[by_value[position - 1]]) * seen[position]
        total += numerator / ranks[i]
    return total


@_jit
def _read_head(ranks: Any, levels: Any, positives: int, items: int, head: Any) -> None:
    """Levels of the first ranks, -1 past the end of the list."""
    for position in range(len(head)):
        head[position] = 0 if position < items else -1
    for i in range(positives):
        if ranks[i] > len(head):
            break
        head[ranks[i] - 1] = levels[i]


@_jit
def _first_mistake(ranks: Any, levels: Any, positives: int, items: int, depth: int) -> Any:
    """Tree distance of the first item that is not of the query's finest class; NaN if there is none."""
    i = 0
    while i < positives and ranks[i] == i + 1 and levels[i] == depth:
        i += 1
    if i == items:
        return np.nan
    if i < positives and ranks[i] == i + 1:
        return np.float64(depth - levels[i])
    return np.float64(depth)


@_jit
def _tally_query(
    row: Any, order: Any, starts: Any, stops: Any, excluded: Any, counts: Any, relevance: Any, gains: Any,
    discounts: Any, worst: bool, raw: Any, raw_levels: Any, scores: Any, levels: Any, first: Any, index: Any,
    ahead: Any, out: Any, head: Any,
) -> None:  # fmt: skip
    depth = len(starts)
    blank = row.dtype.type(-np.inf)
    for item in excluded:
        row[item] = blank
    items = len(row) - len(excluded)
    positives = _collect_positives(row, order, starts, stops, raw, raw_levels)
    out[:] = 0.0
    if positives == 0:
        out[FIRST_MISTAKE] = np.float64(depth) if items > 0 else np.nan
        _read_head(ahead, levels, 0, items, head)
        return
    low, high = _bucket_range(raw, positives)
    buckets = _bucket_number(positives)
    kind = row.dtype.type
    scale = kind(buckets / (high - low)) if high > low else kind(1)
    if not np.isfinite(scale):
        scale = kind(1)
    high = kind(high)
    _sort_positives(raw, raw_levels, positives, high, scale, buckets, worst, scores, levels, first)
    ahead[: positives + 1] = 0
    tied = _count_negatives(row, scores, high, scale, buckets, first, worst, index, ahead)
    before = 0
    for i in range(positives):  # from counts between positives to ranks, in place
        before += ahead[i]
        ahead[i] = before + i + 1
        if i > 0 and scores[i] == scores[i - 1] and levels[i] != levels[i - 1]:
            tied = True
    at_least = np.empty(depth, dtype=np.int64)
    running = 0
    for level in range(depth, 0, -1):
        running += counts[level]
        at_least[level - 1] = running
    _tally_positives(ahead, levels, positives, at_least, gains, discounts, out)
    out[ASI] = _average_set_intersection(ahead, levels, positives, counts)
    out[HAP] = _hap_sum(ahead, levels, positives, relevance, counts, out)
    out[FIRST_MISTAKE] = _first_mistake(ahead, levels, positives, items, depth)
    out[TIED] = 1.0 if tied else 0.0
    _read_head(ahead, levels, positives, items, head)


@_jit
def tally_block(
    block: Any, order: Any, starts: Any, stops: Any, excluded: Any, excluded_start: Any, counts: Any,
    relevance: Any, gains: Any, discounts: Any, worst: bool, out: Any, head: Any,
) -> None:  # fmt: skip
    """Tally a block of score rows, which it overwrites.

    Args:
        block: scores ``[q, N]``.
        order: gallery items in depth-first label order ``[N]``.
        starts: first position in ``order`` of each query's positives at each level or finer ``[q, L]``.
        stops: one past the last ``[q, L]``.
        excluded: items never retrieved, of all queries one after another.
        excluded_start: where each query's part of ``excluded`` begins ``[q + 1]``.
        counts: gallery items per level, without the excluded ones ``[q, L + 1]``.
        relevance: relevance per level ``[q, L + 1]``.
        gains: NDCG gain of each level ``[L + 1]``.
        discounts: ``1 / log2(1 + rank)`` at index rank ``[N + 1]``.
        worst: lower levels first among equal scores.
        out: float64 ``[q, SCALARS + 2 L]``: scalars, then AP sums, then AP@R sums by level.
        head: int8 ``[q, k]``: level at each of the first k ranks, -1 past the end.
    """
    width = 0
    for q in range(len(block)):
        width = max(width, stops[q, 0] - starts[q, 0])
    buckets = _bucket_number(width)
    raw = np.empty(width, dtype=block.dtype)
    raw_levels = np.empty(width, dtype=np.int8)
    scores = np.empty(width, dtype=block.dtype)
    levels = np.empty(width, dtype=np.int8)
    first = np.empty(buckets + 2, dtype=np.int32)
    index = np.empty(4096, dtype=np.int32)
    ahead = np.empty(width + 1, dtype=np.int32)
    for q in range(len(block)):
        _tally_query(
            block[q], order, starts[q], stops[q], excluded[excluded_start[q] : excluded_start[q + 1]],
            counts[q], relevance[q], gains, discounts, worst, raw, raw_levels, scores, levels, first, index,
            ahead, out[q], head[q],
        )  # fmt: skip
