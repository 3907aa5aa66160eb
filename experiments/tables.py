"""Results -> tables of the documentation, each between two comments that name its study.

    <!-- table: features-emoji hierarchical -->
    ...
    <!-- end of table -->

A method's figure is the mean over its seeds, with the standard deviation where there are several. Differences
to the reference are paired by query and by seed; in their intervals seeds and finest classes are random
(`happier.evaluation.seed_difference`). A star marks p < 0.05 after Holm's adjustment for all rows of the
table, a dagger a difference of one seed, which has no interval.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Literal

import numpy as np
import numpy.typing as npt

from experiments.changes import read_changes
from experiments.hierarchy_gain import CHANGES, GainRun
from experiments.hierarchy_gain import SEEDS as GAIN_SEEDS
from experiments.partial_labels import PartialRun, partial_runs
from experiments.results import RESULTS, RunResult, StoredRun, find_result, query_classes
from experiments.tuned import FEATURES, FINE_TUNING, Method, read_methods, read_protocol
from experiments.warm_start import WAYS, warm_starts
from happier.arrays import IntArray
from happier.errors import ConfigError
from happier.evaluation import Difference, holm, seed_difference
from happier.evaluation.paper_tables import PUBLISHED, QUOTED
from happier.evaluation.table import SIGNIFICANT

PAGES = tuple(
    Path(__file__).parent.parent / "docs" / name
    for name in ("results.md", "guides/does-the-hierarchy-help.md")
)
Part = Literal["summary", "dyml"]
_MARKED = re.compile(r"(<!-- table: (\S+) (\S+) -->\n)(.*?)(<!-- end of table -->)", re.DOTALL)


@dataclass(frozen=True)
class Figures:
    """The results of one method: those of its seeds that were run.

    Attributes:
        name: of the method.
        jobs: the runs that have a result.
    """

    name: str
    jobs: tuple[StoredRun, ...]

    @cached_property
    def results(self) -> list[RunResult]:
        """The result of each run."""
        return [result for job in self.jobs if (result := find_result(job)) is not None]

    def values(self, metric: str, part: Part = "summary") -> list[float]:
        """A metric of each run."""
        return [(result.dyml if part == "dyml" else result.summary)[metric] for result in self.results]

    def mean(self, metric: str) -> float:
        """A metric's mean over the runs."""
        return fmean(self.values(metric))

    def weighted_ap(self) -> list[float]:
        """Plain mean of the levels' AP of each run."""
        return [fmean(v for n, v in result.summary.items() if n.startswith("AP/")) for result in self.results]

    @cached_property
    def per_query(self) -> dict[int, npt.NDArray[np.float64]]:
        """H-AP of each query, by seed: the mean of its class, which is what is stored."""
        classes, runs = self.classes, zip(self.jobs, self.results, strict=True)
        return {job.seed: result.h_ap[classes] for job, result in runs}

    @cached_property
    def classes(self) -> IntArray:
        """The finest class of each query."""
        folder = self.jobs[0].folder
        classes = query_classes(folder)
        if classes is None:
            raise ConfigError(f"no classes of the queries of {folder} in {RESULTS}: run one of its jobs")
        return classes


def change_figures(study: str) -> dict[str, Figures]:
    """The rows of a study of `changes` that have results."""
    found = {
        row: Figures(row, tuple(run for run in runs if find_result(run) is not None))
        for row, runs in read_changes(study).items()
    }
    return {row: figures for row, figures in found.items() if figures.jobs}


def tuned_figures(protocol: str, set_name: str) -> dict[str, Figures]:
    """The methods of a set of a protocol whose chosen configuration has results."""
    found = {
        one.name: Figures(one.name, tuple(run for run in one.final if run.seed in one.results))
        for one in _tuned_methods(protocol, set_name)
    }
    return {name: figures for name, figures in found.items() if figures.jobs}


def _tuned_methods(protocol: str, set_name: str) -> list[Method]:
    return [one for methods in read_methods(protocol, set_name) for one in methods]


def hierarchical_table(methods: dict[str, Figures], reference: str) -> list[list[str]]:
    """Table 1: H-AP, ASI, NDCG, and the paired difference of H-AP to the reference."""
    rows = [["method", "seeds", "H-AP", "ASI", "NDCG", f"H-AP against {reference}"]]
    columns = [_column(methods, metric) for metric in ("H-AP", "ASI", "NDCG")]
    for (name, one), *cells in zip(methods.items(), *columns, against(methods, reference), strict=True):
        rows.append([name, str(len(one.jobs)), *cells])
    return rows


