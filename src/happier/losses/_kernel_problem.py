"""What both kernels of the CPU share: the problem of a batch, and what a positive adds to the objective."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from happier.losses.objective import AP, NDCG, Objective
from happier.losses.surrogate import StepSurrogate, Surrogate
from happier.numba_cache import jit


class Problem(NamedTuple):
    """What all queries share, but for the surrogate's numbers."""

    kind: int
    cuts: Any
    temperature: float
    smooth: bool  # the sigmoid everywhere, no steps
    hrank: bool
    share: float  # of a query in the mean
    need_gradient: bool


def make_problem(objective: Objective, surrogate: Surrogate, *, need_gradient: bool) -> Problem:
    """The problem of a batch."""
    return Problem(
        objective.kind,
        objective.cuts.numpy(),
        float(objective.temperature),
        not isinstance(surrogate, StepSurrogate),
        isinstance(surrogate, StepSurrogate) and surrogate.hrank,
        1.0 / max(int(objective.valid.sum()), 1),
        need_gradient,
    )


@jit(nogil=True, error_model="numpy", forceinline=True)
def gain_of_positive(problem: Problem, rank: float, graded: float, weight: float, cut_weights: Any) -> Any:
    """What one positive adds to the objective, and its derivatives by rank and hierarchical rank."""
    if problem.kind == AP:
        return graded / rank, -graded / (rank * rank), 1.0 / rank
    if problem.kind == NDCG:
        bits = np.log2(1.0 + rank)
        return weight / bits, -weight / (bits * bits * (1.0 + rank) * np.log(2.0)), 0.0
    cuts, temperature = problem.cuts, problem.temperature
    gain, slope = 0.0, 0.0
    for c in range(cuts.shape[0]):
        inside = 1.0 / (1.0 + np.exp((rank - cuts[c]) / temperature))
        gain += cut_weights[c] * inside
        slope -= cut_weights[c] * inside * (1.0 - inside) / temperature
    return gain, slope, 0.0
