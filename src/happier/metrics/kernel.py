"""The compiled CPU kernel: one row of scores -> the tallies behind every metric, in O(N + P L).

Only the positives are sorted. Negatives are counted between positives:

1. in depth-first label order the positives of each level are one contiguous range, so they are picked from
   the row by position and their levels are known;
2. a monotone function of the score spreads the positives over a table of steps; placed by step they are
   nearly sorted, and an insertion sort finishes. The sort is stable and they were collected in the order
   wanted for equal scores, so ties need no extra handling;
3. each negative looks up its step, which says between which positives it falls; only those that share their
   step with positives are compared with them;
4. AP is a plain sum once the positives of a level are in a list of their own: the i-th of them has rank
   ``i`` among them. Each level's list is filtered from the one before. DCG and ASI are sums over ranks too.

Loops are written without unpredictable branches: a mispredicted one costs more than the work it saves.
Positions are unsigned, which avoids the check for negative indices. Sums are float64. Arrays, and scalars of
the scores' own type, are annotated ``Any``: numba compiles a function for each type that it is called with.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from happier.numba_cache import jit

# Columns of the tally row that `tally_block` writes for each query, before the per-level ones.
ASI, DCG, HAP, FIRST_MISTAKE, TIED = range(5)
SCALARS = 5

_CHUNK = 2048
# Up to which share of the positives, highest first, each piece of `_find_steps` reaches; read off a sample.
_SHARES = (0.01, 0.1, 0.5, 0.9, 1.0)
_SAMPLE = 128
# Rank and level of a positive are packed into one number, which is faster to move than two.
_LEVEL_BITS, _LEVEL = np.uint64(8), np.uint64(255)
# Positives that `_full_until` processes at a time.
_STRIDE = 256


class _Row(NamedTuple):
    """One query: its scores, and where its positives are (see `tally_block`)."""

    scores: Any
    order: Any
    place: Any
    starts: Any
    stops: Any
    blanks: Any  # positions, in the order, of absent items
    counts: Any
    relevance: Any


class _Workspace(NamedTuple):
    """Buffers, reused for each query of a block."""

    raw: Any  # scores of the positives as collected, [P]
    raw_levels: Any
    scores: Any  # and sorted, [P + 2]
    levels: Any
    pieces: Any  # of `_find_steps`, [pieces, 3]
    depths: Any  # steps before rounding, [chunk]
    index: Any  # steps, or places, [max(P, chunk)]
    near: Any  # items with positives in their step, [chunk]
    picked: Any  # scores of some negatives, [chunk]
    first: Any  # first positive of each step or a later one, [steps + 3]
    ahead: Any  # negatives between positives, [P + 1]
    found: Any  # rank and level of each positive, [P]
    rest: Any  # the same, where relevance does not rise with the level
    harmonic: Any  # sum of 1/n up to each index, [P + 1]


# Divisions are not checked for zero, which would keep them out of vector lanes.
_jit = jit(nogil=True, error_model="numpy")
# Sums of positive terms may be taken in any order: it lets them run in vector lanes.
_jit_sum = jit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})


@_jit
def _pack(rank: Any, level: Any) -> Any:
    return np.uint64(rank) << _LEVEL_BITS | np.uint64(level)


@_jit
def _rank(packed: Any) -> Any:
    return np.int32(packed >> _LEVEL_BITS)


@_jit
def _level(packed: Any) -> Any:
    return np.int8(packed & _LEVEL)


@_jit
def _prefetch(row: Any) -> Any:
    """Read the row in order, which is fast, so that later random reads hit the cache."""
    highest = row[0]
    for j in range(0, len(row), 8):  # a cache line holds 8 scores or more
        highest = max(highest, row[j])
    return highest


@_jit
def _collect_positives(query: _Row, worst: bool, space: _Workspace) -> int:
    """Copy the positives' scores and levels, in the order of equal scores; return how many there are.

    ``starts[l], stops[l]`` is the range of level ``l + 1`` or finer in the order; ranges are nested, so the
    items of exactly that level are what the next range leaves out on its two sides.
    """
    row, order, starts, stops, blanks = query.scores, query.order, query.starts, query.stops, query.blanks
    scores, levels = space.raw, space.raw_levels
    depth = len(starts)
    count = 0
    for step in range(depth):
        level = step if worst else depth - 1 - step
        start, stop = starts[level], stops[level]
        inner_start, inner_stop = stop, stop
        if level + 1 < depth and starts[level + 1] < stops[level + 1]:
            inner_start, inner_stop = starts[level + 1], stops[level + 1]
        for side in range(2):
            first = start if side == 0 else inner_stop
            last = inner_start if side == 0 else stop
            while first < last:  # runs between blanks, nearly always the whole
                stop_run = last
                for blank in blanks:
                    if first <= blank < stop_run:
                        stop_run = blank
                size = stop_run - first
                for i in range(np.uint64(size)):
                    scores[np.uint64(count) + i] = row[order[np.uint64(first) + i]]
                levels[count : count + size] = level + 1
                count += size
                first = stop_run + 1 if stop_run < last else last
    return count


@_jit
def _before(score_a: Any, level_a: Any, score_b: Any, level_b: Any, worst: bool) -> Any:
    """Whether item a ranks before item b."""
    if score_a != score_b:
        return score_a > score_b
    return level_a < level_b if worst else level_a > level_b


@_jit
def _sift_down(scores: Any, levels: Any, root: int, size: int, worst: bool) -> None:
    while 2 * root + 1 < size:
        child = 2 * root + 1
        if child + 1 < size and _before(
            scores[child], levels[child], scores[child + 1], levels[child + 1], worst
        ):
            child += 1
        if not _before(scores[root], levels[root], scores[child], levels[child], worst):
            return
        scores[root], scores[child] = scores[child], scores[root]
        levels[root], levels[child] = levels[child], levels[root]
        root = child


@_jit
def _heap_sort(scores: Any, levels: Any, count: int, worst: bool) -> None:
    for root in range(count // 2 - 1, -1, -1):
        _sift_down(scores, levels, root, count, worst)
    for end in range(count - 1, 0, -1):
        scores[0], scores[end] = scores[end], scores[0]
        levels[0], levels[end] = levels[end], levels[0]
        _sift_down(scores, levels, 0, end, worst)


@_jit
def _insertion_sort(scores: Any, levels: Any, count: int) -> bool:
    """Insertion sort of a nearly sorted list; gives up and returns False where it is not nearly sorted."""
    budget = 4 * count + 1000
    for i in range(1, count):
        if scores[i] > scores[i - 1]:
            score, level = scores[i], levels[i]
            j = i
            while j > 0 and score > scores[j - 1]:
                scores[j], levels[j] = scores[j - 1], levels[j - 1]
                j -= 1
            scores[j], levels[j] = score, level
            budget -= i - j
            if budget < 0:
                return False
    return True


@_jit
def _spread(raw: Any, count: int, steps: int, pieces: Any) -> Any:
    """Choose the pieces of `_find_steps` so that positives fill the steps evenly; return the lowest score.

    A piece begins at a score, has a slope in steps per score, and a number of steps in all. The inner ends
    are quantiles of a sample: they decide how evenly the steps are filled, not the result.
    """
    kind = raw.dtype.type
    low, high = raw[0], raw[0]
    for i in range(count):
        low = min(low, raw[i])
        high = max(high, raw[i])
    size = min(count, _SAMPLE)
    sample = np.empty(size, dtype=raw.dtype)
    for i in range(size):
        score = raw[i * count // size]
        j = i
        while j > 0 and score > sample[j - 1]:
            sample[j] = sample[j - 1]
            j -= 1
        sample[j] = score
    upper, before = high, 0.0
    for piece in range(len(pieces)):
        share = _SHARES[piece]
        lower = sample[int(share * (size - 1))] if share < 1 else low
        length = kind((share - before) * (steps - 0.5))
        slope = length / (upper - lower) if upper > lower else kind(1)
        pieces[piece, 0] = upper
        pieces[piece, 1] = slope if 0 < slope < np.inf else kind(1)
        pieces[piece, 2] = length
        upper, before = lower, share
    return low


@_jit
def _find_steps(scores: Any, pieces: Any, low: Any, depths: Any, index: Any) -> None:
    """Step 0..steps of each score, rising as the score falls; what is below the lowest positive has its own.

    Each piece adds between 0 and its length. Every operation is monotone, rounding included, so equal
    scores share a step and a higher score is never in a later one.
    """
    kind = scores.dtype.type
    zero, one = kind(0), kind(1)  # of the scores' own type: a wider one would halve the vector width
    for j in range(len(scores)):
        depths[j] = one if scores[j] < low else zero
    for piece in range(len(pieces)):
        start, slope, length = pieces[piece, 0], pieces[piece, 1], pieces[piece, 2]
        for j in range(len(scores)):
            depths[j] += min(max((start - scores[j]) * slope, zero), length)
    for j in range(len(scores)):
        index[j] = np.uint32(np.int32(depths[j]))


@_jit
def _table_size(positives: int) -> int:
    """Several steps per positive: most negatives then share theirs with none; the table must fit in cache."""
    steps = 16
    while steps < 4 * positives and steps < 1 << 17:
        steps *= 2
    return steps


@_jit
def _sort_positives(space: _Workspace, count: int, worst: bool, steps: int, low: Any) -> None:
    """Stable sort by falling score.

    ``first[s]`` becomes the first positive of step s or a later one.
    """
    raw, raw_levels, scores, levels = space.raw, space.raw_levels, space.scores, space.levels
    index, first = space.index, space.first
    first[: steps + 3] = 0
    one, two = np.uint32(1), np.uint32(2)
    for begin in range(0, count, _CHUNK):
        part = index[begin : min(begin + _CHUNK, count)]
        _find_steps(raw[begin : begin + len(part)], space.pieces, low, space.depths, part)
        for i in range(len(part)):  # offset by two: filling a step then moves its start to its final value
            first[part[i] + two] += one
    total = np.uint32(0)
    for step in range(steps + 3):
        total += first[step]
        first[step] = total
    # Places, scores and levels in separate loops: one loop that scatters into three tables is slower.
    for i in range(count):
        step = index[i] + one
        index[i] = first[step]
        first[step] = index[i] + one
    for i in range(count):
        scores[index[i]] = raw[i]
    for i in range(count):
        levels[index[i]] = raw_levels[i]
    if not _insertion_sort(scores, levels, count):
        _heap_sort(scores, levels, count, worst)


@_jit
def _count_part(part: Any, space: _Workspace) -> Any:
    """Add to ``ahead`` the items of a part whose steps are known; return whether one ties a positive."""
    scores, index, near, first, ahead = space.scores, space.index, space.near, space.first, space.ahead
    tied = False
    one = np.uint64(1)
    close = np.uint64(0)
    for j in range(np.uint64(len(part))):
        step = np.uint64(index[j])
        i = first[step]
        alone = np.uint64(first[step + one] == i)
        ahead[i] += np.uint32(alone)
        near[close] = np.uint32(j)
        close += one - alone
    for n in range(close):  # those that have positives in their step
        j = near[n]
        score, step = part[j], np.uint64(index[j])
        i = np.uint64(first[step])
        # Two independent comparisons; the scores fall, so their sum is the place.
        i += np.uint64(scores[i] > score) + np.uint64(scores[i + one] > score)
        if scores[i] > score:  # rare: many positives in one step
            end = np.uint64(first[step + one])
            while i < end:
                middle = (i + end) >> one
                if scores[middle] > score:
                    i = middle + one
                else:
                    end = middle
        ahead[i] += np.uint32(1)
        tied |= scores[i] == score
    return tied


@_jit
def _count_negatives(query: _Row, low: Any, steps: int, space: _Workspace) -> bool:
    """Add to ``ahead[i]`` the negatives behind positive i-1 and not behind i; return whether one ties.

    Items whose place lies in start..stop are positives. Where they are few, the row is read as it is and they
    are counted in a step of their own, after all others; where they are many, negatives are picked from it.
    Of equal scores the negative comes first. Two NaN after the last positive's score stop every search.
    """
    tied = False
    row, order, place = query.scores, query.order, query.place
    start, stop = query.starts[0], query.stops[0]
    pieces, depths, index, picked = space.pieces, space.depths, space.index, space.picked
    items = len(row)
    if 3 * (stop - start) > items:
        for side in range(2):
            last = start if side == 0 else items
            for begin in range(0 if side == 0 else stop, last, _CHUNK):
                part = picked[: min(_CHUNK, last - begin)]
                for j in range(np.uint64(len(part))):
                    part[j] = row[order[np.uint64(begin) + j]]
                _find_steps(part, pieces, low, depths, index)
                tied |= _count_part(part, space)
        return tied
    behind_all = np.uint32(steps + 1)
    begin_positives, width = np.uint32(start), np.uint32(stop - start)
    for begin in range(0, items, _CHUNK):
        part, places = row[begin : begin + _CHUNK], place[begin : begin + _CHUNK]
        _find_steps(part, pieces, low, depths, index)
        for j in range(len(part)):
            is_positive = np.uint32(places[j] - begin_positives) < width
            index[j] = behind_all if is_positive else index[j]
        tied |= _count_part(part, space)
    return tied


@_jit
def _tied_negatives_last(query: _Row, count: int, space: _Workspace) -> None:
    """Move the negatives that tie positives behind all of those: for ties="best"."""
    row, order, scores, ahead = query.scores, query.order, space.scores, space.ahead
    start, stop = query.starts[0], query.stops[0]
    end = space.index
    for i in range(count - 1, -1, -1):  # one past the last positive of equal score
        end[i] = end[i + 1] if i + 1 < count and scores[i] == scores[i + 1] else i + 1
    for position in range(len(row)):
        if start <= position < stop:
            continue
        score = row[order[position]]
        i, last = 0, count
        while i < last:
            middle = (i + last) // 2
            if scores[middle] > score:
                i = middle + 1
            else:
                last = middle
        if scores[i] == score:
            ahead[i] -= np.uint32(1)
            ahead[end[i]] += np.uint32(1)


@_jit
def _fill_harmonic(harmonic: Any) -> None:
    """Sum of 1/n up to each index, with compensated (Kahan) summation."""
    total, excess = 0.0, 0.0
    harmonic[0] = 0.0
    for n in range(1, len(harmonic)):
        term = 1.0 / n - excess
        harmonic[n] = total + term
        excess = (harmonic[n] - total) - term
        total = harmonic[n]


@_jit
def _full_until(found: Any, positives: int, level: int, above: int) -> Any:
    """The largest n such that, of the top n, no more than ``above`` are of other levels than ``level``."""
    one, own, count, stride = np.uint64(1), np.uint64(level), np.uint64(positives), np.uint64(_STRIDE)
    last = np.uint64(above) + one  # the last rank that the next item may have
    i = np.uint64(0)
    while i + stride < count:
        passed = np.uint64(0)
        for j in range(i, i + stride):
            passed += np.uint64((found[j] & _LEVEL) == own)
        if found[i + stride] >> _LEVEL_BITS > last + passed:
            break
        last += passed
        i += stride
    while i < count and found[i] >> _LEVEL_BITS <= last:
        last += np.uint64((found[i] & _LEVEL) == own)
        i += one
    return last - one


@_jit
def _tally_ranks(found: Any, positives: int, counts: Any, discounts: Any, harmonic: Any, out: Any) -> None:
    """DCG and ASI.

    Where the ideal list is in level m at depth n, with ``a`` gallery items above m, the intersection is

        (items above m in the top n) + min(items of m in the top n, n - a)

    Items of other levels in the top n only grow in number with n, so the minimum is ``n - a`` down to some
    depth ``u_m``, and the items of m beyond it. There, an item of m counts at each depth from its rank to the
    number of positives P: among m's own first, then among those above. With H(n) the sum of 1/1 to 1/n,

        P ASI = sum_m ((u_m - a) (1 + H(P) - H(u_m)) - a (H(u_m) - H(a)))
                + sum (H(P) - H(rank - 1)) over the items with u_m < rank <= P
    """
    depth = len(counts) - 1
    gains = np.empty(depth + 1)
    full = np.zeros(depth + 1, dtype=np.uint64)  # u_m
    whole = harmonic[positives]
    common, above = 0.0, 0
    for level in range(depth, 0, -1):
        gains[level] = 2.0**level - 1
        full[level] = _full_until(found, positives, level, above)
        common += (np.int64(full[level]) - above) * (1 + whole - harmonic[full[level]])
        common -= above * (harmonic[full[level]] - harmonic[above])
        above += counts[level]
    dcg = 0.0
    one, count = np.uint64(1), np.uint64(positives)
    for i in range(count):
        rank, level = found[i] >> _LEVEL_BITS, found[i] & _LEVEL
        dcg += gains[level] * discounts[rank]
        common += whole - harmonic[min(rank - one, count) if rank > full[level] else count]
    out[DCG] = dcg
    out[ASI] = common / positives


@_jit_sum
def _sum_and_keep(found: Any, start: Any, stop: Any, kept: Any, level: int) -> Any:
    """Sum of i / rank over places start..stop of a list of positives, which keeps those finer than ``level``.

    Kept items move up after the ``kept`` before them.
    """
    total = 0.0
    for i in range(start, stop):
        total += np.float64(np.int32(i + 1)) / np.float64(_rank(found[i]))
    place, coarser = np.uint64(kept), np.uint64(level)
    for i in range(np.uint64(start), np.uint64(stop)):
        found[place] = found[i]
        place += np.uint64((found[i] & _LEVEL) > coarser)
    return total, np.int64(place)


@_jit
def _rising_levels(relevance: Any, counts: Any, filled: Any) -> int:
    """Up to which level the relevance orders the levels as the tree does, finer ones all above.

    ``filled`` is the relevance with each empty level taking its neighbour's value: its step is then 0.
    """
    depth = len(relevance) - 1
    filled[0] = 0.0
    for level in range(1, depth + 1):
        filled[level] = relevance[level] if counts[level] > 0 else filled[level - 1]
    smallest = np.inf
    rising = depth
    for level in range(depth, 0, -1):
        if filled[level - 1] > min(smallest, filled[level]):
            rising = level - 1
        smallest = min(smallest, filled[level])
    return max(rising - 1, 0) if rising < depth else depth


@_jit
def _hap_of_rest(found: Any, count: int, rising: int, filled: Any, rest: Any) -> Any:
    """H-AP sum of the levels above ``rising``, taken in order of relevance; ``count`` items are in them."""
    depth = len(filled) - 1
    by_value = np.argsort(filled[rising + 1 :]) + rising + 1
    place = np.zeros(depth + 1, dtype=np.int8)
    for position in range(len(by_value)):
        place[by_value[position]] = position + 1
    for i in range(count):
        rest[i] = _pack(_rank(found[i]), place[_level(found[i])])
    total = 0.0
    before = filled[rising]
    for position in range(len(by_value)):
        precision, count = _sum_and_keep(rest, 0, count, 0, position + 1)
        total += (filled[by_value[position]] - before) * precision
        before = filled[by_value[position]]
    return total


@_jit
def _tally_levels(found: Any, positives: int, counts: Any, relevance: Any, rest: Any, out: Any) -> None:
    """AP and AP@R sums of each level, and the sum of hrank / rank; overwrites ``found``.

    The last is ``sum_v (v - v_prev) |S_v| AP(S_v)`` over the distinct relevances v, ``S_v`` the items of
    relevance v or more. Where relevance rises with the level those are the levels' own positives.
    """
    depth = len(counts) - 1
    filled = np.empty(depth + 1)
    rising = _rising_levels(relevance, counts, filled)
    count = positives
    for level in range(1, depth + 1):
        if level == rising + 1:
            out[HAP] += _hap_of_rest(found, count, rising, filled, rest)
        inside = np.searchsorted(found[:count], _pack(count + 1, 0))  # rank <= R, the number of positives
        sum_inside, kept = _sum_and_keep(found, 0, inside, 0, level)
        sum_behind, count = _sum_and_keep(found, inside, count, kept, level)
        total = sum_inside + sum_behind
        out[SCALARS + level - 1] = total
        out[SCALARS + depth + level - 1] = sum_inside
        if level <= rising:
            out[HAP] += (filled[level] - filled[level - 1]) * total


@_jit
def _read_head(found: Any, positives: int, items: int, head: Any) -> None:
    """Levels of the first ranks, -1 past the end of the list."""
    for position in range(len(head)):
        head[position] = 0 if position < items else -1
    for i in range(positives):
        if _rank(found[i]) > len(head):
            break
        head[_rank(found[i]) - 1] = _level(found[i])


@_jit
def _first_mistake(found: Any, positives: int, items: int, depth: int) -> Any:
    """Tree distance of the first item that is not of the query's finest class; NaN if there is none."""
    i = 0
    while i < positives and found[i] == _pack(i + 1, depth):
        i += 1
    if i == items:
        return np.nan
    if i < positives and _rank(found[i]) == i + 1:
        return np.float64(depth - _level(found[i]))
    return np.float64(depth)


