"""FAISS: the approximate HNSW graph and IVF-PQ codes.

Deleting needs no work here: the scope of a search leaves deleted rows out, and the index is rebuilt when too
many of its rows are dead. A scope with few rows is searched exactly, which is faster than to filter a graph.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from happier.errors import MissingExtraError, SearchError
from happier.search.engine import Branch, Engine, Positions, Scope, Vectors, check_options
from happier.search.exact import scan
from happier.search.faiss_search import restore_search

try:
    import faiss as _faiss
except ImportError as error:
    raise MissingExtraError("faiss-cpu", "search") from error

faiss: Any = _faiss  # its type stubs lack half of what is used here

# A build effort of 64 left whole classes out of reach: it hardly looks beyond a class of fifty images.
HNSW_OPTIONS: dict[str, int | str] = {"neighbours": 24, "build_effort": 128, "effort": 96}
# The graph's own vectors are rounded: fetch a few more for the exact scores to choose from.
HNSW_CANDIDATES = 2
IVFPQ_OPTIONS: dict[str, int | str] = {"lists": 0, "code_bytes": 0, "probes": 32, "candidates": 16}
MIN_IVFPQ_ROWS = 256
# Below this many allowed rows a plain scan beats a filtered graph or inverted lists.
SCAN_ROWS = 20_000
_BLOCK_BYTES = 64 << 20


def create_faiss(name: str, *, dim: int, rows: int, options: Mapping[str, Any]) -> Engine:
    """A new, empty engine: ``hnsw`` or ``ivfpq``.

    Raises:
        OptionError: an unknown option.
        SearchError: too few rows to train IVF-PQ on.
    """
    if name == "hnsw":
        chosen = check_options("hnsw", options, HNSW_OPTIONS)
        # Half precision halves the memory that building and searching read. It needs no training; 8 bits
        # would, and their range would be that of the first images, however few.
        graph = faiss.IndexHNSWSQ(
            dim, faiss.ScalarQuantizer.QT_fp16, chosen["neighbours"], faiss.METRIC_INNER_PRODUCT
        )
        graph.hnsw.efConstruction = chosen["build_effort"]
        return ApproximateEngine(
            graph, search_options={"effort": chosen["effort"], "candidates": HNSW_CANDIDATES}
        )
    chosen = check_options("ivfpq", options, IVFPQ_OPTIONS)
    if rows < MIN_IVFPQ_ROWS:
        raise SearchError(
            f"engine 'ivfpq' needs {MIN_IVFPQ_ROWS} vectors or more to train on, got {rows}; use 'flat'"
        )
    lists = chosen["lists"] or max(1, min(int(math.sqrt(rows)), rows // 40))
    codes = chosen["code_bytes"] or _code_bytes(dim)
    if dim % codes:
        raise SearchError(f"code_bytes must divide the dimension {dim}, got {codes}")
    # "np": no polysemous codes, which take most of the training and are not used here.
    index = faiss.index_factory(dim, f"IVF{lists},PQ{codes}x8np", faiss.METRIC_INNER_PRODUCT)
    # Small catalogues are legal; their centroids are merely coarse, and the answer is re-scored exactly.
    index.cp.min_points_per_centroid = 1
    index.pq.cp.min_points_per_centroid = 1
    return ApproximateEngine(
        index, search_options={"probes": chosen["probes"], "candidates": chosen["candidates"]}
    )


def open_faiss(directory: Path, settings: Mapping[str, Any]) -> Engine:
    """The engine from its file.

    Raises:
        SearchError: the file is missing or damaged.
    """
    path = directory / str(settings["file"])
    try:
        index = faiss.read_index(str(path))
    except RuntimeError as error:
        raise SearchError(f"cannot read {path}; build the index again with `happier index`") from error
    return ApproximateEngine(index, search_options=dict(settings["search_options"]))


class ApproximateEngine:
    """A FAISS index that looks at some of the vectors only; the caller scores its candidates exactly."""

    exact = False

    def __init__(self, index: Any, *, search_options: dict[str, int]) -> None:
        self._index = index
        self._options = search_options

    def add(self, vectors: Vectors, branches: Sequence[Branch], *, start: int) -> None:  # noqa: ARG002
        """Add rows; the first ones train the codes where there are any."""
        if self._index.ntotal != start:
            raise SearchError(
                f"the engine holds {self._index.ntotal} rows, the index {start}; build it again"
            )
        if not self._index.is_trained:
            self._index.train(_training_sample(vectors, lists=self._index.nlist))
        step = max(1, _BLOCK_BYTES // (4 * vectors.shape[1]))
        for first in range(0, len(vectors), step):
            self._index.add(np.ascontiguousarray(vectors[first : first + step]))

    def delete(self, positions: Positions) -> None:
        """Nothing to do: the scope leaves them out."""

    def search(self, queries: Vectors, k: int, scope: Scope) -> tuple[Positions, Vectors]:
        """Ask the structure, or scan where the scope is small."""
        allowed = len(scope.vectors) if scope.positions is None else len(scope.positions)
        if allowed <= SCAN_ROWS and scope.positions is not None:
            return scan(queries, k, scope)
        selector = None
        if scope.positions is not None:
            bits = np.zeros(len(scope.vectors), dtype=bool)
            bits[scope.positions] = True
            selector = faiss.IDSelectorBitmap(np.packbits(bits, bitorder="little"))
        wanted = min(k * self._options.get("candidates", 1), allowed)
        parameters: Any
        if "effort" in self._options:
            parameters = faiss.SearchParametersHNSW(
                sel=selector, efSearch=max(self._options["effort"], wanted)
            )
        else:
            parameters = faiss.SearchParametersIVF(sel=selector, nprobe=self._options["probes"])
        restore_search()
        scores, positions = self._index.search(queries, wanted, params=parameters)
        return positions, scores

    def write(self, directory: Path, stem: str) -> dict[str, Any]:
        """Write the FAISS file."""
        name = f"{stem}.faiss"
        faiss.write_index(self._index, str(directory / name))
        return {"file": name, "search_options": self._options}

    def discard(self) -> None:
        """Nothing outside the directory."""

    def close(self) -> None:
        """Nothing to let go of."""


def _code_bytes(dim: int) -> int:
    """About one byte for eight dimensions, a divisor of the dimension."""
    return max(size for size in range(1, max(1, dim // 8) + 1) if dim % size == 0)


def _training_sample(vectors: Vectors, *, lists: int) -> Vectors:
    """Evenly spread rows: enough for the centroids, no more."""
    wanted = max(40 * lists, 20_000)
    stride = max(1, len(vectors) // wanted)
    return np.ascontiguousarray(vectors[::stride], dtype=np.float32)
