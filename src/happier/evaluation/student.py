"""Student's t distribution, in plain Python: scipy is no dependency of the core."""

from __future__ import annotations

import math
from functools import lru_cache

_TINY = 1e-300


def two_sided_p(t: float, freedom: float) -> float:
    """Probability that ``|T|`` is at least ``|t|``.

    >>> round(two_sided_p(12.706, 1), 4), two_sided_p(0.0, 5)
    (0.05, 1.0)
    """
    if math.isnan(t) or math.isnan(freedom):
        return math.nan
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


@lru_cache(maxsize=1024)
def t_quantile(confidence: float, freedom: float) -> float:
    """The ``t`` for which ``|T|`` is smaller with this probability.

    >>> round(t_quantile(0.95, 4), 3)
    2.776
    """
    if math.isnan(freedom):
        return math.nan
    low, high = 0.0, 1.0
    while two_sided_p(high, freedom) > 1 - confidence:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if two_sided_p(middle, freedom) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Lentz's method)."""
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):  # where the fraction of the mirrored function converges faster
        return 1.0 - _incomplete_beta(b, a, 1.0 - x)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    c, d = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1))
    fraction, change, m = d, 0.0, 0
    while abs(change - 1.0) > 1e-15 and m < 10_000:
        m += 1
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / _away_from_zero(1.0 + term * d)
            c = _away_from_zero(1.0 + term / c)
            change = c * d
            fraction *= change
    return front * fraction / a


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
