"""How certain a mean is: intervals and tests over test classes, and over training seeds.

Images of one class are found together or missed together, so what is drawn at random is the finest class with
all its queries, never a query alone. The standard error comes from resampling classes; the interval is
Student's t with as many degrees of freedom as the sizes of the classes leave (Bell and McCaffrey 2002). Of
several seeds, the interval is the wider of two: over the seeds, and over seeds and classes together (degrees
of freedom by Satterthwaite). Why: docs/decisions/0015-what-is-random-in-an-interval.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from happier.arrays import FloatArray, IntArray
from happier.errors import InputError, OptionError
from happier.evaluation.student import t_quantile, two_sided_p


@dataclass(frozen=True)
class Interval:
    """A mean and its confidence interval; ``mean, low, high = interval`` works."""

    mean: float
    low: float
    high: float

    def __iter__(self) -> Iterator[float]:
        return iter(astuple(self))


@dataclass(frozen=True)
class Difference(Interval):
    """A mean paired difference, its confidence interval and its p-value."""

    p_value: float


@dataclass(frozen=True)
class Spread:
    """A standard error and its degrees of freedom."""

    error: float
    freedom: float

    def half_width(self, confidence: float) -> float:
        """Half of the interval's width."""
        return self.error * t_quantile(confidence, self.freedom)

    def p_value(self, mean: float) -> float:
        """Two-sided p-value of a mean of 0."""
        if self.error == 0:
            return 1.0 if mean == 0 else 0.0
        return two_sided_p(mean / self.error, self.freedom)


@dataclass(frozen=True)
class Estimate:
    """A mean, and what makes it uncertain.

    Attributes:
        mean: over queries, and seeds where there are several.
        spreads: of which the interval takes the wider.
    """

    mean: float
    spreads: tuple[Spread, ...]

    def interval(self, confidence: float = 0.95) -> Interval:
        """The mean with its interval; NaN where there are fewer than two classes."""
        half = float(np.max([spread.half_width(confidence) for spread in self.spreads]))
        return Interval(self.mean, self.mean - half, self.mean + half)

    @property
    def p_value(self) -> float:
        """Two-sided p-value of a mean of 0: below 0.05 exactly where the 95 % interval leaves out 0."""
        return float(np.max([spread.p_value(self.mean) for spread in self.spreads]))

    def difference(self, confidence: float = 0.95) -> Difference:
        """The interval and the p-value."""
        interval = self.interval(confidence)
        return Difference(interval.mean, interval.low, interval.high, self.p_value)


def estimate(values: FloatArray, classes: IntArray, *, n: int = 1000, seed: int = 0) -> list[Estimate]:
    """The mean of each column and how certain it is, over classes and, where there are several, over seeds.

    Args:
        values: ``[seed, query, column]``, NaN where undefined; a query that is undefined for one seed is left
            out for all.
        classes: the class of each query ``[query]``, any integers.
        n: number of resamples.
        seed: of the resampling.

    >>> values = np.array([0.1, 0.2, 0.4, 0.5, 0.9, 0.7])[None, :, None]
    >>> [found] = estimate(values, np.array([0, 0, 1, 1, 2, 2]))
    >>> mean, low, high = found.interval()
    >>> round(mean, 3), low < mean < high
    (0.467, True)
    """
    seeds, queries, columns = values.shape
    if len(classes) != queries:
        raise InputError(f"classes must have one entry for each of {queries} queries, got {len(classes)}")
    undefined = np.asarray(np.isnan(values).any(axis=0))  # [query, column]
    sums, counts = _class_sums(np.where(undefined, 0.0, values), (~undefined).astype(np.float64), classes)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums.sum(1) / counts.sum(0)  # [seed, column]
    correction, freedom = _freedom(counts)
    drawn = _resampled_means(sums, counts, n, seed)  # [n, seed, column]
    centre = drawn.mean(1)
    shared = correction * _variance(centre)
    found = []
    if seeds > 1:
        # Of the classes' part: what every seed shares, without the part that differs from seed to seed, which
        # is in the spread over seeds already.
        own = correction * _variance(drawn - centre[:, None]).mean(0) / (seeds - 1)
        shared = np.maximum(shared - own, 0.0)
        over_seeds = means.var(0, ddof=1) / seeds
    for column in range(columns):
        spreads: tuple[Spread, ...] = (Spread(float(np.sqrt(shared[column])), float(freedom[column])),)
        if seeds > 1:
            parts = ((over_seeds[column], seeds - 1.0), (shared[column], freedom[column]))
            spreads = (Spread(float(np.sqrt(over_seeds[column])), seeds - 1.0), _together(parts))
        found.append(Estimate(float(means[:, column].mean()), spreads))
    return found


