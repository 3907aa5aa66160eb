"""Probabilities down the tree -> the deepest class that it is sure of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from happier.arrays import FloatArray, IntArray
from happier.identification.calibration import Calibration
from happier.identification.tree import NodeTree
from happier.identification.votes import Neighbours, branch_votes, vote_weights

__all__ = ["Answer", "Choice", "NodeStep", "Step", "descend"]

# Queries whose votes are counted at once.
_QUERIES = 2048


@dataclass(frozen=True)
class NodeStep:
    """One node of the likeliest path of a query.

    Attributes:
        node: its number.
        probability: that the image is of it.
        children: the children that got votes, likeliest first.
        probabilities: of the children.
        new: that it is of this node, but of no child that is known; 0 where it has no children.
    """

    node: int
    probability: float
    children: tuple[int, ...]
    probabilities: tuple[float, ...]
    new: float


def descend(
    tree: NodeTree, calibration: Calibration, neighbours: Neighbours, start: IntArray
) -> list[list[NodeStep]]:
    """The likeliest path of each query, from a node that it is known to be of down to a leaf.

    Args:
        tree: of the index's labels.
        calibration: of the index.
        neighbours: of Q queries.
        start: the node that each query's path begins at ``[Q]``, all of one level; the root for all classes.
    """
    paths: list[list[NodeStep]] = [[] for _ in start]
    weights = vote_weights(neighbours, calibration.temperature)
    at, probability = np.array(start), np.ones(len(start))
    going = np.arange(len(start))
    for level in range(int(tree.level[start[0]]) if len(start) else 0, tree.depth + 1):
        going = going[at[going] >= 0]
        for first in range(0, len(going), _QUERIES):
            some = going[first : first + _QUERIES]
            steps = _steps(tree, calibration, neighbours.take(some), weights[some], level, at[some])
            for query, (children, given, new) in zip(some, steps, strict=True):
                own = float(probability[query])
                step = NodeStep(int(at[query]), own, children, tuple(own * one for one in given), own * new)
                paths[query].append(step)
                at[query] = children[0] if children else -1
                probability[query] = step.probabilities[0] if children else 0.0
    return paths


def _steps(
    tree: NodeTree,
    calibration: Calibration,
    neighbours: Neighbours,
    weights: FloatArray,
    level: int,
    branch: IntArray,
) -> list[tuple[tuple[int, ...], tuple[float, ...], float]]:
    """The children of each query's branch with votes, their probabilities given the branch, and of new."""
    if level == tree.depth:
        return [((), (), 0.0)] * len(branch)
    votes = branch_votes(tree, neighbours, weights, branch)
    given, new = calibration.levels[level].probabilities(votes, tree.children[branch])
    found = []
    for child, probability, none in zip(votes.child, given, new, strict=True):
        # Equal ones in the order of their names.
        order = sorted(np.flatnonzero(child >= 0), key=lambda j: (-probability[j], child[j]))
        children = tuple(int(child[j]) for j in order)
        found.append((children, tuple(float(probability[j]) for j in order), float(none)))
    return found


@dataclass(frozen=True)
class Choice:
    """A class and the probability that the image is of it."""

    class_path: str
    probability: float


@dataclass(frozen=True)
class Step:
    """One class of the likeliest path; see `NodeStep`.

    Attributes:
        class_path: ``coarse/.../finer``; empty for the whole tree.
        level: how deep it is; 0 for the whole tree.
        probability: that the image is of it.
        new: that it is of this class but of none that the index knows below it.
        alternatives: the known classes below it, likeliest first.
    """

    class_path: str
    level: int
    probability: float
    new: float
    alternatives: tuple[Choice, ...]

    @classmethod
    def named(cls, step: NodeStep, tree: NodeTree, name: Callable[[int], str]) -> Step:
        """A step with the names of its classes."""
        pairs = zip(step.children, step.probabilities, strict=True)
        choices = tuple(Choice(name(child), probability) for child, probability in pairs)
        return cls(name(step.node), int(tree.level[step.node]), step.probability, step.new, choices)


@dataclass(frozen=True)
class Answer:
    """The deepest statement about an image that is sure enough.

    Attributes:
        class_path: the class; empty where not even the coarsest is sure.
        level: how deep it is.
        probability: that it is right.
        new: whether the statement is that the image is of this class, but of none that the index knows below
            it.
        alternatives: the known classes below, likeliest first; beside them it may be new.
        new_probability: that it is new below the class.
    """

    class_path: str
    level: int
    probability: float
    new: bool
    alternatives: tuple[Choice, ...]
    new_probability: float

    @classmethod
    def among(cls, steps: tuple[Step, ...], sure: float) -> Answer:
        """The deepest step whose probability reaches ``sure``; the first one where none does.

        "New below it" is a statement as well, one deeper than the class itself.
        """
        step = next((one for one in reversed(steps) if one.probability >= sure), steps[0])
        new = step.new >= sure
        probability = step.new if new else step.probability
        return cls(step.class_path, step.level, probability, new, step.alternatives, step.new)