@_jit
def _tally_query(query: _Row, discounts: Any, worst: bool, space: _Workspace, out: Any, head: Any) -> None:
    scores, levels, ahead, found = space.scores, space.levels, space.ahead, space.found
    counts = query.counts
    depth = len(query.starts)
    items = len(query.scores) - len(query.blanks)
    out[:] = 0.0
    positives = _collect_positives(query, worst, space)
    if positives == 0:
        out[FIRST_MISTAKE] = np.float64(depth) if items > 0 else np.nan
        _read_head(found, 0, items, head)
        return
    steps = _table_size(positives)
    low = _spread(space.raw, positives, steps, space.pieces)
    _sort_positives(space, positives, worst, steps, low)
    scores[positives : positives + 2] = np.nan
    ahead[: positives + 1] = 0
    tied = _count_negatives(query, low, steps, space)
    # Blanked negatives were counted before the first positive.
    ahead[0] -= np.uint32(len(query.scores) - (query.stops[0] - query.starts[0]) - counts[0])
    if tied and not worst:
        _tied_negatives_last(query, positives, space)
    before = np.uint32(0)
    for i in range(positives):
        before += ahead[i]
        found[i] = _pack(before + np.uint32(i + 1), levels[i])
    for i in range(1, positives):
        tied |= (scores[i] == scores[i - 1]) & (levels[i] != levels[i - 1])
    out[TIED] = tied
    out[FIRST_MISTAKE] = _first_mistake(found, positives, items, depth)
    _read_head(found, positives, items, head)
    _tally_ranks(found, positives, counts, discounts, space.harmonic, out)
    _tally_levels(found, positives, counts, query.relevance, space.rest, out)


