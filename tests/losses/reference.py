"""The losses as loops over scalars, written from their definition; autograd differentiates them."""

from __future__ import annotations

import math

import torch
from oracle import level_of


def level_rows(labels, others, *, same, include_query=False, positions=None):
    """Level of each (query, item) pair, None where the item is not retrieved."""
    if same:
        positions = list(range(len(labels)))
    rows = []
    for q, own in enumerate(labels):
        row = [level_of(own, other) for other in others]
        if positions is not None and positions[q] >= 0 and not include_query:
            row[positions[q]] = None
        rows.append(row)
    return rows


def step(t):
    return 1.0 if t > 0 else 0.0


def sigmoid(t, tau):
    return torch.sigmoid(t / tau)


def h_down(t, p):
    if t <= 0:
        return sigmoid(t, p.tau)
    if t <= p.delta:
        return sigmoid(t, p.tau) + p.start
    offset = 1 / (1 + math.exp(-p.delta / p.tau)) + p.start if p.offset is None else p.offset
    return p.rho * (t - p.delta) + offset


def h_up(t, p):
    if t <= 0:
        return p.gamma * t
    return torch.clamp(p.nu * t + p.mu, max=1.0)


def surrogate_ranks(s, levels, rel, k, p):
    """rank(k) and hrank(k) with the step surrogate ``p``."""
    rank, hrank = 1.0, rel[levels[k]]
    for j, level in enumerate(levels):
        if j == k or level is None:
            continue
        t = s[j] - s[k]
        least = min(rel[level], rel[levels[k]])
        if level < levels[k]:
            rank = rank + h_down(t, p)
        else:
            rank = rank + step(t)
        if level > levels[k] and p.hrank:
            hrank = hrank + least * h_up(t, p)
        elif level >= 1:
            hrank = hrank + least * step(t)
    return rank, hrank


def sigmoid_ranks(s, levels, rel, k, tau):
    """rank(k) and hrank(k) with a sigmoid for every pair."""
    rank, hrank = 1.0, rel[levels[k]]
    for j, level in enumerate(levels):
        if j == k or level is None:
            continue
        near = sigmoid(s[j] - s[k], tau)
        rank = rank + near
        if level >= 1:
            hrank = hrank + min(rel[level], rel[levels[k]]) * near
    return rank, hrank


def exact_ranks(s, levels, rel, k):
    """rank(k) and hrank(k) of the metric."""
    rank, hrank = 1.0, rel[levels[k]]
    for j, level in enumerate(levels):
        if j == k or level is None:
            continue
        rank += step(s[j] - s[k])
        if level >= 1:
            hrank += min(rel[level], rel[levels[k]]) * step(s[j] - s[k])
    return rank, hrank


def counts_of(levels, depth):
    return [sum(level == own for level in levels) for own in range(depth + 1)]


def positives_of(levels):
    return [k for k, level in enumerate(levels) if level is not None and level >= 1]


def hap_loss(scores, rows, depth, relevance, ranks):
    """Mean over the queries with positives of 1 - H-AP; ``relevance`` maps level counts to relevances."""
    losses = []
    for s, levels in zip(scores, rows, strict=True):
        rel = relevance(counts_of(levels, depth), levels)
        positives = positives_of(levels)
        total = sum(rel[levels[k]] for k in positives)
        if total <= 0:
            continue
        value = 0.0
        for k in positives:
            rank, hrank = ranks(s, levels, rel, k)
            value = value + hrank / rank
        losses.append(1 - value / total)
    return sum(losses) / len(losses) if losses else scores.sum() * 0


def ndcg_loss(scores, rows, depth, p):
    losses = []
    for s, levels in zip(scores, rows, strict=True):
        gains = sorted((2 ** levels[k] - 1 for k in positives_of(levels)), reverse=True)
        if not gains:
            continue
        ideal = sum(gain / math.log2(2 + place) for place, gain in enumerate(gains))
        value = 0.0
        for k in positives_of(levels):
            rank, _ = surrogate_ranks(s, levels, [0.0] * (depth + 1), k, p)
            value = value + (2 ** levels[k] - 1) / torch.log2(1 + torch.as_tensor(rank))
        losses.append(1 - value / ideal)
    return sum(losses) / len(losses) if losses else scores.sum() * 0


def recall_loss(scores, rows, p, ks, temperature):
    """``rows`` are binary."""
    losses = []
    for s, levels in zip(scores, rows, strict=True):
        positives = positives_of(levels)
        if not positives:
            continue
        value = 0.0
        for depth in ks:
            for k in positives:
                rank, _ = surrogate_ranks(s, levels, [0.0, 1.0], k, p)
                inside = torch.sigmoid(torch.as_tensor((depth - rank) / temperature))
                value = value + inside / min(depth, len(positives)) / len(ks)
        losses.append(1 - value)
    return sum(losses) / len(losses) if losses else scores.sum() * 0


def binary(rows, depth):
    """The same rows for the finest class alone."""
    return [[None if level is None else int(level == depth) for level in row] for row in rows]


def eq4(alpha=1.0, count_query=False):
    """Relevance of the paper's Eq. 4; with ``count_query`` the removed query counts at the finest level."""

    def relevance(counts, levels):
        depth = len(counts) - 1
        counts = list(counts)
        if count_query:
            counts[depth] += 1
        return [0.0] + [
            (level / depth) ** alpha / counts[level] if counts[level] else 0.0
            for level in range(1, depth + 1)
        ]

    return relevance


def weighted_ap(weights):
    def relevance(counts, levels):
        rel = [0.0]
        for level in range(1, len(counts)):
            finer = sum(counts[level:])
            rel.append(rel[-1] + (weights[level - 1] / finer if finer else 0.0))
        return rel

    return relevance


def constant(values):
    return lambda counts, levels: [0.0, *values]


def h_ap(scores, rows, depth, relevance):
    """The metric: one value per query, None without positives."""
    result = []
    for s, levels in zip(scores, rows, strict=True):
        rel = relevance(counts_of(levels, depth), levels)
        total = sum(rel[levels[k]] for k in positives_of(levels))
        if total <= 0:
            result.append(None)
            continue
        value = 0.0
        for k in positives_of(levels):
            rank, hrank = exact_ranks(s, levels, rel, k)
            value += hrank / rank
        result.append(value / total)
    return result
