"""The outcome of an evaluation: values per query, their means, and confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from happier.arrays import FloatArray
from happier.errors import InputError, OptionError
from happier.extras import needs_extra
from happier.metrics.schema import Schema
from happier.storage.atomic import atomic_file

Columns = Callable[[], Iterable[tuple[str, FloatArray]]]


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


@final
class Result:
    """The outcome of `happier.evaluate`.

    Attributes:
        summary: mean of each metric over the queries where it is defined, and the number of ``queries``, of
            ``queries_without_positives`` and the share of ``tied_queries`` (equal scores of different level).
        per_query: each metric's value for each query, float64 ``[Q]``, NaN where undefined.
        schema: level names and cut-offs.
    """

    def __init__(self, columns: Columns, schema: Schema, without_positives: int) -> None:
        self._columns: Final = columns
        self.schema: Final = schema
        summary: dict[str, float] = {}
        queries = 0
        for name, values in columns():
            summary[name] = _mean(values)
            queries = len(values)
        self.summary: Final[dict[str, float]] = {
            **summary,
            "queries": queries,
            "queries_without_positives": without_positives,
        }

    @cached_property
    def per_query(self) -> dict[str, FloatArray]:
        """Each metric's value for each query, NaN where undefined."""
        return dict(self._columns())

    def weighted_ap(self, weights: Iterable[float]) -> float:
        """Weighted sum of the levels' mean AP, weights coarse to fine (the paper's sum of w AP)."""
        values = tuple(weights)
        if len(values) != self.schema.depth:
            raise OptionError(
                f"weights must have one value for each of {self.schema.depth} levels, got {values}"
            )
        return sum(
            w * self.summary[f"AP/{name}"] for w, (_, name) in zip(values, self.schema.levels(), strict=True)
        )

    def bootstrap(self, n: int = 1000, seed: int = 0, *, confidence: float = 0.95) -> dict[str, Interval]:
        """Confidence interval of each metric's mean, by resampling queries.

        Args:
            n: number of resamples.
            seed: of the resampling.
            confidence: share of the resampled means inside the interval.
        """
        means = _resampled_means(self.per_query, n, seed)
        low, high = _percentiles(confidence)
        return {
            name: Interval(self.summary[name], *(float(v) for v in _nan_percentile(values, (low, high))))
            for name, values in means.items()
        }

    def to_parquet(self, path: str | Path, *, extra: Mapping[str, Any] | None = None) -> None:
        """Write one row per query, one column per metric, to a Parquet file.

        Args:
            path: of the file; the write is atomic.
            extra: further columns, such as ids or label paths, put first.
        """
        with needs_extra("data"):
            import pyarrow as pa
            import pyarrow.parquet as pq
        columns = {**(extra or {}), **self.per_query}
        with atomic_file(Path(path)) as part:
            pq.write_table(pa.table(columns), part)

    def __rich__(self) -> Any:
        from rich.table import Table

        table = Table(title=f"{self.summary['queries']:,} queries", title_justify="left")
        table.add_column("metric")
        names = [name for _, name in self.schema.levels()]
        table.add_column("all", justify="right")
        for name in names:
            table.add_column(name, justify="right")
        for metric in _table_rows(self.schema):
            whole = self.summary.get(metric)
            cells = [_cell(metric, whole)] + [
                _cell(metric, self.summary.get(f"{metric}/{name}")) for name in names
            ]
            table.add_row(metric, *cells)
        notes = []
        if self.summary["queries_without_positives"]:
            notes.append(f"{self.summary['queries_without_positives']:,} queries without positives, left out")
        if self.summary.get("tied_queries"):
            notes.append(f"{self.summary['tied_queries']:.1%} of queries have ties that matter")
        table.caption = "; ".join(notes) or None
        return table

    def __repr__(self) -> str:
        from rich.console import Console

        console = Console(width=100, record=False)
        with console.capture() as capture:
            console.print(self)
        return capture.get().rstrip()


