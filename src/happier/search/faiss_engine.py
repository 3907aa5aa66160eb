"""FAISS: the approximate HNSW graph and IVF-PQ codes.

Deleting needs no work here: the scope of a search leaves deleted rows out, and the index is rebuilt when too
many of its rows are dead. A scope with few rows is searched exactly, which is faster than to filter a graph.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from happier.errors import OptionError, SearchError
from happier.extras import needs_extra
from happier.search.engine import EngineItems, Positions, SearchEngine, SearchScope, Settings, VectorArray
from happier.search.exact import SCAN_ROWS, scan
from happier.search.faiss_search import restore_search
from happier.search.options import Option, Whole, check_options
from happier.search.settings import FaissSettings

with needs_extra("search"):
    import faiss as _faiss

faiss: Any = _faiss  # its type stubs lack half of what is used here

# A build effort of 64 left whole classes out of reach: it hardly looks beyond a class of fifty images.
HNSW_OPTIONS: Mapping[str, Option] = {
    "neighbours": Whole(24, 2, 512),
    "build_effort": Whole(128, 1, 10_000),
    "effort": Whole(96, 1, 1_000_000),
}
# The graph's own vectors are rounded: fetch a few more for the exact scores to choose from.
HNSW_CANDIDATES = 2
# Lists and code bytes of 0 are chosen by the number of rows and by the dimension.
IVFPQ_OPTIONS: Mapping[str, Option] = {
    "lists": Whole(0, 0, 1 << 20),
    "code_bytes": Whole(0, 0, 1 << 16),
    "probes": Whole(32, 1, 1 << 20),
    "candidates": Whole(16, 1, 10_000),
}
MIN_IVFPQ_ROWS = 256
# Candidates of IVF-PQ for each result, at most: beyond that its codes are too coarse for the vectors.
MAX_CANDIDATES = 2_048
# A step in the graph costs about as much as this many rows of a scan.
_ROWS_A_STEP = 8
_BLOCK_BYTES = 64 << 20


def create_faiss(name: str, *, dim: int, rows: int, options: Mapping[str, Any]) -> SearchEngine:
    """A new, empty engine: ``hnsw`` or ``ivfpq``.

    Raises:
        OptionError: an unknown option, or one that does not fit the vectors.
        SearchError: too few rows to train IVF-PQ on.
    """
    return _create_hnsw(dim, options) if name == "hnsw" else _create_ivfpq(dim, rows, options)


def _create_hnsw(dim: int, options: Mapping[str, Any]) -> ApproximateEngine:
    chosen = check_options("hnsw", options, HNSW_OPTIONS)
    # Half precision halves the memory that building and searching read. It needs no training; 8 bits
    # would, and their range would be that of the first images, however few.
    graph = faiss.IndexHNSWSQ(
        dim, faiss.ScalarQuantizer.QT_fp16, chosen["neighbours"], faiss.METRIC_INNER_PRODUCT
    )
    graph.hnsw.efConstruction = chosen["build_effort"]
    search_options = {"effort": chosen["effort"], "candidates": HNSW_CANDIDATES}
    return ApproximateEngine(graph, search_options=search_options)


def _create_ivfpq(dim: int, rows: int, options: Mapping[str, Any]) -> ApproximateEngine:
    chosen = check_options("ivfpq", options, IVFPQ_OPTIONS)
    if rows < MIN_IVFPQ_ROWS:
        raise SearchError(
            f"engine 'ivfpq' needs {MIN_IVFPQ_ROWS} vectors or more to train on, got {rows}; use 'flat'"
        )
    lists = chosen["lists"] or max(1, min(int(math.sqrt(rows)), rows // 40))
    if lists > rows:
        raise OptionError(f"option 'lists' must be at most the number of vectors, {rows}, got {lists}")
    codes = chosen["code_bytes"] or _code_bytes(dim)
    if codes > dim or dim % codes:
        raise OptionError(f"option 'code_bytes' must divide the dimension {dim}, got {codes}")
    # "np": no polysemous codes, which take most of the training and are not used here.
    index = faiss.index_factory(dim, f"IVF{lists},PQ{codes}x8np", faiss.METRIC_INNER_PRODUCT)
    # Small catalogues are legal; their centroids are merely coarse, and the answer is re-scored exactly.
    index.cp.min_points_per_centroid = 1
    index.pq.cp.min_points_per_centroid = 1
    search_options = {"probes": chosen["probes"], "candidates": chosen["candidates"]}
    return ApproximateEngine(index, search_options=search_options)


def open_faiss(directory: Path, settings: Settings) -> SearchEngine:
    """The engine from its file.

    Raises:
        SearchError: the file is missing or damaged.
    """
    kept = FaissSettings.model_validate(settings)
    path = directory / kept.file
    try:
        index = faiss.read_index(str(path))
    except (RuntimeError, MemoryError) as error:
        raise SearchError(f"cannot read {path}; build the index again with `happier index`") from error
    return ApproximateEngine(index, search_options=dict(kept.search_options), file=kept.file)


class ApproximateEngine:
    """A FAISS index that looks at some of the vectors only; the caller scores its candidates exactly."""

    exact = False

    def __init__(self, index: Any, *, search_options: Mapping[Any, int], file: str = "") -> None:
        self._index = index
        self._options = dict(search_options)
        self._file = file

    @property
    def settings(self) -> Settings:
        """What `open_faiss` needs."""
        return {"file": self._file, "search_options": dict(self._options)}

    def check(self, positions: Positions) -> None:
        """Nothing is kept outside the directory."""

    def add(self, vectors: VectorArray, items: EngineItems, *, start: int) -> None:  # noqa: ARG002
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

    def search(self, queries: VectorArray, k: int, scope: SearchScope) -> tuple[Positions, VectorArray]:
        """Ask the structure, or scan where the scope is small."""
        rows = len(scope.vectors)
        if scope.positions is None:
            return self._search(queries, k, None, allowed=rows, times=1)
        allowed = len(scope.positions)
        if self.scans(allowed):
            return scan(queries, k, scope)
        bits = np.zeros(rows, dtype=bool)
        bits[scope.positions] = True
        selector = faiss.IDSelectorBitmap(np.packbits(bits, bitorder="little"))
        return self._search(queries, k, selector, allowed=allowed, times=self._times(allowed))

    def _search(
        self, queries: VectorArray, k: int, selector: Any, *, allowed: int, times: int
    ) -> tuple[Positions, VectorArray]:
        wanted = min(k * self._options.get("candidates", 1), allowed)
        parameters: Any
        if "effort" in self._options:
            effort = min(self._options["effort"] * times, self._index.ntotal)
            parameters = faiss.SearchParametersHNSW(sel=selector, efSearch=max(effort, wanted))
        else:
            probes = min(self._options["probes"] * times, self._index.nlist)
            parameters = faiss.SearchParametersIVF(sel=selector, nprobe=probes)
        restore_search()
        scores, positions = self._index.search(queries, wanted, params=parameters)
        return positions, scores

    def _times(self, allowed: int) -> int:
        """How many times further to look in a branch: a filter hides most of what is walked over."""
        hidden = max(1, round(int(self._index.ntotal) / max(1, allowed)))
        return int(hidden * self._options.get("branch_effort", 1))

    def scans(self, rows: int) -> bool:
        """Where it is cheap, or where the graph would cost more."""
        effort = self._options.get("effort", 0) * self._times(rows)
        return bool(rows <= max(SCAN_ROWS, _ROWS_A_STEP * effort))

    def search_harder(self, *, filtered: bool) -> bool:
        """Double the effort, up to looking at everything."""
        options = self._options
        if filtered:
            most, now = self._most(), options.get("effort", options.get("probes", 1))
            if now * options.get("branch_effort", 1) >= most:
                return False
            options["branch_effort"] = 2 * options.get("branch_effort", 1)
            return True
        limits = {"effort": self._most()} if "effort" in options else self._ivfpq_limits()
        raised = {name: min(2 * options[name], limit) for name, limit in limits.items()}
        changed = any(value > options[name] for name, value in raised.items())
        options.update({name: max(value, options[name]) for name, value in raised.items()})
        return changed

    def _most(self) -> int:
        return int(self._index.ntotal if "effort" in self._options else self._index.nlist)

    def _ivfpq_limits(self) -> dict[str, int]:
        return {"probes": int(self._index.nlist), "candidates": MAX_CANDIDATES}

    def write(self, directory: Path, stem: str) -> None:
        """Write the FAISS file."""
        self._file = f"{stem}.faiss"
        # Not by name: FAISS prints to the terminal where it cannot write.
        with (directory / self._file).open("wb") as file:
            faiss.write_index(self._index, faiss.PyCallbackIOWriter(file.write))

    def clean(self) -> bool:
        """Nothing outside the directory."""
        return False

    def discard(self) -> None:
        """Nothing outside the directory."""

    def close(self) -> None:
        """Nothing to close."""


def _code_bytes(dim: int) -> int:
    """About one byte for eight dimensions, a divisor of the dimension."""
    return max(size for size in range(1, max(1, dim // 8) + 1) if dim % size == 0)


def _training_sample(vectors: VectorArray, *, lists: int) -> VectorArray:
    """Evenly spread rows: enough for the centroids, no more."""
    wanted = max(40 * lists, 20_000)
    stride = max(1, len(vectors) // wanted)
    return np.ascontiguousarray(vectors[::stride], dtype=np.float32)