def level_table(methods: dict[str, Figures]) -> list[list[str]]:
    """Tables 3 and 4: R@1 and AP of each level, coarse to fine, and how bad the first answers are."""
    first = next(iter(methods.values())).results[0].summary
    names = [name.removeprefix("AP/") for name in first if name.startswith("AP/")]
    metrics = [f"R@1/{names[-1]}", *(f"AP/{name}" for name in names)]
    distances = ["severity@1", "severity@10"]
    columns = [_column(methods, metric) for metric in metrics]
    columns += [_column(methods, metric, severity=True) for metric in distances]
    return [
        ["method", *(metric.replace("/", " ") for metric in metrics), *distances],
        *([name, *cells] for name, *cells in zip(methods, *columns, strict=True)),
    ]


def dyml_table(methods: dict[str, Figures]) -> list[list[str]]:
    """Table 2, DyML's protocol: AP, ASI and R@1, the mean over the scales."""
    metrics = ["mAP", "ASI", "R@1"]
    columns = [_column(methods, metric, "dyml") for metric in metrics]
    return [["method", *metrics], *([name, *cells] for name, *cells in zip(methods, *columns, strict=True))]


def relevance_table(methods: dict[str, Figures]) -> list[list[str]]:
    """Table 6: each training under H-AP (Eq. 4), under the plain mean of the levels' AP, and under NDCG."""
    rows = [["trained for", "H-AP", "mean AP of the levels", "NDCG"]]
    for name, one in methods.items():
        rows.append([name, *map(_cell, (one.values("H-AP"), one.weighted_ap(), one.values("NDCG")))])
    return rows


def gradient_table(model: str) -> list[list[str]]:
    """Where the gradient of each surrogate goes, on batches of one model."""
    found = json.loads((RESULTS / "gradients.json").read_text(encoding="utf-8"))[model]
    ways = [name for name in next(iter(found.values())) if "/" in name]
    shown = [way for way in ways if max(one[way] for one in found.values()) >= 0.001]
    rows = [["surrogate", "pairs moved", *(way.replace("/", " ") for way in shown)]]
    for name, one in found.items():
        rows.append([name, f"{one['moved']:.1%}", *(f"{one[way]:.1%}" for way in shown)])
    return rows


def retrieval_table() -> list[list[str]]:
    """How many of the first answers are of the query's group, over all queries."""
    found = json.loads((RESULTS / "retrievals.json").read_text(encoding="utf-8"))
    return [
        ["of the first six answers", *found],
        ["of the query's group", *map("{:.0%}".format, found.values())],
    ]


def published_table(data: str) -> list[list[str]]:
    """The paper's own figures: one of its data sets, or one of its other tables."""
    if data in QUOTED:
        quoted = QUOTED[data]
        return [[quoted.title, *quoted.columns], *([name, *cells] for name, cells in quoted.rows.items())]
    table = PUBLISHED[data]
    rows = [[table.title, *table.columns]]
    for name, values in table.rows.items():
        rows.append([name, *("" if value is None else f"{value:.1f}" for value in values)])
    return rows


def tuning_table(protocol: str, set_name: str) -> list[list[str]]:
    """H-AP on held-out training classes of the configurations that were tried, and the best of them."""
    rows = [["method", "tried", "defaults", "median", "best", "configuration"]]
    for one in _tuned_methods(protocol, set_name):
        tried = one.tried
        cells = (
            [f"{100 * value:.1f}" for value in (tried[0], median(tried), max(tried))] if tried else [""] * 3
        )
        chosen = ""
        if one.final:
            settings = [text for text in one.final[0].settings if text in one.drawn]
            chosen = ", ".join(text.split(".", 1)[1] for text in settings) or "the defaults"
        rows.append([one.name, f"{len(tried)} of {len(one.tuned_on)}", *cells, chosen])
    return rows


def warm_start_table(set_name: str) -> list[list[str]]:
    """What each way of training costs, and what it reaches."""
    rows: list[list[str]] = []
    for way in WAYS:
        runs = tuple(run for run in warm_starts(set_name, way) if find_result(run) is not None)
        if not runs:
            continue
        one = Figures(way, runs)
        metrics = ["H-AP", *(name for name in one.results[0].summary if name.startswith("AP/"))]
        rows = rows or [["way", "seeds", "CPU s", *(name.replace("/", " ") for name in metrics)]]
        cost = fmean(result.details["cpu_seconds"] for result in one.results)
        cells = (_cell(one.values(metric)) for metric in metrics)
        rows.append([way, str(len(runs)), f"{cost:.0f}", *cells])
    return rows


