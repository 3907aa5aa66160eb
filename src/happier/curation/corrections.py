"""What a person decided about suspects: a CSV that grows, and a new manifest made by it.

Its columns are ``id``, the image, empty for a decision about a whole class; ``label``, the class that it had
when the decision was made; ``decision``, right, wrong or skip; and ``class``: where the label is wrong, the
class that it is, down to the level that the person is sure of.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from happier.data import Manifest
from happier.data.class_path import join, split
from happier.data.class_tree import ClassTree, branches
from happier.errors import DataError, OptionError, SearchError, did_you_mean
from happier.storage.atomic import atomic_file
from happier.storage.lock import locked_file
from happier.storage.tables import read_csv

__all__ = ["Applied", "Correction", "CorrectionsFile", "apply_corrections"]

Decision = Literal["right", "wrong", "skip"]
DECISIONS: Final[tuple[str, ...]] = get_args(Decision)
COLUMNS: Final = ("id", "label", "decision", "class")


@dataclass(frozen=True)
class Correction:
    """One decision; see the top of this file.

    Attributes:
        id: of the image, or empty.
        label: the class it had.
        decision: right, wrong or skip.
        class_path: the class that it is, where it is wrong.
    """

    id: str
    label: str
    decision: str
    class_path: str = ""

    @property
    def subject(self) -> tuple[str, str]:
        """What it is about: the image, or the class where there is no image."""
        return self.id, "" if self.id else self.label


class CorrectionsFile:
    """The owner of a file of corrections: one writer at a time, of all processes; each change is whole.

    Args:
        path: the CSV; it need not exist yet.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._writing = threading.Lock()

    def read(self) -> list[Correction]:
        """All decisions, in the order in which they were made.

        Raises:
            DataError: there is no such file, or it is not one of corrections.
        """
        table = read_csv(self.path, error=DataError, missing=f"no corrections at {self.path}")
        if missing := [name for name in COLUMNS if name not in table.columns]:
            raise DataError(f"{self.path} lacks the column {missing[0]!r}; it needs {', '.join(COLUMNS)}")
        found = [
            Correction(*(text.strip() for text in row))
            for row in table[list(COLUMNS)].itertuples(index=False, name=None)
        ]
        seen: dict[tuple[str, str], int] = {}
        for number, one in enumerate(found, start=2):
            where = f"{self.path}, row {number}"
            check_correction(one, where)
            if one.subject in seen:
                raise DataError(f"{where}: {one.id or one.label} is decided in row {seen[one.subject]}, too")
            seen[one.subject] = number
        return found

    def record(self, correction: Correction) -> int:
        """Add a decision, in place of an earlier one about the same; returns how many there are now.

        Raises:
            DataError: the file cannot be read or written.
            OptionError: not a decision.
        """
        try:
            check_correction(correction, "the decision")
        except DataError as error:
            raise OptionError(str(error)) from None
        with self._writing, locked_file(self.path):
            kept = self.read() if self.path.exists() else []
            kept = [one for one in kept if one.subject != correction.subject]
            kept.append(correction)
            rows = pd.DataFrame([astuple(one) for one in kept], columns=list(COLUMNS))
            with atomic_file(self.path) as part:
                rows.to_csv(part, index=False)
        return len(kept)


def check_correction(correction: Correction, where: str) -> None:
    """Check that a decision makes sense by itself.

    Raises:
        DataError: it does not.
    """
    if correction.decision not in DECISIONS:
        hint = did_you_mean(correction.decision, DECISIONS)
        raise DataError(
            f"{where}: a decision is one of {', '.join(DECISIONS)}, got {correction.decision!r}{hint}"
        )
    if (correction.decision == "wrong") != bool(correction.class_path):
        raise DataError(f"{where}: a class is given where the label is wrong, and only there")
    if not correction.id and not correction.label:
        raise DataError(f"{where}: neither an image nor a class is named")


@dataclass(frozen=True)
class Applied:
    """A manifest with corrections.

    Attributes:
        manifest: the new one.
        changed: images that got another label.
        wrong: decisions that changed labels.
        kept: decisions that say a label is right, or skip it.
    """

    manifest: Manifest
    changed: int
    wrong: int
    kept: int


def apply_corrections(
    manifest: Manifest, corrections: Sequence[Correction], *, new_classes: bool = False
) -> Applied:
    """A new manifest in which the labels that are wrong are corrected.

    Args:
        manifest: the old one; it stays as it is.
        corrections: the decisions.
        new_classes: allow classes that the manifest does not have; else they are taken for slips.

    Raises:
        DataError: an image or class that is not there, or has another label than when it was decided.
    """
    tree, paths = ClassTree(manifest), np.asarray(manifest.class_paths(), dtype=object)
    ids = pd.Series(np.arange(len(manifest))).groupby(manifest.ids().astype(str)).agg(list)
    places: dict[str, list[int]] = {str(name): rows for name, rows in ids.items()}
    names = [list(one) + [""] * (len(manifest.levels) - len(one)) for one in branches(manifest)]
    changed: set[int] = set()
    for one in corrections:
        if one.decision != "wrong":
            continue
        rows = _rows(one, places, paths, tree)
        new = _class_of(one, tree, len(manifest.levels), new_classes=new_classes)
        for row in rows:
            names[row] = [*new, *[""] * (len(manifest.levels) - len(new))]
        changed.update(rows)
    columns = {level: [row[at] for row in names] for at, level in enumerate(manifest.levels)}
    corrected = Manifest(
        manifest.table.assign(**columns),
        levels=manifest.levels,
        root=manifest.root,
        name=manifest.name,
        credits=manifest.credits,
    )
    wrong = sum(one.decision == "wrong" for one in corrections)
    return Applied(corrected, len(changed), wrong, len(corrections) - wrong)


def _rows(
    one: Correction, places: dict[str, list[int]], paths: npt.NDArray[np.object_], tree: ClassTree
) -> list[int]:
    label = join(split(one.label))
    if not one.id:
        try:
            return [int(row) for row in tree.node(label).rows]
        except SearchError as error:
            raise DataError(f"a correction is about a class that is not there: {error}") from None
    rows = places.get(one.id)
    if rows is None:
        raise DataError(f"a correction is about the image {one.id!r}, which the manifest does not have")
    if other := [row for row in rows if paths[row] != label]:
        raise DataError(
            f"the image {one.id!r} was {one.label!r} when it was corrected, and is {paths[other[0]]!r} here: "
            "the corrections are of another manifest, or have been applied"
        )
    return rows


def _class_of(one: Correction, tree: ClassTree, depth: int, *, new_classes: bool) -> tuple[str, ...]:
    names = split(one.class_path)
    if len(names) > depth:
        raise DataError(f"{one.class_path!r} has {len(names)} levels, the manifest {depth}")
    if not new_classes:
        try:
            tree.node(one.class_path)
        except SearchError as error:
            raise DataError(
                f"{one.id or one.label}: {error}; correct it, or allow new classes with --new-classes"
            ) from None
    return names