@_jit
def _workspace(width: int, scores: Any) -> _Workspace:
    """For up to ``width - 1`` positives of a query, scores being of the type of ``scores``."""
    space = _Workspace(
        np.empty(width, dtype=scores.dtype),
        np.empty(width, dtype=np.int8),
        np.empty(width + 1, dtype=scores.dtype),
        np.empty(width, dtype=np.int8),
        np.empty((len(_SHARES), 3), dtype=scores.dtype),
        np.empty(_CHUNK, dtype=scores.dtype),
        np.empty(max(width, _CHUNK), dtype=np.uint32),
        np.empty(_CHUNK, dtype=np.uint32),
        np.empty(_CHUNK, dtype=scores.dtype),
        np.empty(_table_size(width) + 3, dtype=np.uint32),
        np.empty(width, dtype=np.uint32),
        np.empty(width, dtype=np.uint64),
        np.empty(width, dtype=np.uint64),
        np.empty(width),
    )
    _fill_harmonic(space.harmonic)
    return space


@_jit
def tally_block(
    block: Any, order: Any, place: Any, starts: Any, stops: Any, excluded: Any, excluded_start: Any,
    counts: Any, relevance: Any, discounts: Any, worst: bool, out: Any, head: Any,
) -> None:  # fmt: skip
    """Tally a block of score rows, which it may overwrite.

    Args:
        block: scores ``[q, N]``, float32 or float64.
        order: gallery items in depth-first label order, uint32 ``[N]``.
        place: position of each item in that order, uint32 ``[N]``.
        starts: first position in the order of each query's positives at each level or finer ``[q, L]``.
        stops: one past the last ``[q, L]``.
        excluded: items never retrieved, concatenated over the queries.
        excluded_start: where each query's part of ``excluded`` begins ``[q + 1]``.
        counts: gallery items per level, without the excluded ones ``[q, L + 1]``.
        relevance: relevance per level ``[q, L + 1]``.
        discounts: ``1 / log2(1 + rank)`` at index rank ``[N + 1]``.
        worst: lower levels first among equal scores.
        out: float64 ``[q, SCALARS + 2 L]``: scalars, then AP sums, then AP@R sums by level.
        head: int8 ``[q, k]``: level at each of the first k ranks, -1 past the end.
    """
    width = 0
    for q in range(len(block)):
        width = max(width, stops[q, 0] - starts[q, 0])
    space = _workspace(width + 1, block)  # one more place, after the last
    for q in range(len(block)):
        row = block[q]
        out[q, 0] = _prefetch(row)  # stored, so that the compiler keeps the call; overwritten below
        absent = excluded[excluded_start[q] : excluded_start[q + 1]]
        for item in absent:
            row[item] = np.inf
        query = _Row(
            row, order, place, starts[q], stops[q], place[absent].astype(np.int64), counts[q], relevance[q]
        )
        _tally_query(query, discounts, worst, space, out[q], head[q])
