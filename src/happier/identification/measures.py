"""How good claims about classes are: calibration, coverage, depth, severity, and what is new.

A method claims a node at each level with a confidence that does not rise from coarse to fine. It answers as
deep as its confidence reaches a threshold. A claim is wrong where the label is known and another; where the
class is not in the index, every claim about it is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from happier.arrays import FloatArray, IntArray
from happier.taxonomy import UNKNOWN

__all__ = ["Answers", "Claims", "auroc", "coverage_curve", "expected_calibration_error"]

Flags = npt.NDArray[np.bool_]


def expected_calibration_error(confidence: FloatArray, right: Flags, bins: int = 15) -> float:
    """Mean distance between confidence and accuracy over bins of equal width, weighted by their size.

        ECE = sum_b |B_b| / n  | accuracy(B_b) - confidence(B_b) |

    Guo et al., On Calibration of Modern Neural Networks, ICML 2017. NaN without claims.

    >>> expected_calibration_error(np.array([0.75, 0.75, 0.75, 0.75]), np.array([True, True, True, False]))
    0.0
    """
    if not len(confidence):
        return float("nan")
    number = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(number, weights=right - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(confidence))


def coverage_curve(confidence: FloatArray, right: Flags, coverage: FloatArray) -> FloatArray:
    """Accuracy among the most confident share of the claims, for each share; NaN without claims.

    >>> coverage_curve(np.array([0.9, 0.2]), np.array([True, False]), np.array([0.5, 1.0])).tolist()
    [1.0, 0.5]
    """
    if not len(confidence):
        return np.full(len(coverage), np.nan)
    order = np.argsort(-confidence, kind="stable")
    accuracy = np.cumsum(right[order]) / np.arange(1, len(order) + 1)
    return np.asarray(accuracy[np.maximum(np.ceil(coverage * len(order)).astype(int), 1) - 1])


def auroc(scores: FloatArray, positive: Flags) -> float:
    """Probability that a positive has a higher score than a negative, equal ones half; NaN without both.

    >>> auroc(np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False]))
    0.875
    """
    ours, others = scores[positive], np.sort(scores[~positive])
    if not len(ours) or not len(others):
        return float("nan")
    below = np.searchsorted(others, ours, side="left") + np.searchsorted(others, ours, side="right")
    return float(below.mean() / 2 / len(others))


@dataclass(frozen=True)
class Answers:
    """What a method answers at one threshold, over all queries.

    Attributes:
        depth: mean number of levels answered.
        right: share of right ones among the answers; NaN where nothing is answered.
        severity: mean number of wrong levels of the wrong answers; NaN where none is wrong.
        severe: share of all queries whose answer is wrong at the coarsest level.
        wrong: mean number of wrong levels over all queries.
    """

    depth: float
    right: float
    severity: float
    severe: float
    wrong: float


@dataclass(frozen=True)
class Claims:
    """What a method says of Q queries.

    Attributes:
        name: of the method.
        nodes: the node claimed at each level ``[Q, L]``; -1 for no claim.
        confidence: in it ``[Q, L]``; 0 for no claim.
        truth: node of each query at each level ``[Q, L]``; -1 for an unknown label, -2 for a class that the
            index lacks.
        levelled: whether each level has a confidence of its own; else it is the finest level's.
        probable: whether the confidence is meant as a probability; else the method answers always.
    """

    name: str
    nodes: IntArray
    confidence: FloatArray
    truth: IntArray
    levelled: bool = False
    probable: bool = True

    @property
    def right(self) -> Flags:
        """Whether the claim at each level is right ``[Q, L]``."""
        return np.asarray(self.nodes == self.truth)

    @property
    def known(self) -> Flags:
        """Where the label is known ``[Q, L]``."""
        return np.asarray(self.truth != UNKNOWN)

    def accuracy(self) -> tuple[float, ...]:
        """Share of right claims at each level."""
        pairs = zip(self.right.T, self.known.T, strict=True)
        return tuple(float(right[known].mean()) if known.any() else float("nan") for right, known in pairs)

    def calibration_errors(self) -> tuple[float, ...]:
        """Expected calibration error at each level; NaN where the confidence is not the level's own."""
        depth = self.nodes.shape[1]
        return tuple(
            expected_calibration_error(self.confidence[known, level], self.right[known, level])
            if self.probable and (self.levelled or level == depth - 1)
            else float("nan")
            for level, known in enumerate(self.known.T)
        )

    def answers(self, threshold: float) -> Answers:
        """What is answered where the confidence reaches a threshold."""
        given = np.cumprod((self.nodes >= 0) & (self.confidence >= threshold), axis=1).astype(bool)
        wrong = (given & self.known & ~self.right).sum(axis=1)
        answered, mistaken = given[:, 0], wrong > 0
        return Answers(
            float(given.sum(axis=1).mean()),
            float((~mistaken)[answered].mean()) if answered.any() else float("nan"),
            float(wrong[mistaken].mean()) if mistaken.any() else float("nan"),
            float((given & self.known & ~self.right)[:, 0].mean()),
            float(wrong.mean()),
        )

    def thresholds(self) -> FloatArray:
        """Thresholds at which the answers differ, at most 200."""
        return np.unique(np.quantile(self.confidence, np.linspace(0, 1, 200), method="nearest"))

    def depth_at(self, right: float) -> float:
        """The deepest answers, on average, of which this share is right; 0 where no threshold reaches it."""
        found = [self.answers(one) for one in self.thresholds()]
        return max((one.depth for one in found if one.right >= right), default=0.0)

    def at_depth(self, depth: float) -> Answers:
        """The answers at the threshold whose mean depth is nearest to this one."""
        found = [self.answers(one) for one in self.thresholds()]
        return min(found, key=lambda one: abs(one.depth - depth))

    def finest_confidence(self) -> FloatArray:
        """Confidence in the finest claim ``[Q]``."""
        return np.asarray(self.confidence[:, -1])
