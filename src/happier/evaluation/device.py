"""The same metrics in plain torch, for embeddings that live on a GPU: sort, then cumulative sums."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from happier.evaluation.inputs import Vectors
from happier.evaluation.matching import Matching, relevance_table
from happier.metrics.schema import Schema
from happier.relevance import Relevance

# A sort and a dozen cumulative sums in float64 and int64 live at once for each score.
BLOCK_BYTES = 256 << 20
BYTES_PER_SCORE = 80


def rank_by_score(scores: Tensor, keys: Tensor, *, worst: bool) -> Tensor:
    """Order of the items ``[q, N]``: falling score, equal scores by rising key (falling where not worst)."""
    by_key = keys.argsort(dim=1, descending=not worst, stable=True)
    by_score = scores.gather(1, by_key).argsort(dim=1, descending=True, stable=True)
    return by_key.gather(1, by_score)


def score_block(
    queries: Vectors,
    first: int,
    last: int,
    gallery: Vectors,
    duplicates: tuple[Tensor, Tensor],
    device: torch.device,
) -> Tensor:
    """Scores ``[q, N]`` of the queries first..last on the device."""
    kind = torch.float64 if queries.is_double or gallery.is_double else torch.float32
    rows = queries.tensor(first, last, dtype=kind, device=device)
    parts = [rows @ gallery.tensor(a, b, dtype=kind, device=device).T for a, b in gallery.pieces()]
    scores = torch.cat(parts, dim=1)
    again, earlier = duplicates
    if len(again):
        scores[:, again] = scores[:, earlier]
    return scores


def ties_that_matter(ranked_scores: Tensor, levels: Tensor) -> Tensor:
    """Whether two neighbours of different level have equal scores ``[q]``."""
    equal = (ranked_scores[:, 1:] == ranked_scores[:, :-1]) & (levels[:, 1:] >= 0)
    return (equal & (levels[:, 1:] != levels[:, :-1])).any(1)


def compute(
    queries: Vectors,
    gallery: Vectors,
    matching: Matching,
    relevance: Relevance,
    schema: Schema,
    *,
    first: int,
    last: int,
    worst: bool,
    device: torch.device,
    block_size: int | None,
) -> dict[str, npt.NDArray[np.float64]]:
    """All metrics of the queries first..last."""
    again, earlier = (torch.from_numpy(part).to(device) for part in gallery.duplicates())
    rows = max(1, block_size or BLOCK_BYTES // (matching.items * BYTES_PER_SCORE))
    blocks: list[dict[str, Tensor]] = []
    for start in range(first, last, rows):
        stop = min(start + rows, last)
        scores = score_block(queries, start, stop, gallery, (again, earlier), device)
        block = matching.block(slice(start, stop))
        levels = torch.from_numpy(matching.levels(slice(start, stop))).to(device)
        owner = torch.from_numpy(np.repeat(np.arange(stop - start), np.diff(block.excluded_start))).to(device)
        excluded = torch.from_numpy(block.excluded).to(device)
        scores[owner, excluded] = -torch.inf
        order = rank_by_score(scores, levels, worst=worst)
        levels[owner, excluded] = -1  # they are last, behind all finite scores
        levels = levels.gather(1, order)
        table = torch.from_numpy(relevance_table(relevance, block)).to(device)
        values = schema.compute(levels, table, torch.from_numpy(block.counts).to(device))
        values["tied_queries"] = ties_that_matter(scores.gather(1, order), levels).to(torch.float64)
        blocks.append({name: value.cpu() for name, value in values.items()})
    return {name: torch.cat([block[name] for block in blocks]).numpy() for name in blocks[0]}