def progress_table(protocol: str) -> list[list[str]]:
    """How much of a protocol has run."""
    rows = [["set", "configurations tried", "runs on test"]]
    for set_name in read_protocol(protocol)["sets"]:
        methods = _tuned_methods(protocol, set_name)
        tried, tuning = sum(len(one.tried) for one in methods), sum(len(one.tuned_on) for one in methods)
        run, final = sum(len(one.results) for one in methods), sum(len(one.seeds) for one in methods)
        source = methods[0].tuned_on[0].set_name
        cell = f"{tried} of {tuning}" if source == set_name else f"those of {source}"
        rows.append([set_name, cell, f"{run} of {final}"])
    return rows


def partial_figures(protocol: str) -> dict[bool, dict[float, Figures]]:
    """The runs of `partial_labels` that have results: with and without partly labelled images, by share."""
    found: dict[bool, dict[float, list[PartialRun]]] = {True: {}, False: {}}
    for run in partial_runs(protocol):
        if find_result(run) is not None:
            # Where nothing is removed, there is nothing to leave out.
            for kept in (run.kept,) if run.removed else (True, False):
                found[kept].setdefault(run.removed, []).append(run)
    return {
        kept: {removed: Figures(f"{removed:.0%}", tuple(runs)) for removed, runs in shares.items()}
        for kept, shares in found.items()
    }


def partial_table(protocol: str) -> list[list[str]]:
    """H-AP over the share of fine labels that are removed, with and without the partly labelled images."""
    figures = partial_figures(protocol)
    rows = [["fine labels removed", "seeds", "all images", "fully labelled images only", "difference"]]
    shares = [share for share in figures[True] if share in figures[False]]
    found = [_difference(figures[True][share], figures[False][share]) if share else None for share in shares]
    adjusted = holm([one.p_value if one else np.nan for one in found])
    for share, one, p_value in zip(shares, found, adjusted, strict=True):
        pair = [figures[kept][share] for kept in (True, False)]
        cells = [_cell(methods.values("H-AP")) for methods in pair]
        rows.append([f"{share:.0%}", str(len(pair[0].jobs)), *cells, _difference_cell(one, p_value)])
    return rows


def gain_table() -> list[list[str]]:
    """What HAPPIER gains over the fine-only loss after each change of the data, seed by seed."""
    rows = [["emoji", "seeds", "HAPPIER", "NSM", "gain", "smallest to largest"]]
    for change in CHANGES:
        pairs = [
            (ours.summary["H-AP"], other.summary["H-AP"])
            for seed in GAIN_SEEDS
            if (ours := find_result(GainRun(change, "happier", seed))) is not None
            and (other := find_result(GainRun(change, "nsm", seed))) is not None
        ]
        if pairs:
            gains = [ours - other for ours, other in pairs]
            cells = [_cell([pair[side] for pair in pairs]) for side in (0, 1)]
            rows.append([str(change), str(len(pairs)), *cells, f"{100 * fmean(gains):+.1f}", _spread(gains)])
    return rows


def _spread(gains: Sequence[float]) -> str:
    return f"{100 * min(gains):+.1f} to {100 * max(gains):+.1f}" if len(gains) > 1 else "†"


def candidate_table() -> list[list[str]]:
    """H-AP on held-out classes after each change of HAPPIER, and the difference, seed by seed."""
    rows = [["HAPPIER", "seeds", "H-AP", "difference", "smallest to largest", "CPU s"]]
    studied = read_changes("candidates")
    before = {run.seed: find_result(run) for run in next(iter(studied.values()))}
    for change, runs in studied.items():
        pairs = [
            (one, other)
            for run in runs
            if (one := find_result(run)) is not None and (other := before[run.seed]) is not None
        ]
        if not pairs:
            continue
        values = [one.summary["H-AP"] for one, _ in pairs]
        gains = [one.summary["H-AP"] - other.summary["H-AP"] for one, other in pairs]
        cells = [f"{100 * fmean(gains):+.1f}", _spread(gains)] if any(gains) else ["", ""]
        cost = fmean(one.details["cpu_seconds"] for one, _ in pairs)
        rows.append([change, str(len(pairs)), _cell(values), *cells, f"{cost:.0f}"])
    return rows


TABLES: dict[str, Callable[[dict[str, Figures]], list[list[str]]]] = {
    "levels": level_table,
    "dyml": dyml_table,
    "relevance": relevance_table,
}


