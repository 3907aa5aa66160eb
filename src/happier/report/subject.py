"""One model of a report: its vectors, what is searched, and what the evaluation found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from happier.evaluation import Result, Retrieval, retrieve
from happier.evaluation.protocol import Search
from happier.runs import Run

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Subject:
    """A run, a search over its rows, and its result."""

    run: Run
    search: Search
    result: Result
    ties: Literal["worst", "best"] = "worst"

    @property
    def depth(self) -> int:
        """Number of levels L."""
        return len(self.search.level_names)

    @cached_property
    def labels(self) -> IntArray:
        """Class numbers ``[N, L]`` of all rows, at the levels that are searched."""
        return self.run.manifest.labels()[:, : self.depth]

    @cached_property
    def query_labels(self) -> IntArray:
        """Class numbers ``[Q, L]`` of the queries."""
        return self.labels[self.search.queries]

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
        arguments = self.search.arguments(self.run.vectors, self.run.manifest)
        return retrieve(**arguments, k=k, queries=np.asarray(queries, dtype=np.int64), ties=self.ties)
