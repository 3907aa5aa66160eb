"""Labels that are probably wrong, the most severe first.

Four kinds: an image whose neighbours agree on another class (``label``), copies of one image under two labels
(``duplicate``), two classes whose images cannot be told apart (``alike``), and a class that falls into two
(``divided``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final, Literal

import numpy as np
import pandas as pd
from scipy.sparse import coo_array  # type: ignore[import-untyped]
from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped]

from happier.arrays import IntArray
from happier.curation.labelled_vectors import LabelledVectors
from happier.curation.neighbour_votes import Neighbours, contradictions, find_neighbours
from happier.data.taxonomies.clusters import class_means
from happier.errors import InputError, OptionError
from happier.progress import Progress
from happier.storage.atomic import atomic_file
from happier.storage.tables import write_parquet
from happier.taxonomy import UNKNOWN, shared_levels

__all__ = ["KINDS", "Suspect", "find_suspects", "write_suspects"]

Kind = Literal["label", "duplicate", "alike", "divided"]
KINDS: Final[tuple[Kind, ...]] = ("label", "duplicate", "alike", "divided")
SAME_IMAGE: Final = 0.999
"""Cosine from which two images count as copies."""
LEAST_IMAGES: Final = 3
"""Of a class, or of a part of one, that something is said about."""
LISTED: Final = 0.05
LEAST_LISTED: Final = 20
_SHOWN: Final = 5


@dataclass(frozen=True)
class Suspect:
    """Something that is probably wrong.

    Attributes:
        kind: ``label``, ``duplicate``, ``alike`` or ``divided``.
        severity: levels between the label and what it probably should be, as far as it is known.
        confidence: 0 to 1, to be compared within a kind only.
        id: the image; empty where it is about whole classes.
        label: the class that it has.
        proposed: the class that it probably should have; empty for ``divided``.
        evidence: ids of other images to look at.
    """

    kind: Kind
    severity: int
    confidence: float
    id: str
    label: str
    proposed: str
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class _Catalogue:
    """What every kind of suspicion looks at."""

    found: LabelledVectors
    neighbours: Neighbours
    labels: IntArray
    ids: Sequence[str]
    paths: Sequence[str]

    @property
    def depth(self) -> int:
        return int(self.labels.shape[1])

    def severity(self, one: int, other: int) -> int:
        """Levels by which two labels differ, of those that both have."""
        known = int(((self.labels[one] != UNKNOWN) & (self.labels[other] != UNKNOWN)).sum())
        return known - int(shared_levels(self.labels[[one]], self.labels[[other]])[0, 0])


def find_suspects(
    found: LabelledVectors, *, k: int = 50, most: int | None = None, progress: Progress | None = None
) -> list[Suspect]:
    """Everything that is probably wrong with the labels, by severity in the tree, then by confidence.

    Args:
        found: unit vectors and labels; images without any label are left out.
        k: neighbours that vote on each image.
        most: labels that are listed at most, the clearest; 0 for all, by default `most_labels`. Copies and
            whole classes are always listed.
        progress: called with the images compared and their number; what it raises ends the search.

    Raises:
        InputError: fewer than two labelled images, or a single class.
        OptionError: k below 1, or most below 0.
    """
    if k < 1:
        raise OptionError(f"k must be 1 or more, got {k}")
    if most is not None and most < 0:
        raise OptionError(f"most must be 0 or more, got {most}")
    rows = np.flatnonzero(found.manifest.labels()[:, 0] != UNKNOWN)
    if not len(rows):
        raise InputError("no image has a label: there is nothing to suspect")
    found = LabelledVectors(found.vectors[rows], found.manifest.take(rows))
    labels = found.manifest.taxonomy().codes
    if max(int(column.max()) for column in labels.T) < 1:
        raise InputError("all images are of one class: a wrong label needs another to be confused with")
    ids = [str(one) for one in found.manifest.ids()]
    neighbours = find_neighbours(found.vectors, k=k, progress=progress)
    catalogue = _Catalogue(found, neighbours, labels, ids, found.manifest.class_paths())
    suspects = [
        *_labels(catalogue, most_labels(len(ids)) if most is None else most or len(ids)),
        *_duplicates(catalogue),
        *_alike_classes(catalogue),
        *_divided_classes(catalogue),
    ]
    return sorted(suspects, key=_rank)


def most_labels(images: int) -> int:
    """As many labels as a person looks through, and as are wrong in many data sets: one in twenty."""
    return max(LEAST_LISTED, round(LISTED * images))


def _rank(one: Suspect) -> tuple[int, int, float, str, str]:
    return -one.severity, KINDS.index(one.kind), -one.confidence, one.id, one.label


def _labels(catalogue: _Catalogue, most: int) -> Iterator[Suspect]:
    everything = contradictions(catalogue.neighbours, catalogue.labels, catalogue.found.vectors)
    wrong = everything.clearest(most)
    for row, confidence, other in zip(
        wrong.rows.tolist(), wrong.confidence.tolist(), wrong.proposed.tolist(), strict=True
    ):
        near = catalogue.neighbours.rows[row]
        shared = shared_levels(catalogue.labels[[other]], catalogue.labels[near])[0]
        # First those of the proposed class, each group with the nearest first.
        shown = near[np.argsort(-shared, kind="stable")][:_SHOWN]
        yield Suspect(
            "label",
            catalogue.severity(row, other),
            confidence,
            catalogue.ids[row],
            catalogue.paths[row],
            catalogue.paths[other],
            tuple(catalogue.ids[one] for one in shown.tolist()),
        )


def _duplicates(catalogue: _Catalogue) -> Iterator[Suspect]:
    near, scores = catalogue.neighbours.rows, catalogue.neighbours.scores
    for row, at in np.argwhere(scores >= SAME_IMAGE).tolist():
        other = int(near[row, at])
        severity = catalogue.severity(row, other)
        # A copy is among the neighbours of its copy, unless very many copies are; count each pair once.
        if severity > 0 and (row < other or row not in near[other][scores[other] >= SAME_IMAGE]):
            one, label, proposed = catalogue.ids[row], catalogue.paths[row], catalogue.paths[other]
            confidence = min(1.0, float(scores[row, at]))
            yield Suspect("duplicate", severity, confidence, one, label, proposed, (catalogue.ids[other],))


def _alike_classes(catalogue: _Catalogue) -> Iterator[Suspect]:
    """Pairs of which at least half of the images of either look as much like the other.

    An image looks as much like another class where the mean weight of an image of that class is at least that
    of one of its own.
    """
    fine = catalogue.labels[:, -1]
    sizes = Counter(fine[fine != UNKNOWN].tolist())
    first: dict[int, int] = {}
    confused: dict[tuple[int, int], int] = defaultdict(int)
    for row in np.flatnonzero(fine != UNKNOWN).tolist():
        own = int(fine[row])
        first.setdefault(own, row)
        votes: dict[int, float] = defaultdict(float)
        near, weights = fine[catalogue.neighbours.rows[row]], catalogue.neighbours.weights[row]
        for other, weight in zip(near.tolist(), weights.tolist(), strict=True):
            votes[other] += weight
        mine = votes[own] / max(1, sizes[own] - 1)
        for other, weight in votes.items():
            if other not in (own, UNKNOWN) and weight / sizes[other] >= mine:
                confused[own, other] += 1
    for (one, other), number in sorted(confused.items()):
        if one > other or min(sizes[one], sizes[other]) < LEAST_IMAGES:
            continue
        shares = (number / sizes[one], confused.get((other, one), 0) / sizes[other])
        if min(shares) >= 0.5:
            rows = first[one], first[other]
            yield Suspect(
                "alike",
                catalogue.severity(*rows),
                sum(shares) / 2,
                "",
                catalogue.paths[rows[0]],
                catalogue.paths[rows[1]],
                (catalogue.ids[rows[0]], catalogue.ids[rows[1]]),
            )


def _divided_classes(catalogue: _Catalogue) -> Iterator[Suspect]:
    """Classes whose images are neighbours of each other in two parts or more, but not across.

    The confidence is the share of the other classes that are nearer to the largest part than the second is.
    """
    fine = catalogue.labels[:, -1]
    classes = int(fine.max()) + 1
    if classes < 2:
        return
    near = catalogue.neighbours.rows
    same = (fine[near] == fine[:, None]) & (fine != UNKNOWN)[:, None]
    rows, at = np.nonzero(same)
    links = coo_array((np.ones(len(rows)), (rows, near[rows, at])), shape=(len(fine), len(fine)))
    part = connected_components(links, directed=False)[1]
    vectors = catalogue.found.vectors
    means = class_means(vectors, fine, classes)
    for own in range(classes):
        members = np.flatnonzero(fine == own)
        names, counts = np.unique(part[members], return_counts=True)
        order = np.argsort(-counts, kind="stable")
        if len(names) < 2 or counts[order[1]] < max(LEAST_IMAGES, 0.2 * len(members)):
            continue
        halves = [members[part[members] == names[one]] for one in order[:2]]
        centres = class_means(vectors[np.concatenate(halves)], np.repeat([0, 1], [len(h) for h in halves]), 2)
        nearer = np.delete(means @ centres[0], own) > float(centres[0] @ centres[1])
        shown = [*halves[0][:2].tolist(), *halves[1][:2].tolist()]
        evidence = tuple(catalogue.ids[row] for row in shown)
        yield Suspect("divided", 1, float(nearer.mean()), "", catalogue.paths[members[0]], "", evidence)


def check_suspects_file(path: Path, source: Path) -> None:
    """Check that a table of suspects may be written here, before they are looked for.

    Raises:
        OptionError: neither CSV nor Parquet, or a file that the source may consist of.
    """
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise OptionError(f"suspects are written as .csv or .parquet, got {path.name!r}")
    inside = path.resolve().is_relative_to(source.resolve())
    if inside and path.is_file() and path.suffix.lower() == ".parquet":
        raise OptionError(f"{path} may be a file of {source}; choose another name for the result")


def write_suspects(suspects: Sequence[Suspect], path: Path) -> None:
    """Write a table: CSV, or Parquet where the name ends so.

    Raises:
        DataError: the place cannot be written to.
    """
    rows = [{**asdict(one), "evidence": "\n".join(one.evidence)} for one in suspects]
    table = pd.DataFrame(rows, columns=[one.name for one in fields(Suspect)])
    if path.suffix.lower() == ".parquet":
        write_parquet(table, path)
        return
    with atomic_file(path) as part:
        table.to_csv(part, index=False)
