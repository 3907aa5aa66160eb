"""A query, its ranking, and how good the whole ranking is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from happier.search.index import Hit, Index
from happier.search.rocchio import rocchio
from happier.web.uploads import Upload


@dataclass(frozen=True)
class QueryImage:
    """A row of the index, or an upload."""

    row: int | None = None
    upload: Upload | None = None

    @property
    def key(self) -> str:
        """Distinguishes images of one index."""
        return self.upload.key if self.upload is not None else str(self.row)

    def vector(self, index: Index) -> npt.NDArray[np.float32]:
        """Its vector by the model of the index.

        Raises:
            SearchError: the model came later than the upload.
        """
        if self.upload is not None:
            return self.upload.vector(index.head.fingerprint)
        assert self.row is not None
        return index.vector(self.row)


@dataclass(frozen=True)
class SearchQuery:
    """Images that the results should be like, and images that they should not be like.

    Attributes:
        positive: at least one; the first says what is being looked for.
        negative: none or some.
        labels: label row of what is being looked for, where it is known.
        class_path: the same as a path.
    """

    positive: tuple[QueryImage, ...]
    negative: tuple[QueryImage, ...]
    labels: npt.NDArray[np.int64] | None
    class_path: str

    @property
    def key(self) -> str:
        """Distinguishes queries of one index."""
        return " ".join([f"+{one.key}" for one in self.positive] + [f"-{one.key}" for one in self.negative])

    @property
    def combined(self) -> bool:
        """Whether it is more than one image."""
        return len(self.positive) + len(self.negative) > 1

    @property
    def rows(self) -> list[int]:
        """Rows that it is made of: they are never results."""
        return sorted({one.row for one in (*self.positive, *self.negative) if one.row is not None})

    def vector(self, index: Index) -> npt.NDArray[np.float32]:
        """What to search with.

        Raises:
            InputError: the images cancel each other out.
            SearchError: the model came later than an upload.
        """
        if not self.combined:
            return self.positive[0].vector(index)
        wanted = np.stack([one.vector(index) for one in self.positive])
        unwanted = np.stack([one.vector(index) for one in self.negative]) if self.negative else None
        return rocchio(wanted, unwanted)


@dataclass(frozen=True)
class QueryMetrics:
    """How good the whole ranking of one query is; only where its class is known."""

    h_ap: float
    severity: dict[int, float]
    average_precision: dict[str, float]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Ranking:
    """What a query found.

    Attributes:
        hits: best first, from an offset on.
        total: images that could be found.
        levels: that each hit shares with the query, None where that is unknown.
        metrics: of the whole ranking, where they were asked for and the class is known.
        alone: of several images: the metrics of the first one alone, ranking the same images.
    """

    hits: list[Hit]
    total: int
    levels: list[int | None]
    metrics: QueryMetrics | None
    alone: QueryMetrics | None