def compare(
    a: Result, b: Result, *, n: int = 1000, seed: int = 0, confidence: float = 0.95
) -> dict[str, Difference]:
    """Paired differences ``b - a`` of every metric that both results have.

    The interval comes from resampling queries, the p-value from flipping the signs of the queries'
    differences at random (two-sided, at least ``1 / (n + 1)``). Queries where either is undefined are left
    out.

    Args:
        a: the baseline.
        b: what is compared with it, evaluated on the same queries in the same order.
        n: number of resamples and of sign flips.
        seed: of both.
        confidence: share of the resampled means inside the interval.

    Raises:
        InputError: the results have different numbers of queries.
    """
    if a.summary["queries"] != b.summary["queries"]:
        raise InputError(
            f"compare needs results of the same queries, got {a.summary['queries']} queries "
            f"and {b.summary['queries']}"
        )
    differences = {
        name: b.per_query[name] - values for name, values in a.per_query.items() if name in b.per_query
    }
    means = _resampled_means(differences, n, seed)
    p_values = _sign_flip_p_values(differences, n, seed)
    low, high = _percentiles(confidence)
    result = {}
    for name, values in differences.items():
        bottom, top = _nan_percentile(means[name], (low, high))
        result[name] = Difference(_mean(values), float(bottom), float(top), p_values[name])
    return result


def _mean(values: FloatArray) -> float:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else float("nan")


def _percentiles(confidence: float) -> tuple[float, float]:
    if not 0 < confidence < 1:
        raise OptionError(f"confidence must lie between 0 and 1, got {confidence}")
    return 50 * (1 - confidence), 50 * (1 + confidence)


def _nan_percentile(values: FloatArray, percentiles: tuple[float, float]) -> FloatArray:
    if np.isnan(values).all():
        return np.full(len(percentiles), np.nan)
    return np.asarray(np.nanpercentile(values, percentiles))


@dataclass(frozen=True)
class _Stacked:
    """Metrics as columns of a matrix, undefined values as 0 beside a mask."""

    names: list[str]
    values: FloatArray  # [Q, M]
    defined: FloatArray  # [Q, M] 1 or 0

    @classmethod
    def of(cls, columns: Mapping[str, FloatArray]) -> _Stacked:
        matrix = np.stack(list(columns.values()), axis=1)
        missing = np.isnan(matrix)
        return cls(list(columns), np.where(missing, 0.0, matrix), (~missing).astype(np.float64))


def _batches(n: int, queries: int) -> Iterator[int]:
    """Sizes of batches of resamples that keep the weights under 64 MiB."""
    if n < 1:
        raise OptionError(f"n must be 1 or more, got {n}")
    step = max(1, (8 << 20) // max(1, queries))
    for start in range(0, n, step):
        yield min(step, n - start)


def _resampled_means(columns: Mapping[str, FloatArray], n: int, seed: int) -> dict[str, FloatArray]:
    stacked = _Stacked.of(columns)
    queries = len(stacked.values)
    generator = np.random.default_rng(seed)
    means = []
    for size in _batches(n, queries):
        drawn = generator.integers(0, queries, size=(size, queries))
        weights = np.stack([np.bincount(row, minlength=queries) for row in drawn]).astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            means.append((weights @ stacked.values) / (weights @ stacked.defined))
    joined = np.concatenate(means)  # [n, M]
    return {name: joined[:, i] for i, name in enumerate(stacked.names)}


def _sign_flip_p_values(columns: Mapping[str, FloatArray], n: int, seed: int) -> dict[str, float]:
    stacked = _Stacked.of(columns)
    observed = np.abs(stacked.values.sum(0))
    generator = np.random.default_rng(seed)
    as_large = np.zeros(len(stacked.names), dtype=np.int64)
    for size in _batches(n, len(stacked.values)):
        signs = 2.0 * generator.integers(0, 2, size=(size, len(stacked.values))) - 1
        flipped = np.abs(signs @ stacked.values)
        # Sums of the same numbers in another order differ in the last bits: those count as equal.
        as_large += (flipped >= observed - 1e-9 * np.abs(stacked.values).sum(0)).sum(0)
    p_values = (as_large + 1) / (n + 1)
    p_values[stacked.defined.sum(0) == 0] = np.nan
    return dict(zip(stacked.names, p_values.tolist(), strict=True))


def _table_rows(schema: Schema) -> list[str]:
    at_k = [f"{kind}@{k}" for kind in ("R", "P", "H-P", "H-R", "NDCG", "severity") for k in schema.ks]
    return ["H-AP", "ASI", "NDCG", "AP", "mAP@R", *at_k]


def _cell(metric: str, value: float | None) -> str:
    if value is None:
        return ""
    if np.isnan(value):
        return "-"
    # A severity is a distance in the tree, everything else a share.
    return f"{value:.3f}" if metric.startswith("severity") else f"{100 * value:.2f}"
