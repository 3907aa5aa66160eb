"""One state of an index in memory: it never changes, so any number of threads may search it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from happier.errors import InputError, SearchError
from happier.search.engine import Positions, SearchEngine, SearchScope, VectorArray
from happier.search.exact import rescore
from happier.search.identify import Identifier
from happier.search.index_json import IndexHead
from happier.search.items import check_vectors
from happier.search.scope import make_scope
from happier.search.store import IndexStore

_MAX_SCOPES = 1024


@dataclass(frozen=True)
class Hit:
    """One image found.

    Attributes:
        row: its row in `Index.items`.
        id: what identifies the image.
        path: of the file, as the manifest gives it.
        class_path: its class as ``coarse/.../fine``, down to what is known.
        score: cosine similarity with the query.
    """

    row: int
    id: str
    path: str
    class_path: str
    score: float


class LoadedState:
    """What an index holds between two changes.

    Attributes:
        head: what ``index.json`` says.
        items: manifest of the images, one row each.
        labels: int64 ``[N, L]`` class numbers of the items.
        positions: row of each item in the vector file ``[N]``.
        vectors: all rows ``[rows, D]`` of the vector file.
        engine: it searches with.
        ids: what identifies the image of each row.
        class_paths: the class of each row.
        identifier: says what an image is.
    """

    def __init__(self, store: IndexStore, head: IndexHead, *, trusted: IndexHead | None = None) -> None:
        self.head = head
        self.items, self.positions = store.items(head)
        self.vectors = store.vectors(head, trusted=trusted)
        self.engine: SearchEngine = store.engine(head)
        self.engine.check(self.positions)
        self.labels = self.items.labels()
        self.ids = [str(one) for one in self.items.ids()]
        self.class_paths = self.items.class_paths()
        self._paths = self.items.table["path"].tolist()
        self._row_of_id = {one: row for row, one in enumerate(self.ids)}
        self._row_of_position = np.full(head.rows, -1, dtype=np.int64)
        self._row_of_position[self.positions] = np.arange(len(self.positions))
        self._scopes: dict[str, SearchScope] = {}
        self.identifier = Identifier(self)

    @property
    def whole(self) -> bool:
        """Whether every row of the vector file belongs to an image."""
        return len(self.positions) == self.head.rows

    def __contains__(self, item_id: object) -> bool:
        return item_id in self._row_of_id

    def row(self, item_id: str) -> int:
        """Row of an image by its id.

        Raises:
            SearchError: there is no such image.
        """
        try:
            return self._row_of_id[item_id]
        except KeyError:
            raise SearchError(f"the index has no image with the id {item_id!r}") from None

    def hit(self, row: int, score: float) -> Hit:
        """One row as a `Hit`."""
        return Hit(row, self.ids[row], str(self._paths[row]), self.class_paths[row], score)

    def rows_at(self, positions: Positions) -> Positions:
        """Rows of the items at these positions of the vector file; -1 for deleted ones."""
        return np.asarray(np.where(positions >= 0, self._row_of_position[positions], -1), dtype=np.int64)

    def check_model(self, fingerprint: str) -> None:
        """Check that vectors come from the model the index was built with.

        Raises:
            SearchError: they do not.
        """
        if fingerprint != self.head.fingerprint:
            raise SearchError(
                f"this index is of the model {self.head.fingerprint[:12]}, not of {fingerprint[:12]}: "
                "vectors of two models cannot be compared; build a new index for this model"
            )

    def scope(self, within: str | None = None) -> SearchScope:
        """The rows of a branch, in the engines' terms.

        Raises:
            SearchError: there is no such branch.
        """
        key = (within or "").strip("/")
        scope = self._scopes.get(key)
        if scope is None:
            if len(self._scopes) >= _MAX_SCOPES:  # one entry for each branch asked for, each a list of rows
                self._scopes.clear()
            scope = self._scopes[key] = make_scope(self.items, self.positions, self.vectors, key)
        return scope

    def search(
        self, queries: VectorArray, *, k: int, within: str | None, exclude: Sequence[int | None]
    ) -> list[list[Hit]]:
        """The nearest images of each query vector, best first; see `Index.search`.

        Raises:
            InputError: the queries are not unit vectors of the right length, or k is below 1.
            SearchError: there is no such branch.
        """
        queries = check_vectors(queries, dim=self.head.dim)
        if k < 1:
            raise InputError(f"k must be at least 1, got {k}")
        scope = self.scope(within)
        left_out = [*exclude, *[None] * (len(queries) - len(exclude))]
        extra = any(row is not None for row in left_out)
        available = len(scope.vectors) if scope.positions is None else len(scope.positions)
        positions, scores = self.engine.search(queries, min(k + extra, available), scope)
        if not self.engine.exact:
            positions, scores = rescore(queries, positions, self.vectors)
        results = []
        for found, found_scores, skip in zip(positions, scores, left_out, strict=True):
            rows = self.rows_at(found)
            keep = (rows >= 0) & (rows != (-1 if skip is None else skip))
            hits = zip(rows[keep][:k], found_scores[keep][:k], strict=True)
            results.append([self.hit(int(row), float(score)) for row, score in hits])
        return results


def load_state(store: IndexStore, *, trusted: IndexHead | None = None) -> LoadedState:
    """The newest state of an index.

    Args:
        store: the index directory.
        trusted: a state whose vectors were compared with their checksums already.

    Raises:
        SearchError: not an index, or a damaged one.
    """
    head = store.head()
    while True:
        try:
            return LoadedState(store, head, trusted=trusted)
        except (SearchError, OSError):
            # A change may remove the files between our reading of index.json and theirs: then read it again.
            newest = store.head()
            if newest == head:
                raise
            head = newest
