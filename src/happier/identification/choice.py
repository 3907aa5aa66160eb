"""Conditional logit: the probability of each of several alternatives that are described by features.

    p(a) = exp(theta . x_a) / sum over the available alternatives b of exp(theta . x_b)

McFadden, Conditional logit analysis of qualitative choice behavior, 1974.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from happier.arrays import FloatArray, IntArray

__all__ = ["choice_probabilities", "fit_choice"]

Mask = npt.NDArray[np.bool_]
_STEPS = 50
_CLOSE = 1e-6


def choice_probabilities(features: FloatArray, available: Mask, theta: FloatArray) -> FloatArray:
    """Probability of each alternative ``[P, A]``; 0 for those that are not available.

    Args:
        features: ``[P, A, F]``.
        available: ``[P, A]``; at least one of each row.
        theta: ``[F]``.

    >>> choice_probabilities(np.array([[[0.0], [0.0], [9.0]]]), np.array([[True, True, False]]), np.ones(1))
    array([[0.5, 0.5, 0. ]])
    """
    utility = np.where(available, features @ theta, -np.inf)
    raised = np.exp(utility - utility.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def fit_choice(
    features: FloatArray,
    available: Mask,
    chosen: IntArray,
    *,
    weights: FloatArray,
    prior: FloatArray,
) -> tuple[FloatArray, float]:
    """The parameters that make the choices likeliest, by Newton's method.

    Minimises ``-sum_i w_i log p_i(chosen_i) + |theta - prior|^2 / 2``, which is strictly convex: few choices
    leave the parameters near the prior.

    Args:
        features: ``[P, A, F]``.
        available: ``[P, A]``.
        chosen: the alternative of each row ``[P]``.
        weights: of the rows ``[P]``.
        prior: parameters without data ``[F]``.

    Returns:
        The parameters ``[F]`` and the weighted sum of ``-log p`` of the choices.
    """
    rows = np.arange(len(chosen))
    theta = np.array(prior, dtype=np.float64)

    def cost(at: FloatArray) -> tuple[FloatArray, float, float]:
        found = choice_probabilities(features, available, at)
        likelihood = -float(weights @ np.log(np.maximum(found[rows, chosen], 1e-300)))
        return found, likelihood + float((at - prior) @ (at - prior)) / 2, likelihood

    probabilities, now, likelihood = cost(theta)
    for _ in range(_STEPS):
        mean = np.einsum("pa,paf->pf", probabilities, features)
        gradient = weights @ (mean - features[rows, chosen]) + theta - prior
        weighted = (features * (probabilities * weights[:, None])[:, :, None]).reshape(-1, len(theta))
        curvature = weighted.T @ features.reshape(-1, len(theta)) - (mean * weights[:, None]).T @ mean
        step = np.linalg.solve(curvature + np.eye(len(theta)), gradient)
        size, before = 1.0, now
        while size > 1e-4:
            found = cost(theta - size * step)
            if found[1] <= before:
                theta = theta - size * step
                probabilities, now, likelihood = found
                break
            size /= 2
        if before - now < _CLOSE:
            break
    return theta, likelihood
