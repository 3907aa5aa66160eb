"""A manifest and its embeddings -> the test sets that its splits describe, and their figures.

    test                       leave-one-out: every row is searched for among all others
    test + distractor          the same, with distractors among the others
    query + gallery            queries are searched for in the gallery (and the distractors)
    ... with a ``set`` column  each test set on its own (DyML's coarse, middle and fine)

An image is never retrieved for itself: rows with the query's id are left out of its list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from happier.arrays import IntArray
from happier.errors import InputError, ManifestError
from happier.evaluation.dyml import dyml_summary
from happier.evaluation.evaluate import DEFAULTS, evaluate_problem
from happier.evaluation.options import PAPER_RELEVANCE, EvaluationOptions, Ties
from happier.evaluation.problem import RetrievalProblem
from happier.evaluation.result import Result
from happier.relevance import AttributeRelevance, Relevance
from happier.taxonomy import UNKNOWN

if TYPE_CHECKING:
    from happier.data import Manifest

# DyML's scales: its test sets (Vehicle, Animal), or the levels of its one test set (Product).
DYML_LEVELS = ("coarse", "middle", "fine")


@dataclass(frozen=True)
class EvaluationSet:
    """A test set: the query rows of a manifest and the gallery rows they are searched in.

    Attributes:
        name: the test set, "" where there is only one.
        queries: rows of the queries.
        gallery: rows of the gallery, None for leave-one-out over the queries.
        level_names: the levels these rows are labelled at, coarse to fine.
        distractors: how many rows of the gallery are distractors.
    """

    name: str
    queries: IntArray
    gallery: IntArray | None
    level_names: tuple[str, ...]
    distractors: int = 0

    @property
    def gallery_rows(self) -> IntArray:
        """Rows that are searched in."""
        return self.queries if self.gallery is None else self.gallery

    @property
    def protocol(self) -> str:
        """How it is searched, in words."""
        if self.gallery is None:
            return "leave-one-out"
        among = f"{len(self.gallery):,} gallery images"
        if self.distractors:
            among += f", {self.distractors:,} of them distractors"
        return f"query and gallery ({among})"

    def arguments(self, vectors: Any, manifest: Manifest) -> dict[str, Any]:
        """The first arguments of `happier.evaluate` and its relatives, by name.

        Args:
            vectors: embeddings ``[N, D]``, one for each row of the manifest.
            manifest: the rows that `queries` and `gallery` number.
        """
        if len(vectors) != len(manifest):
            raise InputError(
                f"vectors must have one row for each of the {len(manifest)} rows of the manifest, "
                f"got {len(vectors)}"
            )
        labels = manifest.labels()[:, : len(self.level_names)]
        ids = manifest.ids()
        found: dict[str, Any] = {
            "embeddings": _rows(vectors, self.queries),
            "labels": labels[self.queries],
            "ids": ids[self.queries],
        }
        if self.gallery is not None:
            found |= {
                "gallery": _rows(vectors, self.gallery),
                "gallery_labels": labels[self.gallery],
                "gallery_ids": ids[self.gallery],
            }
        return found

    def problem(self, vectors: Any, manifest: Manifest) -> RetrievalProblem:
        """The test set prepared: checked and sorted; the arguments are those of `arguments`."""
        return RetrievalProblem.prepare(**self.arguments(vectors, manifest))

    def options(self, options: EvaluationOptions) -> EvaluationOptions:
        """The options for this test set: its levels' names, and the attributes of its own rows."""
        relevance = options.relevance
        if isinstance(relevance, AttributeRelevance):
            relevance = relevance.between(self.queries, self.gallery_rows)
        return replace(options, level_names=self.level_names, relevance=relevance)


def splits_to_search(manifest: Manifest, split: str | None = None) -> tuple[str, ...]:
    """Splits whose rows take part when ``split`` is evaluated.

    Args:
        manifest: the whole manifest.
        split: ``test``, ``val``, ``train`` (leave-one-out) or ``query`` (query and gallery); None for
            ``test`` where there is one, else ``query``, else ``val``.

    Raises:
        ManifestError: the manifest has no such rows.
    """
    present = manifest.splits
    if split is None:
        split = next((name for name in ("test", "query", "val") if name in present), "test")
    wanted = {
        "train": ("train",),
        "val": ("val",),
        "test": ("test", "distractor"),
        "query": ("query", "gallery", "distractor"),
    }
    have = ", ".join(f"{name} ({rows} rows)" for name, rows in present.items())
    if split not in wanted:
        raise ManifestError(f"split must be one of {', '.join(wanted)}, got {split!r}")
    needed = wanted[split][:-1] if "distractor" in wanted[split] else wanted[split]
    if missing := [name for name in needed if name not in present]:
        raise ManifestError(
            f"the manifest has no rows of split {' and '.join(missing)}, which evaluating {split!r} needs; "
            f"it has {have}"
        )
    return tuple(name for name in wanted[split] if name in present)


def evaluation_sets(manifest: Manifest, split: str | None = None) -> tuple[EvaluationSet, ...]:
    """The searches that a manifest's splits define, one for each test set.

    Args:
        manifest: the rows that were embedded; rows of other splits are ignored.
        split: as in `splits_to_search`.

    Raises:
        ManifestError: the manifest has no such rows, or a test set lacks queries or a gallery.
    """
    taking_part = splits_to_search(manifest, split)
    splits = manifest.table["split"].to_numpy()
    sets = _sets(manifest)
    names = _ordered(set(sets[np.isin(splits, taking_part)]))
    found = []
    for name in names:
        rows = {part: np.flatnonzero((splits == part) & (sets == name)) for part in taking_part}
        distractors = rows.get("distractor", np.empty(0, dtype=np.int64))
        gallery: IntArray | None
        if "query" in taking_part:
            queries = rows["query"]
            gallery = np.concatenate([rows["gallery"], distractors])
            if not len(queries) or not len(gallery):
                raise ManifestError(
                    f"the test set {name!r} has {len(queries)} queries and {len(gallery)} gallery rows; "
                    "it needs both"
                )
        else:
            queries = rows[taking_part[0]]
            gallery = np.concatenate([queries, distractors]) if len(distractors) else None
        found.append(
            EvaluationSet(name, queries, gallery, _levels(manifest, queries, name), len(distractors))
        )
    return tuple(found)


