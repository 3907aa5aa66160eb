"""One model of a report: its vectors, the test set, and what the evaluation found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from happier.arrays import IntArray
from happier.evaluation.options import Ties
from happier.evaluation.problem import RetrievalProblem
from happier.evaluation.protocol import EvaluationSet
from happier.evaluation.result import Result
from happier.evaluation.retrieval import Retrieval, retrieve_problem
from happier.runs import Run


@dataclass(frozen=True)
class EvaluatedRun:
    """A run, a test set of its rows, the prepared problem, and the result of its evaluation."""

    run: Run
    test_set: EvaluationSet
    problem: RetrievalProblem
    result: Result
    ties: Ties = "worst"

    @property
    def depth(self) -> int:
        """Number of levels L."""
        return len(self.test_set.level_names)

    @cached_property
    def labels(self) -> IntArray:
        """Class numbers ``[N, L]`` of all rows, at the levels of the test set."""
        return self.run.manifest.labels()[:, : self.depth]

    @cached_property
    def query_labels(self) -> IntArray:
        """Class numbers ``[Q, L]`` of the queries."""
        return self.labels[self.test_set.queries]

    @cached_property
    def has_positives(self) -> npt.NDArray[np.bool_]:
        """Whether each query has anything to find ``[Q]``; the others are left out of all figures."""
        return ~np.isnan(self.result.per_query["ASI"])

    @cached_property
    def class_paths(self) -> list[str]:
        """Class path of each row."""
        return self.run.manifest.class_paths()

    @cached_property
    def files(self) -> list[Path]:
        """Image of each row."""
        return self.run.manifest.files()

    @cached_property
    def relative_paths(self) -> list[str]:
        """Image of each row as the manifest names it."""
        return [str(path) for path in self.run.manifest.table["path"]]

    def retrieve(self, queries: Sequence[int] | IntArray, k: int) -> Retrieval:
        """The first k answers of these queries."""
        chosen = np.asarray(queries, dtype=np.int64)
        return retrieve_problem(self.problem, k=k, queries=chosen, ties=self.ties)
