"""The classmate that is missing where an image is left out of its own index.

An image that is left out finds one image of its class less than a query of that class would: with two or
three images of a class that makes much of a difference. So the place is filled by a classmate that might have
been. The similarity s_xm of image x and its classmate m is taken as

    s_xm = mu + a_x + e_xm,  a_x ~ N(0, beta),  e_xm ~ N(0, omega)

which is the one-way random-effects model; another classmate of x, given the mean s_x of the k that there are,
is drawn from

    N(mu + r (s_x - mu), beta (1 - r) + omega),  r = beta / (beta + omega / k)

An image without classmates gets one from N(mu, beta + omega).

Searle, Casella, McCulloch, Variance Components, 1992, chapters 3 and 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from happier.arrays import FloatArray, IntArray
from happier.identification.votes import Neighbours

__all__ = ["ClassmateSimilarity", "with_classmate"]


@dataclass(frozen=True)
class ClassmateSimilarity:
    """How similar images of one class are.

    Attributes:
        mean: of all images' mean similarities to their classmates.
        between: variance of an image's own mean.
        within: variance around it.
    """

    mean: float
    between: float
    within: float

    @classmethod
    def estimate(cls, similarities: Sequence[FloatArray]) -> ClassmateSimilarity | None:
        """By the similarities of each image to its classmates; None where no image has any.

        >>> found = ClassmateSimilarity.estimate([np.array([0.8, 0.6]), np.array([0.5, 0.3]), np.array([])])
        >>> round(found.mean, 3), round(found.within, 3), round(found.between, 4)
        (0.55, 0.02, 0.0125)
        """
        some = [one for one in similarities if len(one)]
        if not some:
            return None
        means, counts = np.array([one.mean() for one in some]), np.array([len(one) for one in some])
        freedom = int((counts - 1).sum())
        if not freedom:  # classes of two: nothing tells the two variances apart
            half = float(means.var()) / 2
            return cls(float(means.mean()), half, half)
        within = sum(float(((one - one.mean()) ** 2).sum()) for one in some) / freedom
        between = max(0.0, float(means.var()) - within * float((1 / counts).mean()))
        return cls(float(means.mean()), between, within)

    def another(self, similarities: FloatArray, generator: np.random.Generator) -> float:
        """The similarity of one more classmate of an image that has these."""
        centre, spread = self.mean, self.between + self.within
        if len(similarities) and spread > 0:
            trust = self.between / (self.between + self.within / len(similarities))
            centre += trust * (float(similarities.mean()) - self.mean)
            spread = self.between * (1 - trust) + self.within
        return min(1.0, centre + float(np.sqrt(spread)) * float(generator.standard_normal()))


def with_classmate(neighbours: Neighbours, rows: IntArray, scores: FloatArray) -> Neighbours:
    """The neighbours with one more for each query, which pushes the last one out if it is nearer.

    Args:
        neighbours: of Q queries.
        rows: the row that each new neighbour has its label from ``[Q]``.
        scores: its similarity ``[Q]``.
    """
    width = neighbours.rows.shape[1]
    known = np.concatenate([neighbours.scores, neighbours.beyond[:, None]], axis=1)
    # The new one comes behind those that are as near.
    place = (known >= scores[:, None]).sum(axis=1)
    column = np.arange(width + 1)
    source = np.where(column <= place[:, None], column, column - 1)  # the new one's own place is overwritten
    moved = np.take_along_axis(known, source, axis=1)
    # The row of the one beyond is not known; it can only move further away.
    numbers = np.pad(neighbours.rows, ((0, 0), (0, 1)), constant_values=-1)
    here = column == place[:, None]
    return Neighbours.from_ranking(
        np.where(here, rows[:, None], np.take_along_axis(numbers, source, axis=1)),
        np.where(here, scores[:, None], moved),
    )
