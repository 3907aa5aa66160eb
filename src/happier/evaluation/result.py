"""The outcome of an evaluation: values per query, their means, and confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from happier.arrays import FloatArray, IntArray
from happier.errors import InputError, OptionError
from happier.evaluation.statistics import (
    Difference,
    Interval,
    check_confidence,
    estimate,
    format_p_value,
)
from happier.extras import needs_extra
from happier.metrics.schema import Schema, higher_is_better, is_distance, is_redundant
from happier.storage.atomic import atomic_file

Columns = Callable[[], Iterable[tuple[str, FloatArray]]]


@final
class Result:
    """The outcome of `happier.evaluate`.

    Attributes:
        summary: mean of each metric over the queries where it is defined, and the number of ``queries``, of
            ``queries_without_positives`` and the share of ``tied_queries`` (equal scores of different level).
        per_query: each metric's value for each query, float64 ``[Q]``, NaN where undefined.
        schema: level names and cut-offs.
        classes: number of the finest class of each query ``[Q]``, which intervals resample; None where they
            are not known, as for rankings from elsewhere: then queries are resampled, and intervals are too
            narrow wherever queries of one class are alike.
    """

    def __init__(
        self, columns: Columns, schema: Schema, without_positives: int, classes: IntArray | None = None
    ) -> None:
        self._columns: Final = columns
        self.schema: Final = schema
        self.classes: Final = classes
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
        if classes is not None and len(classes) != queries:
            raise InputError(f"classes must have one entry for each of {queries} queries, got {len(classes)}")

    @property
    def resampled(self) -> str:
        """What intervals resample, in words: so many finest classes, or queries where classes are unknown."""
        if self.classes is None:
            return f"{self.summary['queries']:,} queries (their classes are not known)"
        return f"{len(np.unique(self.classes)):,} finest classes"

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
        """Confidence interval of each metric's mean, by resampling the finest classes with all their queries.

        It says how much the mean depends on which classes were tested, not on the training's seed: see
        `happier.evaluation.statistics`. An interval ends where the values of its metric end.

        Args:
            n: number of resamples, for the standard error.
            seed: of the resampling.
            confidence: probability that the interval holds the mean over all classes alike to these.
        """
        check_confidence(confidence)
        found = estimate(_stacked([self], self.per_query), _units(self), n=n, seed=seed)
        intervals = {}
        for name, one in zip(self.per_query, found, strict=True):
            mean = self.summary[name]  # the same to the last bit
            _, low, high = replace(one, mean=mean).interval(confidence)
            intervals[name] = Interval(mean, max(low, 0.0), min(high, self._largest(name)))
        return intervals

    def _largest(self, metric: str) -> float:
        """The largest possible value of a metric."""
        return float(self.schema.depth) if is_distance(metric) else 1.0

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
        from rich.text import Text

        table = Table(title=f"{self.summary['queries']:,} queries", title_justify="left")
        table.add_column("metric")
        names = [name for _, name in self.schema.levels()]
        table.add_column("all", justify="right")
        for name in names:
            table.add_column(Text(name), justify="right")  # a name may look like markup
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
        return _printed(self)


@final
class Differences(dict[str, Difference]):
    """Differences by metric; printed, a table that says which of the two is better.

    Attributes:
        random: what is random in the intervals, in words.
    """

    def __init__(self, found: Mapping[str, Difference], random: str) -> None:
        super().__init__(found)
        self.random: Final = random

    def __rich__(self) -> Any:
        from rich.table import Table

        table = Table(
            title="second minus first",
            title_justify="left",
            caption=f"95 % intervals over {self.random}; p of each row alone (adjust by `holm`)",
        )
        for name in ("metric", "difference", "interval", "p", "better"):
            table.add_column(name, justify="left" if name == "metric" else "right", no_wrap=True)
        for metric, one in self.items():
            if higher_is_better(metric) is None or is_redundant(metric):
                continue
            low, high = (_cell(metric, value, signed=True) for value in (one.low, one.high))
            interval = low if low == high else f"{low} to {high}"
            cells = (_cell(metric, one.mean, signed=True), interval, format_p_value(one.p_value))
            table.add_row(metric, *cells, _better(metric, one))
        return table

    def __repr__(self) -> str:
        return _printed(self)


def compare(
    a: Result | Sequence[Result],
    b: Result | Sequence[Result],
    *,
    n: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Differences:
    """Paired differences ``b - a`` of every metric that both results have.

    With one result each, what is random are the test classes: finest classes are resampled, and nothing is
    said about another training. With several results of each, one per training seed, seeds and classes are
    random. Queries where either is undefined are left out. p-values are two-sided, and below
    ``1 - confidence`` exactly where the interval leaves out 0; for several comparisons in one table adjust
    them by `happier.evaluation.holm`.

    Args:
        a: the baseline, or its results for several seeds.
        b: what is compared with it, on the same queries in the same order, with the same seeds.
        n: number of resamples.
        seed: of the resampling.
        confidence: of the intervals.

    Raises:
        InputError: the results have different numbers of queries, or of seeds.
    """
    check_confidence(confidence)
    first, second = ([one] if isinstance(one, Result) else list(one) for one in (a, b))
    if len(first) != len(second) or not first:
        raise InputError(f"compare needs a result of each for every seed, got {len(first)} and {len(second)}")
    every = [*first, *second]
    if len({one.summary["queries"] for one in every}) > 1:
        first_number, *others = (one.summary["queries"] for one in every)
        other = next(number for number in others if number != first_number)
        raise InputError(
            f"compare needs results of the same queries, got results of {first_number} queries and {other}"
        )
    names = [name for name in first[0].per_query if all(name in one.per_query for one in every)]
    units = _units(next((one for one in every if one.classes is not None), first[0]))
    for one in every:
        if one.classes is not None and not np.array_equal(one.classes, units):
            raise InputError("compare needs results of the same queries, got queries of other classes")
    found = estimate(_stacked(second, names) - _stacked(first, names), units, n=n, seed=seed)
    known = any(one.classes is not None for one in every)
    random = f"{len(np.unique(units)):,} {'finest classes' if known else 'queries, their classes not known'}"
    if len(first) > 1:
        random = f"{len(first)} seeds and {random}"
    differences = [one.difference(confidence) for one in found]
    return Differences(dict(zip(names, differences, strict=True)), random)


def _stacked(results: Sequence[Result], names: Iterable[str]) -> FloatArray:
    """Values per query ``[result, query, metric]``."""
    chosen = list(names)
    return np.stack([np.stack([one.per_query[name] for name in chosen], axis=1) for one in results])


def _units(result: Result) -> IntArray:
    """What is resampled: the class of each query, or the query itself where classes are unknown."""
    return np.arange(int(result.summary["queries"])) if result.classes is None else result.classes


def _mean(values: FloatArray) -> float:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else float("nan")


def _printed(table: Any) -> str:
    from rich.console import Console

    # Plain text wherever it goes: a notebook would show an empty output beside it, and codes for colours.
    console = Console(width=100, force_jupyter=False, force_terminal=False, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return capture.get().rstrip()


def _better(metric: str, difference: Difference) -> str:
    if np.isnan(difference.low) or difference.low <= 0 <= difference.high:
        return "-"
    return "second" if (difference.mean > 0) == higher_is_better(metric) else "first"


def _table_rows(schema: Schema) -> list[str]:
    at_k = [f"{kind}@{k}" for kind in ("R", "P", "H-P", "H-R", "NDCG", "severity") for k in schema.ks]
    return ["H-AP", "ASI", "NDCG", "AP", "mAP@R", *(name for name in at_k if not is_redundant(name))]


def _cell(metric: str, value: float | None, *, signed: bool = False) -> str:
    if value is None:
        return ""
    if np.isnan(value):
        return "-"
    sign = "+" if signed else ""
    # A distance in the tree; everything else is a share.
    return f"{value:{sign}.3f}" if is_distance(metric) else f"{100 * value:{sign}.2f}"
