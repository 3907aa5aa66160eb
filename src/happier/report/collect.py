"""One to four runs -> a `Report`: evaluate, look at the mistakes, choose the examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from happier.arrays import IntArray
from happier.errors import InputError
from happier.evaluation.options import PAPER_RELEVANCE, EvaluationOptions, Ties
from happier.evaluation.retrieval import curve_of_problem
from happier.evaluation.table import Metric
from happier.identification.experiment import IdentificationFigures
from happier.progress import Status
from happier.relevance import Relevance
from happier.report.class_map import class_map
from happier.report.data import DataSet, PrecisionRecall, Report, Severity
from happier.report.evaluated_run import EvaluatedRun
from happier.report.examples import examples
from happier.report.images import Pictures
from happier.report.mistakes import class_rows, severity
from happier.report.provenance import model, provenance, training_curves
from happier.runs import Run
from happier.runs.comparison import Comparison, compare_runs
from happier.runs.identified import identify_run

MAX_QUERIES = 5_000
"""Lists and curves use at most this many queries, drawn at random; figures always use all."""
DEEP_TREE = 5
"""From this many levels on, 25 answers are shown for each query instead of 10."""


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """How a report is made.

    Attributes:
        split: what to evaluate, see `happier.evaluation.protocol.splits_to_search`.
        relevance: of each level.
        ks: cut-offs of the metrics at k.
        ties: order of equal scores.
        seed: of all random choices.
        resamples: of the finest classes, for the intervals.
        title: of the page; by default the models and the data.
        commands: that reproduce the report.
        figures: also write each figure as PNG, SVG and PDF.
    """

    split: str | None = None
    relevance: Relevance = PAPER_RELEVANCE
    ks: Sequence[int] = (1, 10, 100)
    ties: Ties = "worst"
    seed: int = 0
    resamples: int = 1000
    title: str | None = None
    commands: Sequence[str] = ()
    figures: bool = True


def collect(runs: Sequence[Run], folder: Path, options: ReportOptions, status: Status) -> Report:
    """Collect the contents of a report; its pictures go into ``folder/images``.

    Args:
        runs: the model, the one to compare it with, and those to show alongside.
        folder: of the page.
        options: how.
        status: called with what is being done.

    Raises:
        InputError: the runs are not of the same rows.
        OptionError: there are none, or too many.
    """
    status("evaluating")
    found = compare_runs(
        runs,
        EvaluationOptions(relevance=options.relevance, ks=options.ks, ties=options.ties),
        split=options.split,
        resamples=options.resamples,
        seed=options.seed,
        reuse=True,
    )
    # Of several test sets the finest is shown; the others' figures are `happier evaluate`'s.
    evaluated = [
        EvaluatedRun(run, one.sets[-1], one.problems[-1], one.results[-1], options.ties)
        for run, one in zip(found.runs, found.evaluations, strict=True)
    ]
    first, metrics = evaluated[0], found.rows[-1]
    with _naming(found, options.seed) as naming:
        status("ranking")
        queries = _drawn(len(first.test_set.queries), options.seed)
        longest = max(1, min(100, len(first.test_set.gallery_rows) - 1))
        retrievals = [run.retrieve(queries, longest) for run in evaluated]
        mistakes = severity(evaluated, retrievals)
        curve = _curve(evaluated, queries, options.relevance)
        pictures = Pictures(folder)
        status("choosing examples")
        answers = 25 if first.depth >= DEEP_TREE else 10
        shown = examples(evaluated, pictures, answers=answers, seed=options.seed)
        status("drawing the map")
        drawn = class_map(evaluated, pictures, seed=options.seed)
        status("naming images")
        identification, obstacle = naming()
    data = _data_set(first)
    settings = _settings(found, options, len(queries)) | ({"Naming images": obstacle} if obstacle else {})
    return Report(
        title=options.title or _title(found.runs, data),
        data=data,
        models=tuple(model(run) for run in found.runs),
        headline=_headline(found.runs, data, metrics[0], mistakes),
        metrics=metrics,
        severity=mistakes,
        curve=curve,
        class_map=drawn,
        examples=shown,
        classes=class_rows(evaluated, retrievals),
        identification=identification,
        training=training_curves(found.runs),
        provenance=provenance(found.runs, options.commands, settings),
    )


@contextmanager
def _naming(
    found: Comparison, seed: int
) -> Iterator[Callable[[], tuple[tuple[IdentificationFigures, ...], str]]]:
    """Measure how well each model's vectors name images, in a thread beside the rest of the report.

    Yields a function that waits for the figures; without them it says why they cannot be measured.
    """
    pool = ThreadPoolExecutor(1)
    pairs = zip(found.runs, found.evaluations, strict=True)
    measured = [pool.submit(identify_run, run, one.sets[-1], seed=seed) for run, one in pairs]

    def wait() -> tuple[tuple[IdentificationFigures, ...], str]:
        try:
            return tuple(one.result() for one in measured), ""
        except InputError as error:
            return (), f"not measured: {error}"

    try:
        yield wait
    finally:
        pool.shutdown(cancel_futures=True)


def _settings(found: Comparison, options: ReportOptions, drawn: int) -> dict[str, str]:
    """How it was evaluated, in words."""
    sets = found.evaluations[0].sets
    queries = len(sets[-1].queries)
    settings = {
        "Relevance": repr(options.relevance),
        "Ties": f"equal scores ordered {options.ties} first",
        "Intervals": f"95 %, {options.resamples:,} resamples of {found.evaluations[0].results[-1].resampled} "
        f"with all their queries, seed {options.seed}; one training of each model",
        "Lists and curves": "of all queries" if drawn == queries else f"of {drawn:,} queries",
    }
    if len(sets) > 1:
        names = ", ".join(one.name for one in sets)
        settings["Test sets"] = f"{names}; this page shows {sets[-1].name!r}"
    return settings


def _drawn(queries: int, seed: int) -> IntArray:
    if queries <= MAX_QUERIES:
        return np.arange(queries)
    return np.sort(np.random.default_rng(seed).choice(queries, MAX_QUERIES, replace=False))


def _curve(runs: Sequence[EvaluatedRun], queries: IntArray, relevance: Relevance) -> PrecisionRecall | None:
    found = [
        curve_of_problem(run.problem, queries=queries, relevance=relevance, ties=run.ties) for run in runs
    ]
    if not all(np.isfinite(curve.precision).all() for curve in found):
        return None
    half_step = found[0].recall[0] / 2
    return PrecisionRecall(
        tuple((found[0].recall - half_step).tolist()),
        tuple(tuple(curve.precision.tolist()) for curve in found),
        tuple(curve.area for curve in found),
    )


def _data_set(run: EvaluatedRun) -> DataSet:
    manifest, test_set = run.run.manifest, run.test_set
    name = f", test set {test_set.name}" if test_set.name else ""
    return DataSet(
        name=manifest.name or "images",
        protocol=f"{test_set.protocol}{name}",
        levels=test_set.level_names,
        classes=tuple(len(np.unique(column[column >= 0])) for column in run.query_labels.T),
        queries=len(test_set.queries),
        gallery=len(test_set.gallery_rows) - (test_set.gallery is None),
        queries_without_positives=int(run.result.summary["queries_without_positives"]),
        credits=manifest.credits,
    )


def _title(runs: Sequence[Run], data: DataSet) -> str:
    if len(runs) > 1:
        return f"{runs[0].name} against {runs[1].name} on {data.name}"
    return f"{runs[0].name} on {data.name}"


def _headline(runs: Sequence[Run], data: DataSet, main: Metric, mistakes: Severity) -> str:
    """The headline: one or two sentences, and one more for further models."""
    # As deep as an average class of the coarsest level can fill: beyond it a perfect ranking must be wrong.
    fillable = max(data.gallery // data.classes[0], mistakes.ks[0])
    at = max(place for place, k in enumerate(mistakes.ks) if k <= fillable)
    depth = mistakes.ks[at]
    near = [sum(levels[at] for levels in shares[1:]) for shares in mistakes.shares]
    coarse = data.levels[0]
    among = f"{data.queries:,} queries of {data.classes[-1]:,} classes"
    if all(run.unseen_classes for run in runs):
        among += " that no model saw in training" if len(runs) > 1 else " that it never saw in training"
    if len(runs) == 1:
        text = f"{runs[0].name} reaches an H-AP of {100 * main.values[0].mean:.1f} on {among}."
        if data.depth > 1:
            text += f" Of its first {depth} answers, {100 * near[0]:.0f} in 100 are of the right {coarse}."
        return text
    difference = main.values[0].mean - main.values[1].mean
    direction = "above" if difference >= 0 else "below"
    text = (
        f"The H-AP of {runs[0].name} is {abs(100 * difference):.1f} points {direction} that of "
        f"{runs[1].name} on {among}."
    )
    if data.depth > 1:
        text = (
            f"Of the first {depth} answers that {runs[0].name} gives, {100 * near[0]:.0f} in 100 are of the "
            f"right {coarse}; of those of {runs[1].name}, {100 * near[1]:.0f}. {text}"
        )
    beside = [
        f"{run.name} with an H-AP of {100 * value.mean:.1f}"
        for run, value in zip(runs[2:], main.values[2:], strict=True)
    ]
    if beside:
        text += f" Shown beside: {' and '.join(beside)}."
    return text
