"""One to four runs -> a `Report`: evaluate, look at the mistakes, choose the examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from happier.errors import InputError, OptionError
from happier.evaluation import precision_recall_curve
from happier.evaluation.exact import PAPER_RELEVANCE, Ties
from happier.evaluation.protocol import Evaluation, Search, evaluate_manifest
from happier.relevance import Relevance
from happier.report.class_map import class_map
from happier.report.data import Curve, DataSet, Metric, Report, Severity
from happier.report.examples import examples
from happier.report.mistakes import class_rows, severity
from happier.report.pictures import Pictures
from happier.report.provenance import model, provenance, training_curves
from happier.report.subject import Subject
from happier.report.table import metric_rows
from happier.runs import Run

MAX_RUNS = 4
"""The model, the one it is compared with, and two beside: more would not be told apart."""
MAX_QUERIES = 5_000
"""Lists and curves are taken of no more queries than this, drawn at random; figures are always of all."""
DEEP_TREE = 5
"""From this many levels on, 25 answers are shown for each query instead of 10."""

IntArray = npt.NDArray[np.int64]
Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a report is made.

    Attributes:
        split: what to evaluate, see `happier.evaluation.protocol.splits_to_search`.
        relevance: of each level.
        ks: cut-offs of the metrics at k.
        ties: order of equal scores.
        seed: of everything that is drawn.
        resamples: of the bootstrap.
        title: of the page; by default the models and the data.
        commands: what the reader may run to get here.
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


def collect(runs: Sequence[Run], folder: Path, options: Options, tell: Tell) -> Report:
    """Gather all that a report says; its pictures go into ``folder/images``.

    Args:
        runs: the model, the one to compare it with, and those to show beside.
        folder: of the page.
        options: how.
        tell: called with what is being done.

    Raises:
        InputError: the runs are not of the same rows.
        OptionError: there are none, or too many.
    """
    check_number(len(runs))
    seed, ties, relevance = options.seed, options.ties, options.relevance
    check_same_rows(runs)
    runs = with_different_names(runs)
    tell("evaluating")
    found = [
        evaluate_manifest(
            run.vectors, run.manifest, split=options.split, relevance=relevance, ks=options.ks, ties=ties
        )
        for run in runs
    ]
    subjects = [_subject(run, evaluation, ties) for run, evaluation in zip(runs, found, strict=True)]
    first = subjects[0]
    tell("intervals")
    metrics = metric_rows([subject.result for subject in subjects], resamples=options.resamples, seed=seed)
    tell("ranking")
    queries = _drawn(len(first.search.queries), seed)
    longest = max(1, min(100, len(first.search.gallery_rows) - 1))
    retrievals = [subject.retrieve(queries, longest) for subject in subjects]
    mistakes = severity(subjects, retrievals)
    curve = _curve(subjects, queries, relevance)
    pictures = Pictures(folder)
    tell("choosing examples")
    shown = examples(subjects, pictures, answers=25 if first.depth >= DEEP_TREE else 10, seed=seed)
    tell("drawing the map")
    drawn = class_map(subjects, pictures, seed=seed)
    data = _data_set(first)
    settings = {
        "Relevance": repr(relevance),
        "Ties": f"equal scores ordered {ties} first",
        "Intervals": f"95 %, {options.resamples:,} resamples of the queries, seed {seed}",
        "Lists and curves": "of all queries"
        if len(queries) == data.queries
        else f"of {len(queries):,} queries",
    }
    if len(found[0].searches) > 1:
        names = ", ".join(search.name for search in found[0].searches)
        settings["Test sets"] = f"{names}; this page shows {first.search.name!r}"
    return Report(
        title=options.title or _title(runs, data),
        data=data,
        models=tuple(model(run) for run in runs),
        headline=_headline(runs, data, metrics[0], mistakes),
        metrics=metrics,
        severity=mistakes,
        curve=curve,
        class_map=drawn,
        examples=shown,
        classes=class_rows(subjects, retrievals),
        training=training_curves(runs),
        provenance=provenance(runs, options.commands, settings),
    )


def check_number(runs: int) -> None:
    """A report is of one run, of one against another, or of these with one or two beside.

    Raises:
        OptionError: there are none, or too many.
    """
    if not 1 <= runs <= MAX_RUNS:
        raise OptionError(
            f"a report is of 1 to {MAX_RUNS} runs, got {runs}: the model, the one it is compared with, "
            f"and up to {MAX_RUNS - 2} beside"
        )


def check_same_rows(runs: Sequence[Run]) -> None:
    """Models can be compared query by query only on the same images with the same labels.

    Raises:
        InputError: they have different rows.
    """
    first = runs[0]
    for other in runs[1:]:
        if first.manifest.levels != other.manifest.levels or len(first.manifest) != len(other.manifest):
            raise InputError(
                f"{first.source} and {other.source} were evaluated on different data: "
                f"{len(first.manifest)} rows of {list(first.manifest.levels)} and {len(other.manifest)} of "
                f"{list(other.manifest.levels)}; give all the same --manifest"
            )
        same = np.array_equal(first.manifest.ids(), other.manifest.ids())
        if not same or not np.array_equal(first.manifest.labels(), other.manifest.labels()):
            raise InputError(
                f"{first.source} and {other.source} hold other images or labels, or another order; "
                "give all the same --manifest"
            )


def with_different_names(runs: Sequence[Run]) -> Sequence[Run]:
    """Runs of one loss go by the names of their directories; a run with a name of its own keeps it."""
    names = [run.name for run in runs]
    for other in ([Path(run.source).name for run in runs], [run.source for run in runs]):
        times = Counter(names)
        names = [new if times[old] > 1 else old for old, new in zip(names, other, strict=True)]
    return [replace(run, name=name) for run, name in zip(runs, names, strict=True)]


def _subject(run: Run, found: Evaluation, ties: Ties) -> Subject:
    # Of several test sets the finest is shown; the others' figures are `happier evaluate`'s.
    return Subject(run, found.searches[-1], found.results[-1], ties)


def _drawn(queries: int, seed: int) -> IntArray:
    if queries <= MAX_QUERIES:
        return np.arange(queries)
    return np.sort(np.random.default_rng(seed).choice(queries, MAX_QUERIES, replace=False))


def _curve(subjects: Sequence[Subject], queries: IntArray, relevance: Relevance) -> Curve | None:
    found = [
        precision_recall_curve(
            **subject.search.arguments(subject.run.vectors, subject.run.manifest),
            queries=queries,
            relevance=relevance,
            ties=subject.ties,
        )
        for subject in subjects
    ]
    if not all(np.isfinite(curve.precision).all() for curve in found):
        return None
    half_step = found[0].recall[0] / 2
    return Curve(
        tuple((found[0].recall - half_step).tolist()),
        tuple(tuple(curve.precision.tolist()) for curve in found),
        tuple(curve.area for curve in found),
    )


def _data_set(subject: Subject) -> DataSet:
    manifest, search = subject.run.manifest, subject.search
    labels = subject.query_labels
    return DataSet(
        name=manifest.name or "images",
        protocol=_protocol(search),
        levels=search.level_names,
        classes=tuple(len(np.unique(column[column >= 0])) for column in labels.T),
        queries=len(search.queries),
        gallery=len(search.gallery_rows) - (search.gallery is None),
        queries_without_positives=int(subject.result.summary["queries_without_positives"]),
        credits=manifest.credits,
    )


def _protocol(search: Search) -> str:
    return f"{search.protocol}, test set {search.name}" if search.name else search.protocol


def _title(runs: Sequence[Run], data: DataSet) -> str:
    if len(runs) > 1:
        return f"{runs[0].name} against {runs[1].name} on {data.name}"
    return f"{runs[0].name} on {data.name}"


def _headline(runs: Sequence[Run], data: DataSet, main: Metric, mistakes: Severity) -> str:
    """The sentences that a hurried reader takes away: one or two, and one more for the models beside."""
    depth = mistakes.ks[-1]
    near = [sum(levels[-1] for levels in shares[1:]) for shares in mistakes.shares]
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
