"""The same metrics in plain torch, for embeddings that live on a GPU: sort, then cumulative sums."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from happier.arrays import FloatArray
from happier.evaluation.matching import relevance_table
from happier.evaluation.options import EvaluationOptions
from happier.evaluation.problem import RetrievalProblem
from happier.metrics.schema import Schema

# A sort and a dozen cumulative sums in float64 and int64 live at once for each score.
BLOCK_BYTES = 256 << 20
BYTES_PER_SCORE = 80


def rank_by_score(scores: Tensor, keys: Tensor, *, worst: bool) -> Tensor:
    """Order of the items ``[q, N]``: falling score, equal scores by rising key (falling where not worst)."""
    by_key = keys.argsort(dim=1, descending=not worst, stable=True)
    by_score = scores.gather(1, by_key).argsort(dim=1, descending=True, stable=True)
    return by_key.gather(1, by_score)


def score_block(problem: RetrievalProblem, first: int, last: int, device: torch.device) -> Tensor:
    """Scores ``[q, N]`` of the queries first..last on the device."""
    kind = torch.float64 if problem.dtype == np.float64 else torch.float32
    gallery = problem.gallery
    rows = problem.queries.tensor(first, last, dtype=kind, device=device)
    parts = [rows @ gallery.tensor(a, b, dtype=kind, device=device).T for a, b in gallery.pieces()]
    scores = torch.cat(parts, dim=1)
    again, earlier = problem.duplicates
    if len(again):
        scores[:, torch.from_numpy(again).to(device)] = scores[:, torch.from_numpy(earlier).to(device)]
    return scores


def ties_that_matter(ranked_scores: Tensor, levels: Tensor) -> Tensor:
    """Whether two neighbours of different level have equal scores ``[q]``."""
    equal = (ranked_scores[:, 1:] == ranked_scores[:, :-1]) & (levels[:, 1:] >= 0)
    return (equal & (levels[:, 1:] != levels[:, :-1])).any(1)


def compute(
    problem: RetrievalProblem,
    schema: Schema,
    options: EvaluationOptions,
    part: range,
    device: torch.device,
) -> dict[str, FloatArray]:
    """All metrics of a part of the queries."""
    matching = problem.matching
    rows = max(1, options.block_size or BLOCK_BYTES // (matching.items * BYTES_PER_SCORE))
    blocks: list[dict[str, Tensor]] = []
    for start in range(part.start, part.stop, rows):
        stop = min(start + rows, part.stop)
        scores = score_block(problem, start, stop, device)
        block = matching.block(slice(start, stop))
        levels = torch.from_numpy(matching.levels(slice(start, stop))).to(device)
        owner, excluded = (torch.from_numpy(own).to(device) for own in (block.owner, block.excluded))
        scores[owner, excluded] = -torch.inf
        order = rank_by_score(scores, levels, worst=options.worst)
        levels[owner, excluded] = -1  # they are last, behind all finite scores
        levels = levels.gather(1, order)
        table = torch.from_numpy(relevance_table(options.level_relevance, block)).to(device)
        values = schema.compute(levels, table, torch.from_numpy(block.counts).to(device))
        values["tied_queries"] = ties_that_matter(scores.gather(1, order), levels).to(torch.float64)
        blocks.append({name: value.cpu() for name, value in values.items()})
    return {name: torch.cat([block[name] for block in blocks]).numpy() for name in blocks[0]}
