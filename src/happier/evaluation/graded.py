"""Relevances that do not come from a tree, as a function of the queries."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from happier.arrays import FloatArray
from happier.errors import InputError
from happier.evaluation.options import EvaluationOptions, GradedRelevance
from happier.evaluation.problem import RetrievalProblem
from happier.evaluation.scores import score_blocks
from happier.evaluation.torch_engine import rank_by_score
from happier.metrics.graded import graded_h_ap


def graded_columns(
    problem: RetrievalProblem, relevance: GradedRelevance, options: EvaluationOptions, part: range
) -> dict[str, FloatArray]:
    """H-AP, H-P@k and H-R@k of a part of the queries."""
    ks = options.schema(problem.depth).ks
    names = ["H-AP", *(f"{kind}@{k}" for k in ks for kind in ("H-P", "H-R"))]
    values = {name: np.full(len(part), np.nan) for name in names}
    chosen = np.arange(part.start, part.stop)
    # The sort of a block needs about ten times the memory of its scores.
    for block in score_blocks(problem, chosen, copies=10, block_size=options.block_size):
        match, place = block.match, block.place
        given = _check(relevance(block.queries), block.scores.shape)
        given[match.owner, match.excluded] = 0.0  # last and without relevance: as if it were absent
        scores = torch.from_numpy(block.scores)
        order = rank_by_score(scores, torch.from_numpy(given), worst=options.worst).numpy()
        ranked = np.take_along_axis(given, order, axis=1)
        values["H-AP"][place] = graded_h_ap(ranked)
        total = ranked.sum(1)
        items = problem.matching.items - np.diff(match.excluded_start)
        with np.errstate(invalid="ignore", divide="ignore"):
            for k in ks:
                head = ranked[:, :k]
                values[f"H-R@{k}"][place] = np.where(total > 0, head.sum(1) / total, np.nan)
                own = head[:, -1]
                precision = np.minimum(head, own[:, None]).sum(1) / (k * own)
                values[f"H-P@{k}"][place] = np.where((own > 0) & (items >= k), precision, np.nan)
    return values


def _check(relevances: Any, shape: tuple[int, ...]) -> FloatArray:
    array = (
        relevances.detach().cpu().numpy() if isinstance(relevances, torch.Tensor) else np.asarray(relevances)
    )
    if array.shape != shape:
        raise InputError(f"relevance must return an array of shape {shape}, got {array.shape}")
    array = array.astype(np.float64)
    if not (np.isfinite(array) & (array >= 0)).all():
        raise InputError("relevance must return finite values of 0 or more")
    return array
