"""A manifest and its embeddings -> the search that its splits describe.

    test                       leave-one-out: every row is searched for among all others
    test + distractor          the same, with distractors among the others
    query + gallery            queries are searched for in the gallery (and the distractors)
    ... with a ``set`` column  each test set on its own (DyML's coarse, middle and fine)

An image is never retrieved for itself: rows with the query's id are left out of its list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from happier.errors import InputError, ManifestError
from happier.evaluation.dyml import RetrievalSet, dyml_protocol
from happier.evaluation.exact import PAPER_RELEVANCE, Ties, evaluate
from happier.evaluation.result import Result
from happier.relevance import Relevance
from happier.taxonomy import UNKNOWN

if TYPE_CHECKING:
    from happier.data import Manifest

IntArray = npt.NDArray[np.int64]
# The order in which DyML's test sets are told.
_SETS = ("coarse", "middle", "fine")


@dataclass(frozen=True)
class Search:
    """Which rows of a manifest are searched for, and in which.

    Attributes:
        name: the test set, "" where there is but one.
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


def searches(manifest: Manifest, split: str | None = None) -> tuple[Search, ...]:
    """The searches that a manifest's splits and test sets describe, one for each test set.

    Args:
        manifest: the rows that were embedded; rows of other splits are left alone.
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
        found.append(Search(name, queries, gallery, _levels(manifest, queries, name), len(distractors)))
    return tuple(found)


@dataclass(frozen=True)
class Evaluation:
    """What was found in each search; one result where there is one test set.

    Attributes:
        searches: what was searched.
        results: the result of each.
        dyml: mean over the test sets of DyML's metrics, and each set's (see `dyml_protocol`); None for other
            data.
    """

    searches: tuple[Search, ...]
    results: tuple[Result, ...]
    dyml: dict[str, float] | None = None

    def summary(self) -> dict[str, Any]:
        """Means of all metrics; those of several test sets under the sets' names, DyML's mean on top."""
        if len(self.results) == 1:
            return {**(self.dyml or {}), **self.results[0].summary}
        sets = {
            search.name: result.summary for search, result in zip(self.searches, self.results, strict=True)
        }
        return {**(self.dyml or {}), **sets}


def evaluate_manifest(
    vectors: Any,
    manifest: Manifest,
    *,
    split: str | None = None,
    relevance: Relevance = PAPER_RELEVANCE,
    ks: Sequence[int] = (1, 10, 100),
    ties: Ties = "worst",
) -> Evaluation:
    """Evaluate embeddings as the splits of their manifest say.

    Args:
        vectors: embeddings ``[N, D]``, one for each row of the manifest.
        manifest: the rows; those of splits that take no part are left alone.
        split: as in `splits_to_search`.
        relevance: of each level.
        ks: cut-offs of the metrics at k.
        ties: order of equal scores.
    """
    found = searches(manifest, split)
    arguments = [search.arguments(vectors, manifest) for search in found]
    results = tuple(
        evaluate(**values, relevance=relevance, ks=ks, ties=ties, level_names=search.level_names)
        for search, values in zip(found, arguments, strict=True)
    )
    dyml = None
    if len(found) > 1 and all(len(search.level_names) == 1 for search in found):
        sets = {search.name: RetrievalSet(**v) for search, v in zip(found, arguments, strict=True)}
        dyml = dyml_protocol(sets, ties=ties).summary
    elif (manifest.name or "").startswith("dyml") and len(found) == 1:
        # DyML-Product: one test set with all labels, told level by level.
        dyml = dyml_protocol(RetrievalSet(**arguments[0]).by_level(found[0].level_names), ties=ties).summary
    return Evaluation(found, results, dyml)


def _sets(manifest: Manifest) -> npt.NDArray[np.object_]:
    """The test set of each row, "" where the manifest has none."""
    if "set" not in manifest.table:
        return np.full(len(manifest), "", dtype=object)
    return np.asarray(manifest.table["set"].fillna(""), dtype=object)


def _ordered(names: set[str]) -> list[str]:
    known = [name for name in _SETS if name in names]
    return known + sorted(names - set(known))


def _levels(manifest: Manifest, queries: IntArray, name: str) -> tuple[str, ...]:
    """The levels that any query is labelled at; the one level of a test set is called by the set's name."""
    labelled = (manifest.labels()[queries] != UNKNOWN).any(axis=0)
    depth = int(np.flatnonzero(labelled)[-1]) + 1 if labelled.any() else 1
    if name and depth == 1 and len(manifest.levels) > 1:
        return (name,)
    return manifest.levels[:depth]


def _rows(vectors: Any, rows: IntArray) -> Any:
    """These rows; the whole array as it is where they are all of it, so that nothing is copied."""
    if len(rows) == len(vectors) and np.array_equal(rows, np.arange(len(vectors))):
        return vectors
    return vectors[rows]
