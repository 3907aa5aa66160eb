"""Results of one or more models -> the rows of the table of figures, in the order they are shown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from happier.evaluation.result import Result, compare
from happier.evaluation.statistics import Difference, Interval, holm
from happier.metrics.schema import Schema, higher_is_better

Unit = Literal["percent", "levels"]
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Metric:
    """One row of the table of figures.

    Attributes:
        key: name in the summary.
        label: name for readers.
        group: rows of one group are shown together.
        unit: a share, or a number of levels.
        higher_is_better: whether a larger value is the better one.
        values: of each model.
        difference: first model minus second, paired by query, the p-value adjusted for all rows of the table
            (Holm); None for a single model.
    """

    key: str
    label: str
    group: str
    unit: Unit
    higher_is_better: bool
    values: tuple[Interval, ...]
    difference: Difference | None = None

    @property
    def improved(self) -> bool | None:
        """Whether the first model beats the second, None where that is not certain: p of 0.05 or more."""
        if self.difference is None or not self.difference.p_value < SIGNIFICANT:
            return None
        return (self.difference.mean > 0) == self.higher_is_better

    @property
    def best(self) -> int | None:
        """Which of all models has the best mean, None for a single model or a tie."""
        means = [value.mean for value in self.values]
        if len(means) < 2 or any(math.isnan(mean) for mean in means):
            return None
        best = max(means) if self.higher_is_better else min(means)
        return means.index(best) if means.count(best) == 1 else None


# Group, its metrics; ``{level}`` and ``{k}`` run over all levels and cut-offs.
WHOLE, PRECISION, RECALL, SEVERITY = (
    "The whole hierarchy",
    "Average precision from each level down",
    "Recall: is one right among the first k?",
    "How wrong, in levels (lower is better)",
)


def metric_rows(results: Sequence[Result], *, resamples: int = 1000, seed: int = 0) -> tuple[Metric, ...]:
    """Every row of the table, with intervals, and with paired differences of the first two models.

    Args:
        results: of the model, of the one it is compared with, and of further ones, on the same queries.
        resamples: of the finest classes; 0 leaves the intervals out (NaN).
        seed: of the resampling.
    """
    intervals = [result.bootstrap(resamples, seed) if resamples else {} for result in results]
    shown = list(_schema_rows(results[0].schema))
    differences: dict[str, Difference] = {}
    if len(results) > 1 and resamples:
        found = compare(results[1], results[0], n=resamples, seed=seed)
        keys = [key for key, *_ in shown]
        adjusted = holm([found[key].p_value for key in keys])
        differences = {key: replace(found[key], p_value=p) for key, p in zip(keys, adjusted, strict=True)}
    rows = []
    for key, label, group, unit in shown:
        values = tuple(
            interval.get(key) or Interval(result.summary[key], math.nan, math.nan)
            for result, interval in zip(results, intervals, strict=True)
        )
        higher = higher_is_better(key) is True
        rows.append(Metric(key, label, group, unit, higher, values, differences.get(key)))
    return tuple(rows)


def _schema_rows(schema: Schema) -> Iterator[tuple[str, str, str, Unit]]:
    names = schema.level_names
    for key in ("H-AP", "ASI", "NDCG"):
        yield key, key, WHOLE, "percent"
    for name in names:
        yield f"AP/{name}", f"AP, {_level(name)}", PRECISION, "percent"
    for k in schema.ks:
        for name in names:
            yield f"R@{k}/{name}", f"R@{k}, {_level(name)}", RECALL, "percent"
    for k in schema.ks:
        label = "Severity of the first answer" if k == 1 else f"Severity of the top {k}"
        yield f"severity@{k}", label, SEVERITY, "levels"
    yield "first_mistake", "Distance of the first wrong answer", SEVERITY, "levels"


def _level(name: str) -> str:
    return f"level {name}" if name.isdigit() else name


def format_value(value: float, unit: Unit, *, signed: bool = False) -> str:
    """A figure as it is printed: percent with one digit, levels with two; a dash where undefined.

    >>> format_value(0.4291, "percent"), format_value(-0.5, "levels", signed=True)
    ('42.9', '-0.50')
    """
    if math.isnan(value):
        return "-"
    sign = "+" if signed else ""
    return f"{100 * value:{sign}.1f}" if unit == "percent" else f"{value:{sign}.2f}"


def to_latex(rows: Sequence[Metric], names: Sequence[str]) -> str:
    r"""The table as LaTeX (booktabs): one line per model, the best figures bold, recall at the first k only.

    >>> print(to_latex((), ["HAPPIER"]).splitlines()[0])
    % \usepackage{booktabs}
    """
    first_k = next((row.key.split("/")[0] for row in rows if row.group == RECALL), None)
    shown = [
        row
        for row in rows
        if row.group in (WHOLE, PRECISION) or row.key.split("/")[0] == first_k or row.key == "severity@10"
    ]
    head = " & ".join(["Method", *(_latex(row.label) for row in shown)])
    lines = [
        r"% \usepackage{booktabs}",
        rf"\begin{{tabular}}{{l{'r' * len(shown)}}}",
        r"\toprule",
        rf"{head} \\",
        r"\midrule",
    ]
    for index, name in reversed(list(enumerate(names))):
        cells = []
        for row in shown:
            text = format_value(row.values[index].mean, row.unit)
            cells.append(rf"\textbf{{{text}}}" if row.best == index else text)
        lines.append(rf"{' & '.join([_latex(name), *cells])} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: "\\" + character for character in "&%$#_{}"},
}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