@dataclass(frozen=True)
class Evaluation:
    """What was found in each test set; one result where there is one test set.

    Attributes:
        sets: what was searched.
        problems: the same, prepared; for further questions about the same vectors.
        results: the result of each.
        dyml: mean over the test sets of DyML's metrics, and each set's (see `dyml_protocol`); None for other
            data.
    """

    sets: tuple[EvaluationSet, ...]
    problems: tuple[RetrievalProblem, ...]
    results: tuple[Result, ...]
    dyml: dict[str, float] | None = None

    def summary(self) -> dict[str, float]:
        """Means of all metrics, under one kind of keys for training and evaluation.

        Of several test sets: each set's own as ``set:metric``, under ``metric`` the plain mean over the sets
        of what all of them have, and the sum of their numbers of queries.
        """
        if len(self.results) == 1:
            return {**(self.dyml or {}), **self.results[0].summary}
        own = {one.name: result.summary for one, result in zip(self.sets, self.results, strict=True)}
        shared = [key for key in self.results[0].summary if all(key in values for values in own.values())]
        together = {key: np.asarray([values[key] for values in own.values()]) for key in shared}
        return {
            **(self.dyml or {}),
            **{key: float(np.mean(values)) for key, values in together.items()},
            **{key: int(values.sum()) for key, values in together.items() if key.startswith("queries")},
            **{f"{name}:{key}": value for name, values in own.items() for key, value in values.items()},
        }


def evaluate_manifest(
    vectors: Any,
    manifest: Manifest,
    *,
    split: str | None = None,
    relevance: Relevance | AttributeRelevance = PAPER_RELEVANCE,
    ks: Sequence[int] = (1, 10, 100),
    ties: Ties = "worst",
) -> Evaluation:
    """Evaluate embeddings as the splits of their manifest say.

    Args:
        vectors: embeddings ``[N, D]``, one for each row of the manifest.
        manifest: the rows; those of splits that take no part are ignored.
        split: as in `splits_to_search`.
        relevance: of each level, or by attributes of the manifest's rows.
        ks: cut-offs of the metrics at k; DyML's protocol adds 1.
        ties: order of equal scores.
    """
    sets = evaluation_sets(manifest, split)
    problems = tuple(one.problem(vectors, manifest) for one in sets)
    return evaluate_sets(sets, problems, EvaluationOptions(relevance=relevance, ks=ks, ties=ties))


def evaluate_sets(
    sets: tuple[EvaluationSet, ...],
    problems: tuple[RetrievalProblem, ...],
    options: EvaluationOptions = DEFAULTS,
    results: tuple[Result, ...] | None = None,
) -> Evaluation:
    """Evaluate prepared test sets, and by DyML's protocol where they are DyML's.

    Args:
        sets: what is searched.
        problems: the same, prepared.
        options: how; the levels' names are the sets'.
        results: of each set, where they are already computed.
    """
    scales = _dyml_scales(sets)
    if scales:
        options = replace(options, ks=(*options.ks, 1))
    if results is None:
        results = tuple(
            evaluate_problem(problem, one.options(options))
            for one, problem in zip(sets, problems, strict=True)
        )
    dyml = None
    if scales == "sets":
        dyml = dyml_summary({one.name: result for one, result in zip(sets, results, strict=True)})
    elif scales == "levels":
        by_level = {
            name: evaluate_problem(
                problems[0].at_level(level), replace(sets[0].options(options), level_names=(name,))
            )
            for level, name in enumerate(sets[0].level_names, start=1)
        }
        dyml = dyml_summary(by_level)
    return Evaluation(sets, problems, results, dyml)


def _dyml_scales(sets: tuple[EvaluationSet, ...]) -> Literal["sets", "levels"] | None:
    """The scales of DyML's protocol: test sets of one label each, or the levels of one set."""
    if len(sets) > 1 and all(len(one.level_names) == 1 for one in sets):
        return "sets"
    return "levels" if len(sets) == 1 and sets[0].level_names == DYML_LEVELS else None


def _sets(manifest: Manifest) -> npt.NDArray[np.object_]:
    """The test set of each row, "" where the manifest has none."""
    if "set" not in manifest.table:
        return np.full(len(manifest), "", dtype=object)
    return np.asarray(manifest.table["set"].fillna(""), dtype=object)


def _ordered(names: set[str]) -> list[str]:
    known = [name for name in DYML_LEVELS if name in names]
    return known + sorted(names - set(known))


def _levels(manifest: Manifest, queries: IntArray, name: str) -> tuple[str, ...]:
    """The levels that any query is labelled at; the only level of a test set is named after the set."""
    labelled = (manifest.labels()[queries] != UNKNOWN).any(axis=0)
    depth = int(np.flatnonzero(labelled)[-1]) + 1 if labelled.any() else 1
    if name and depth == 1 and len(manifest.levels) > 1:
        return (name,)
    return manifest.levels[:depth]


def _rows(vectors: Any, rows: IntArray) -> Any:
    """These rows; the array itself, not a copy, where they are all of its rows."""
    if len(rows) == len(vectors) and np.array_equal(rows, np.arange(len(vectors))):
        return vectors
    return vectors[rows]
