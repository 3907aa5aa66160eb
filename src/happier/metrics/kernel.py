"""The compiled CPU kernel: one row of scores -> the tallies that every metric is made of, in O(N + P L).

Only the positives are sorted. Negatives are counted between positives:

1. in depth-first label order the positives of each level are one contiguous range, so they are picked from
   the row by position and their levels are known;
2. a monotone function of the score spreads the positives over a table of steps; put into their steps they are
   nearly sorted, and then put right exactly. The sort is stable and they were collected in the order that
   equal scores shall have, so ties need no further care;
3. each negative looks up its step, which says between which positives it falls; only those that meet
   positives in their own step are compared with them;
4. AP is a plain sum once the positives of a level stand in a list of their own: the i-th of them has rank
   ``i`` among them. Each level's list is drawn from the one before. DCG and ASI are sums over the ranks too.

All of it stands in one file, because numba does not notice when a function of another file changes. Loops are
written without unpredictable branches: a mispredicted one costs more than the work it saves. Places
are unsigned, which spares the check for negative indices. Sums are float64.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from happier.compiled import KEEP

# Columns of the tally row that `tally_block` writes for each query, before the per-level ones.
ASI, DCG, HAP, FIRST_MISTAKE, TIED = range(5)
SCALARS = 5

_CHUNK = 2048
# Up to which share of the positives, highest first, each piece of `_find_steps` reaches; read off a sample.
_SHARES = (0.01, 0.1, 0.5, 0.9, 1.0)
_SAMPLE = 128
# Rank and level of a positive stand in one number, which is faster to move than two.
_LEVEL_BITS, _LEVEL = np.uint64(8), np.uint64(255)
# Positives that `_full_until` passes at a time.
_STRIDE = 256

# Divisions are not checked for zero, which would keep them out of vector lanes.
_jit = numba.njit(cache=KEEP, nogil=True, error_model="numpy")
# Sums of positive terms may be taken in any order: it lets them run in vector lanes.
_jit_sum = numba.njit(cache=KEEP, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})


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
def _bring_near(row: Any) -> Any:
    """Read the row in order, which is fast, so that picking from it at random finds it in cache."""
    highest = row[0]
    for j in range(0, len(row), 8):  # a cache line holds 8 scores or more
        highest = max(highest, row[j])
    return highest


@_jit
def _collect_positives(
    row: Any, order: Any, starts: Any, stops: Any, blanks: Any, worst: bool, scores: Any, levels: Any
) -> int:
    """Copy the positives' scores and levels, in the order of equal scores; return how many there are.

    ``starts[l], stops[l]`` is the range of level ``l + 1`` or finer in the order; ranges are nested, so the
    items of exactly that level are what the next range leaves out on its two sides. ``blanks`` are positions
    of items that are not there.
    """
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
    """Whether item a stands before item b in the ranking."""
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
def _put_right(scores: Any, levels: Any, count: int) -> bool:
    """Insertion sort of what is nearly in order; give up, returning False, where it is not."""
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
    are quantiles of a sample: they decide how evenly the steps are filled, not what comes out.
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

    Each piece adds between nothing and its length. Every operation is monotone, rounding included, so equal
    scores share a step and a higher score never stands in a later one.
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
    """Several steps a positive, so that most negatives meet none in theirs; the table shall stay in cache."""
    steps = 16
    while steps < 4 * positives and steps < 1 << 17:
        steps *= 2
    return steps


@_jit
def _sort_positives(
    raw: Any, raw_levels: Any, count: int, worst: bool, steps: int, pieces: Any, low: Any, depths: Any,
    index: Any, first: Any, scores: Any, levels: Any,
) -> None:  # fmt: skip
    """Sort by falling score, equal scores in the order they came.

    ``first[s]`` becomes the first positive of step s or a later one.
    """
    first[: steps + 3] = 0
    one, two = np.uint32(1), np.uint32(2)
    for begin in range(0, count, _CHUNK):
        part = index[begin : min(begin + _CHUNK, count)]
        _find_steps(raw[begin : begin + len(part)], pieces, low, depths, part)
        for i in range(len(part)):  # two places on, so that filling a step moves its start where it belongs
            first[part[i] + two] += one
    total = np.uint32(0)
    for step in range(steps + 3):
        total += first[step]
        first[step] = total
    # Places, scores and levels in loops apart: one loop writing here and there in three tables is slower.
    for i in range(count):
        step = index[i] + one
        index[i] = first[step]
        first[step] = index[i] + one
    for i in range(count):
        scores[index[i]] = raw[i]
    for i in range(count):
        levels[index[i]] = raw_levels[i]
    if not _put_right(scores, levels, count):
        _heap_sort(scores, levels, count, worst)


@_jit
def _count_part(part: Any, scores: Any, index: Any, near: Any, first: Any, ahead: Any) -> Any:
    """Add to ``ahead`` the items of a part whose steps are known; return whether one ties a positive."""
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
        # Two comparisons that do not wait for each other; the scores fall, so their sum is the place.
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
def _count_negatives(
    row: Any, order: Any, place: Any, start: int, stop: int, scores: Any, pieces: Any, low: Any, steps: int,
    depths: Any, index: Any, near: Any, picked: Any, first: Any, ahead: Any,
) -> bool:  # fmt: skip
    """Add to ``ahead[i]`` the negatives behind positive i-1 and not behind i; return whether one ties.

    Items whose place lies in start..stop are positives. Where they are few, the row is read as it stands and
    they are counted in a step of their own, behind all; where they are many, negatives are picked from it.
    Of equal scores the negative goes first. Two NaN behind the last positive's score stop every search.
    """
    tied = False
    items = len(row)
    if 3 * (stop - start) > items:
        for side in range(2):
            last = start if side == 0 else items
            for begin in range(0 if side == 0 else stop, last, _CHUNK):
                part = picked[: min(_CHUNK, last - begin)]
                for j in range(np.uint64(len(part))):
                    part[j] = row[order[np.uint64(begin) + j]]
                _find_steps(part, pieces, low, depths, index)
                tied |= _count_part(part, scores, index, near, first, ahead)
        return tied
    behind_all = np.uint32(steps + 1)
    begin_positives, width = np.uint32(start), np.uint32(stop - start)
    for begin in range(0, items, _CHUNK):
        part, places = row[begin : begin + _CHUNK], place[begin : begin + _CHUNK]
        _find_steps(part, pieces, low, depths, index)
        for j in range(len(part)):
            is_positive = np.uint32(places[j] - begin_positives) < width
            index[j] = behind_all if is_positive else index[j]
        tied |= _count_part(part, scores, index, near, first, ahead)
    return tied


@_jit
def _tied_negatives_last(
    row: Any, order: Any, start: int, stop: int, scores: Any, count: int, ahead: Any, end: Any
) -> None:
    """Move the negatives that tie positives behind all of those: for ties="best"."""
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
    """Sum of 1/n up to each index. What rounding takes from one sum is given to the next."""
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

    Where the ideal list stands in level m at depth n, with ``a`` gallery items above m, the intersection is

        (items above m in the top n) + min(items of m in the top n, n - a)

    Items of other levels in the top n only become more with n, so the minimum is ``n - a`` down to some depth
    ``u_m`` and the items of m behind it. There, an item of m counts at each depth from its rank on to the
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

    What is kept moves up behind the ``kept`` before it.
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
    """AP and AP@R sums of each level, and the sum of hrank / rank; overwrites what was found.

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
def _tally_query(
    row: Any, order: Any, place: Any, starts: Any, stops: Any, blanks: Any, counts: Any, relevance: Any,
    discounts: Any, harmonic: Any, worst: bool, raw: Any, raw_levels: Any, scores: Any, levels: Any,
    pieces: Any, depths: Any, index: Any, near: Any, picked: Any, first: Any, ahead: Any, found: Any,
    rest: Any, out: Any, head: Any,
) -> None:  # fmt: skip
    depth = len(starts)
    items = len(row) - len(blanks)
    out[:] = 0.0
    positives = _collect_positives(row, order, starts, stops, blanks, worst, raw, raw_levels)
    if positives == 0:
        out[FIRST_MISTAKE] = np.float64(depth) if items > 0 else np.nan
        _read_head(found, 0, items, head)
        return
    steps = _table_size(positives)
    low = _spread(raw, positives, steps, pieces)
    _sort_positives(
        raw, raw_levels, positives, worst, steps, pieces, low, depths, index, first, scores, levels
    )  # fmt: skip
    scores[positives : positives + 2] = np.nan
    ahead[: positives + 1] = 0
    tied = _count_negatives(
        row, order, place, starts[0], stops[0], scores, pieces, low, steps, depths, index, near, picked,
        first, ahead,
    )  # fmt: skip
    # What was blanked among the negatives was counted before everything.
    ahead[0] -= np.uint32(len(row) - (stops[0] - starts[0]) - counts[0])
    if tied and not worst:
        _tied_negatives_last(row, order, starts[0], stops[0], scores, positives, ahead, index)
    before = np.uint32(0)
    for i in range(positives):
        before += ahead[i]
        found[i] = _pack(before + np.uint32(i + 1), levels[i])
    for i in range(1, positives):
        tied |= (scores[i] == scores[i - 1]) & (levels[i] != levels[i - 1])
    out[TIED] = tied
    out[FIRST_MISTAKE] = _first_mistake(found, positives, items, depth)
    _read_head(found, positives, items, head)
    _tally_ranks(found, positives, counts, discounts, harmonic, out)
    _tally_levels(found, positives, counts, relevance, rest, out)


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
        excluded: items never retrieved, of all queries one after another.
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
    width += 1  # and one place behind the last
    harmonic = np.empty(width)
    _fill_harmonic(harmonic)
    raw = np.empty(width, dtype=block.dtype)
    raw_levels = np.empty(width, dtype=np.int8)
    scores = np.empty(width + 1, dtype=block.dtype)
    levels = np.empty(width, dtype=np.int8)
    pieces = np.empty((len(_SHARES), 3), dtype=block.dtype)
    depths = np.empty(_CHUNK, dtype=block.dtype)
    index = np.empty(max(width, _CHUNK), dtype=np.uint32)
    near = np.empty(_CHUNK, dtype=np.uint32)
    picked = np.empty(_CHUNK, dtype=block.dtype)
    first = np.empty(_table_size(width) + 3, dtype=np.uint32)
    ahead = np.empty(width, dtype=np.uint32)
    found = np.empty(width, dtype=np.uint64)
    rest = np.empty(width, dtype=np.uint64)
    for q in range(len(block)):
        row = block[q]
        out[q, 0] = _bring_near(row)  # kept nowhere: it only must not be left out
        absent = excluded[excluded_start[q] : excluded_start[q + 1]]
        for item in absent:
            row[item] = np.inf
        _tally_query(
            row, order, place, starts[q], stops[q], place[absent].astype(np.int64), counts[q], relevance[q],
            discounts, harmonic, worst, raw, raw_levels, scores, levels, pieces, depths, index, near, picked,
            first, ahead, found, rest, out[q], head[q],
        )  # fmt: skip
