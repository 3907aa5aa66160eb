"""A query, and how good its whole ranking is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from happier.web.uploads import Upload


@dataclass(frozen=True)
class SearchQuery:
    """A row of the index or an upload, and its label row where the class is known."""

    row: int | None
    upload: Upload | None
    labels: npt.NDArray[np.int64] | None
    class_path: str

    @property
    def key(self) -> str:
        """Distinguishes queries of one index."""
        return self.upload.key if self.upload is not None else str(self.row)


@dataclass(frozen=True)
class QueryMetrics:
    """How good the whole ranking of one query is; only where its class is known."""

    h_ap: float
    severity: dict[int, float]
    average_precision: dict[str, float]
    counts: tuple[int, ...]
