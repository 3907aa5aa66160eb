"""What an index says an image is: the deepest class that it is sure of, and how sure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from happier.data import Manifest
from happier.data.class_path import join, split, trail
from happier.errors import OptionError, SearchError
from happier.identification.answers import Answer, Step, descend
from happier.identification.calibration import Calibration
from happier.identification.learn_calibration import NEIGHBOURS, calibrate
from happier.identification.tree import ROOT, NodeTree
from happier.identification.votes import Neighbours
from happier.search.branch_rows import branches
from happier.search.engine import Positions, VectorArray

if TYPE_CHECKING:
    from happier.search.loaded_state import Hit, LoadedState

__all__ = ["Identification", "Identifier", "calibrate_items"]

SURE = 0.9
_SHOWN = 3


@dataclass(frozen=True)
class Identification:
    """What an image is, as far as an index can tell.

    Attributes:
        answer: the deepest class that is sure enough.
        steps: the likeliest path, from the whole tree (or the branch that was asked for) to the finest class;
            the answer to any other ``sure`` is `Answer.among` of them.
        neighbours: the images that voted, nearest first.
    """

    answer: Answer
    steps: tuple[Step, ...]
    neighbours: tuple[Hit, ...]

    def describe(self) -> str:
        """In one line: ``animals > birds > owl 0.94; snowy owl 0.61, barn owl 0.30``."""
        answer = self.answer
        name = trail(answer.class_path) if answer.class_path else "any class"
        if answer.new:
            return f"new below {name} {answer.probability:.2f}"
        text = f"{name} {answer.probability:.2f}" if answer.class_path else "not sure of any class"
        beside = [(split(one.class_path)[-1], one.probability) for one in answer.alternatives]
        beside += [("new", answer.new_probability)]
        shown = sorted((pair for pair in beside if pair[1] >= 0.005), key=lambda pair: -pair[1])[:_SHOWN]
        return "; ".join([text, ", ".join(f"{what} {value:.2f}" for what, value in shown)]).rstrip("; ")


def calibrate_items(items: Manifest, positions: Positions, vectors: VectorArray) -> Calibration | None:
    """The calibration of an index's images; None where their labels leave nothing to choose.

    Args:
        items: the images.
        positions: row of each in the vector file ``[N]``.
        vectors: all rows ``[rows, D]`` of the vector file.
    """
    ids = [str(one) for one in items.ids()]
    same = len(positions) == len(vectors) and np.array_equal(positions, np.arange(len(vectors)))
    return calibrate(vectors, items.labels(), ids, positions=None if same else positions)


class Identifier:
    """Identifies images by one state of an index.

    Args:
        state: of the index.
    """

    def __init__(self, state: LoadedState) -> None:
        self._state = state

    @cached_property
    def tree(self) -> NodeTree:
        """Of the index's labels."""
        return NodeTree.from_labels(self._state.labels)

    @cached_property
    def _node_names(self) -> list[str]:
        names = branches(self._state.items)
        pairs = zip(self.tree.example.tolist(), self.tree.level.tolist(), strict=True)
        return [join(names[row][:level]) for row, level in pairs]

    @cached_property
    def calibration(self) -> Calibration:
        """Stored with the index, or computed now for an index of an earlier version.

        Raises:
            SearchError: the index has no labels, or one class.
        """
        state = self._state
        found = state.head.calibration
        if found is None or not found.current:
            found = calibrate_items(state.items, state.positions, state.vectors)
        if found is None:
            if len(self.tree.parent) == 1:
                raise SearchError("the index has no labels: there is nothing to identify an image as")
            raise SearchError(
                f"the index has one class only ({trail(self._node_names[-1])}): nothing to tell apart"
            )
        if len(found.levels) != self.tree.depth:
            raise SearchError(
                f"index.json is damaged: calibration of {len(found.levels)} levels, not {self.tree.depth}; "
                "build the index again"
            )
        return found

    def identify(
        self, queries: VectorArray, *, sure: float, within: str | None, exclude: Sequence[int | None]
    ) -> list[Identification]:
        """What each query vector is; see `Index.identify`.

        Raises:
            OptionError: ``sure`` is not a probability.
            SearchError: there is no such branch, or nothing to tell apart.
        """
        check_sure(sure)
        calibration = self.calibration
        hits = self._state.search(queries, k=NEIGHBOURS + 1, within=within, exclude=exclude)
        rows = np.full((len(hits), NEIGHBOURS + 1), -1, dtype=np.int64)
        scores = np.full(rows.shape, -np.inf)
        for query, found in enumerate(hits):
            rows[query, : len(found)] = [hit.row for hit in found]
            scores[query, : len(found)] = [hit.score for hit in found]
        start = self._start(within)
        neighbours = Neighbours.from_ranking(rows, scores)
        paths = descend(self.tree, calibration, neighbours, np.full(len(hits), start))
        identified = []
        for path, voters in zip(paths, hits, strict=True):
            steps = tuple(Step.named(step, self.tree, self._node_names.__getitem__) for step in path)
            identified.append(Identification(Answer.among(steps, sure), steps, tuple(voters[:NEIGHBOURS])))
        return identified

    def _start(self, within: str | None) -> int:
        names = split(within or "")
        if not names:
            return ROOT
        return self._node_names.index(join(names))


def check_sure(sure: float) -> None:
    """Check that it is a probability.

    Raises:
        OptionError: it is not.
    """
    if not 0 < sure <= 1:
        raise OptionError(f"sure must be above 0 and at most 1, got {sure}")
