"""Every metric by its definition, in loops over scalars: slow, and plain enough to check by eye.

A ranking is a list of levels, best rank first. `counts[level]` is how many gallery items have level l.
"""

import math
from collections.abc import Sequence

NAN = math.nan
Levels = list[int]
Gains = list[float]


def rank_items(scores: list[float], levels: list[int], worst: bool = True) -> list[int]:
    """Levels in ranked order: falling score, equal scores with the lower level first (last if not worst)."""
    sign = 1 if worst else -1
    order = sorted(range(len(scores)), key=lambda j: (-scores[j], sign * levels[j]))
    return [levels[j] for j in order]


def level_of(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common prefix of two label rows; -1 equals nothing."""
    level = 0
    for x, y in zip(a, b, strict=True):
        if x != y or x == -1:
            break
        level += 1
    return level


def h_ap(ranking: Levels, relevance: Gains, counts: Levels) -> float:
    total = sum(relevance[level] * counts[level] for level in range(1, len(counts)))
    if total <= 0:
        return NAN
    value = 0.0
    for k, own in enumerate(ranking):
        if own == 0:
            continue
        hrank = relevance[own]
        for j in range(k):
            if ranking[j] > 0:
                hrank += min(relevance[ranking[j]], relevance[own])
        value += hrank / (k + 1)
    return value / total


def average_precision(ranking: Levels, counts: Levels, level: int, at_r: bool = False) -> float:
    positives = sum(counts[level:])
    if positives == 0:
        return NAN
    value, seen = 0.0, 0
    for k, own in enumerate(ranking):
        if own >= level:
            seen += 1
            if not at_r or k < positives:
                value += seen / (k + 1)
    return value / positives


def asi(ranking: Levels, counts: Levels) -> float:
    positives = sum(counts[1:])
    if positives == 0:
        return NAN
    ideal = [level for level in range(len(counts) - 1, 0, -1) for _ in range(counts[level])]
    total = 0.0
    for n in range(1, positives + 1):
        mine, best = ranking[:n], ideal[:n]
        total += sum(min(mine.count(level), best.count(level)) for level in range(1, len(counts))) / n
    return total / positives


def dcg(ranking: Levels) -> float:
    return sum((2.0**level - 1) / math.log2(2 + k) for k, level in enumerate(ranking))


def ndcg(ranking: Levels, counts: Levels, k: int | None = None) -> float:
    ideal = [level for level in range(len(counts) - 1, 0, -1) for _ in range(counts[level])]
    if not ideal:
        return NAN
    return dcg(ranking[:k]) / dcg(ideal[:k])


def recall_at(ranking: Levels, counts: Levels, level: int, k: int) -> float:
    if sum(counts[level:]) == 0:
        return NAN
    return float(any(own >= level for own in ranking[:k]))


def precision_at(ranking: Levels, counts: Levels, level: int, k: int) -> float:
    if sum(counts[level:]) == 0:
        return NAN
    return sum(own >= level for own in ranking[:k]) / k


def h_recall_at(ranking: Levels, relevance: Gains, counts: Levels, k: int) -> float:
    total = sum(relevance[level] * counts[level] for level in range(1, len(counts)))
    if total <= 0:
        return NAN
    return sum(relevance[own] for own in ranking[:k] if own > 0) / total


def h_precision_at(ranking: Levels, relevance: Gains, k: int) -> float:
    if k > len(ranking) or ranking[k - 1] == 0 or relevance[ranking[k - 1]] <= 0:
        return NAN
    own = relevance[ranking[k - 1]]
    return sum(min(relevance[level], own) for level in ranking[:k] if level > 0) / (k * own)


def severity_at(ranking: Levels, depth: int, k: int) -> float:
    head = ranking[:k]
    return sum(depth - level for level in head) / len(head) if head else NAN


def share_at(ranking: Levels, level: int, k: int) -> float:
    head = ranking[:k]
    return head.count(level) / len(head) if head else NAN


def first_mistake(ranking: Levels, depth: int) -> float:
    for level in ranking:
        if level < depth:
            return float(depth - level)
    return NAN


def everything(
    ranking: Levels, relevance: Gains, counts: Levels, names: Sequence[str], ks: Sequence[int]
) -> dict[str, float]:
    """All metrics under the names of the summary."""
    depth = len(counts) - 1
    nothing = sum(counts[1:]) == 0  # to find: such a query has no severity
    out = {
        "H-AP": h_ap(ranking, relevance, counts),
        "ASI": asi(ranking, counts),
        "NDCG": ndcg(ranking, counts),
        "first_mistake": NAN if nothing else first_mistake(ranking, depth),
    }
    for level, name in enumerate(names, start=1):
        out[f"AP/{name}"] = average_precision(ranking, counts, level)
        out[f"mAP@R/{name}"] = average_precision(ranking, counts, level, at_r=True)
    for k in ks:
        out[f"H-P@{k}"] = h_precision_at(ranking, relevance, k)
        out[f"H-R@{k}"] = h_recall_at(ranking, relevance, counts, k)
        out[f"NDCG@{k}"] = ndcg(ranking, counts, k)
        out[f"severity@{k}"] = NAN if nothing else severity_at(ranking, depth, k)
        for level, name in enumerate(names, start=1):
            out[f"R@{k}/{name}"] = recall_at(ranking, counts, level, k)
            out[f"P@{k}/{name}"] = precision_at(ranking, counts, level, k)
        for level, name in enumerate(("none", *names)):
            out[f"share@{k}/{name}"] = NAN if nothing else share_at(ranking, level, k)
    return out