# By the first word of their mark; the second is what they are of.
OTHER_TABLES: dict[str, Callable[[str], list[list[str]]]] = {
    "gradients": gradient_table,
    "retrievals": lambda _: retrieval_table(),
    "partial-emoji": partial_table,
    "published": published_table,
    FEATURES: lambda _: progress_table(FEATURES),
    FINE_TUNING: lambda _: progress_table(FINE_TUNING),
    "warm-start": warm_start_table,
    "hierarchy-gain": lambda _: gain_table(),
    "candidates": lambda _: candidate_table(),
}
NOT_RUN = "Not run yet.\n"


def fill(text: str) -> str:
    """The same page with every marked table regenerated from the results."""

    def table(match: re.Match[str]) -> str:
        head, study, kind, _, end = match.groups()
        return f"{head}\n{_table(study, kind)}\n{end}"

    return _MARKED.sub(table, text)


def _table(study: str, kind: str) -> str:
    if study in OTHER_TABLES:
        rows = OTHER_TABLES[study](kind)
        return markdown(rows) if len(rows) > 1 else NOT_RUN
    protocol = next((name for name in (FEATURES, FINE_TUNING) if study.startswith(f"{name}-")), None)
    if protocol:
        set_name = study.removeprefix(f"{protocol}-")
        if kind == "tuning":
            return markdown(tuning_table(protocol, set_name))
        methods = tuned_figures(protocol, set_name)
        reference = str(read_protocol(protocol)["reference"])
    else:
        methods = change_figures(study.removeprefix("changes-"))
        reference = next(iter(methods), "")
    if not methods or (kind == "hierarchical" and reference not in methods):
        return NOT_RUN
    if kind == "hierarchical":
        return markdown(hierarchical_table(methods, reference))
    return markdown(TABLES[kind](methods))


def fill_page(path: Path) -> bool:
    """Fill the tables of a page; returns whether anything changed."""
    before = path.read_text(encoding="utf-8")
    after = fill(before)
    if after != before:
        path.write_text(after, encoding="utf-8")
    return after != before


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first row is its head, and all columns but the first are right-aligned."""
    lines = [" | ".join(row) for row in rows]
    lines.insert(1, " | ".join(["---", *("---:" for _ in rows[0][1:])]))
    return "".join(f"| {line} |\n" for line in lines)


def _column(
    methods: dict[str, Figures],
    metric: str,
    part: Literal["summary", "dyml"] = "summary",
    *,
    severity: bool = False,
) -> list[str]:
    """A metric of every method, the best one bold; a severity is a distance, best where it is small."""
    values = [one.values(metric, part) for one in methods.values()]
    cells = [f"{fmean(one):.2f}" if severity else _cell(one) for one in values]
    best = (min if severity else max)(range(len(values)), key=lambda place: fmean(values[place]))
    cells[best] = f"**{cells[best]}**"
    return cells


def _cell(values: Sequence[float]) -> str:
    """Mean in percent, with the standard deviation where there are several runs."""
    mean = f"{100 * fmean(values):.1f}"
    return f"{mean} ± {100 * stdev(values):.1f}" if len(values) > 1 else mean


def against(methods: dict[str, Figures], reference: str) -> list[str]:
    """The difference of each method's H-AP to the reference's, over the seeds that both have.

    Args:
        methods: all rows of a table, for which p-values are adjusted.
        reference: the method that the others are compared with; its own cell is empty.
    """
    found = {name: _difference(one, methods[reference]) for name, one in methods.items() if name != reference}
    adjusted = holm([one.p_value if one else np.nan for one in found.values()])
    cells = {reference: ""}
    for (name, one), p_value in zip(found.items(), adjusted, strict=True):
        cells[name] = _difference_cell(one, p_value)
    return [cells[name] for name in methods]


def _difference(one: Figures, other: Figures) -> Difference | None:
    seeds = sorted(one.per_query.keys() & other.per_query.keys())
    if not seeds:
        return None
    mine, theirs = ([figures.per_query[seed] for seed in seeds] for figures in (one, other))
    return seed_difference(mine, theirs, one.classes)


def _difference_cell(one: Difference | None, p_value: float) -> str:
    if one is None:
        return ""
    mean, low, high = (f"{100 * value:+.1f}" for value in (one.mean, one.low, one.high))
    if np.isnan(one.low):
        return f"{mean} †"
    return f"{mean} ({low} to {high})" + (" *" if p_value < SIGNIFICANT else "")