def seed_difference(
    one: Sequence[FloatArray], other: Sequence[FloatArray], classes: IntArray, *, confidence: float = 0.95
) -> Difference:
    """Mean of ``one`` minus ``other`` over training seeds and test classes.

    One seed has no interval over seeds: its interval and p-value are NaN.

    Args:
        one: a value of each query ``[Q]`` for each seed.
        other: the same seeds and queries under another method.
        classes: of the queries ``[Q]``.
        confidence: of the interval.

    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.random((3, 40)), rng.random((3, 40)) + 0.5
    >>> seed_difference(list(b), list(a), np.arange(40) // 4).p_value < 0.05
    True
    """
    if len(one) != len(other) or not len(one):
        raise InputError(
            f"the seeds must be those of both, and at least one, got {len(one)} and {len(other)}"
        )
    [found] = estimate((np.asarray(one) - np.asarray(other))[:, :, None], classes)
    if len(one) == 1:
        return Difference(found.mean, np.nan, np.nan, np.nan)
    return found.difference(confidence)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for several comparisons in one table (Holm 1979); NaN stays NaN and does not count.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = np.full(len(p_values), np.nan)
    order = [place for place in np.argsort(p_values) if not np.isnan(p_values[place])]
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[place]))
        adjusted[place] = largest
    return [float(value) for value in adjusted]


def format_p_value(value: float) -> str:
    """A p-value as it is printed: three digits, a dash where undefined.

    >>> format_p_value(0.0312), format_p_value(1e-9)
    ('0.031', '<0.001')
    """
    return "-" if np.isnan(value) else "<0.001" if value < 0.001 else f"{value:.3f}"


def check_confidence(confidence: float) -> None:
    """Check a confidence level.

    Raises:
        OptionError: it is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise OptionError(f"confidence must be between 0 and 1, got {confidence}")


def _class_sums(values: FloatArray, defined: FloatArray, classes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Sums of the values ``[seed, class, column]``, and numbers of defined ones ``[class, column]``."""
    order = np.argsort(classes, kind="stable")
    starts = np.unique(classes[order], return_index=True)[1]
    counts = np.add.reduceat(defined[order], starts, axis=0)
    return np.add.reduceat(values[:, order], starts, axis=1), counts


def _resampled_means(sums: FloatArray, counts: FloatArray, n: int, seed: int) -> FloatArray:
    """Means of ``n`` resamples of the classes ``[n, seed, column]``, the same classes for every seed."""
    if n < 1:
        raise OptionError(f"n must be 1 or more, got {n}")
    if seed < 0:
        raise OptionError(f"seed must be 0 or more, got {seed}")
    seeds, classes, columns = sums.shape
    flat = sums.transpose(1, 0, 2).reshape(classes, seeds * columns)
    generator = np.random.default_rng(seed)
    step = max(1, (8 << 20) // classes)  # at most 64 MiB of weights at a time
    parts = []
    for start in range(0, n, step):
        size = min(step, n - start)
        drawn = generator.integers(0, classes, size=(size, classes)) + classes * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * classes).reshape(size, classes).astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            parts.append((times @ flat).reshape(size, seeds, columns) / (times @ counts)[:, None])
    return np.concatenate(parts)


def _variance(resampled: FloatArray) -> FloatArray:
    """Variance over the resamples in which a mean is defined."""
    defined = ~np.isnan(resampled)
    number = np.maximum(defined.sum(0), 1)
    means = np.where(defined, resampled, 0.0).sum(0) / number
    return np.asarray(np.square(np.where(defined, resampled - means, 0.0)).sum(0) / number)


def _freedom(counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The factor that unbiases the resampled variance, and its degrees of freedom, for each column.

    With classes of shares ``w`` whose means have one variance, the residuals have the covariance
    ``S = (I - 1 w')(I - 1 w')'``; matching two moments of ``sum_c (w_c residual_c)^2`` to those of a scaled
    chi-squared variable gives both. ``C`` classes of one size have the factor ``C / (C - 1)`` and ``C - 1``
    degrees. NaN for fewer than two classes.

    Args:
        counts: defined queries ``[class, column]``.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        w = counts / counts.sum(0)
        squares = (w**2).sum(0)
        trace = (w**2 * (1 + squares - 2 * w)).sum(0)
        cubes, fourths = (w**3).sum(0), (w**4).sum(0)
        # The sum over all pairs of (w_c w_d S_cd)^2, S_cd = squares - w_c - w_d, plus 1 where c = d.
        pairs = squares**4 + 2 * fourths * squares + 2 * cubes**2 - 4 * squares**2 * cubes
        own = (w**4 * (1 + 2 * (squares - 2 * w))).sum(0)
        several = (counts > 0).sum(0) > 1
        return np.where(several, squares / trace, np.nan), np.where(several, trace**2 / (pairs + own), np.nan)


def _together(parts: Sequence[tuple[float, float]]) -> Spread:
    """The spread of a sum of independent parts: variances and their degrees of freedom (Satterthwaite)."""
    total = sum(variance for variance, _ in parts)
    if total == 0:
        return Spread(0.0, parts[0][1])
    uncertainty = sum(variance**2 / freedom for variance, freedom in parts)
    return Spread(float(np.sqrt(total)), float(total**2 / uncertainty))
