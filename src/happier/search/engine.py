"""The small protocol of every search engine.

An engine speeds up the search over vectors that the index itself keeps. It knows a vector by its position,
its row in the index's vector file, and answers with positions and scores (inner products of unit vectors).
Whatever is particular to one engine stays in that engine's file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from happier.errors import OptionError

VectorArray = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int64]
Branch = tuple[str, ...]
Settings = dict[str, Any]

ENGINES = ("flat", "hnsw", "ivfpq", "milvus", "pgvector")


@dataclass(frozen=True)
class EngineItems:
    """What an engine may keep beside each vector.

    Attributes:
        ids: what identifies each image.
        paths: of the files, as the manifest gives them.
        branches: the class of each, coarse first, down to what is known.
    """

    ids: Sequence[str]
    paths: Sequence[str]
    branches: Sequence[Branch]


@dataclass(frozen=True)
class SearchScope:
    """What a search may return.

    Attributes:
        vectors: all rows ``[rows, D]`` of the index's vector file, those of deleted images among them.
        positions: the rows that may be returned, rising; None where all of them may.
        branch: names of the taxonomy branch, coarse first; empty for the whole tree.
    """

    vectors: VectorArray
    positions: Positions | None = None
    branch: Branch = ()


class SearchEngine(Protocol):
    """A structure that finds the nearest vectors.

    A change of an index calls `add` or `delete`, then `write`, then commits the new state of the index, then
    calls `clean`. Until the commit nothing may change for those who search the old state.

    Attributes:
        exact: whether the answer is that of comparing with every vector.
    """

    exact: bool

    @property
    def settings(self) -> Settings:
        """What `open_engine` needs to open it again."""

    def check(self, positions: Positions) -> None:
        """Check that what is kept outside the directory still holds these positions."""

    def add(self, vectors: VectorArray, items: EngineItems, *, start: int) -> None:
        """Take vectors at positions ``start``, ``start + 1``, ... with what they belong to."""

    def delete(self, positions: Positions) -> None:
        """Mark these positions as deleted; what is kept outside the index's directory stays until `clean`."""

    def search(self, queries: VectorArray, k: int, scope: SearchScope) -> tuple[Positions, VectorArray]:
        """The ``k`` nearest of the scope for each query, best first; position -1 where there are fewer."""

    def search_harder(self, *, filtered: bool) -> bool:
        """Look about twice as far from now on, in branches or everywhere; False where it cannot."""

    def scans(self, rows: int) -> bool:
        """Whether a branch of this many rows is compared with row by row, so that the answer is exact."""

    def write(self, directory: Path, stem: str) -> None:
        """Keep what was added in new files named ``stem.*``."""

    def clean(self) -> bool:
        """After the commit: remove deleted rows outside the directory. True where `settings` changed."""

    def discard(self) -> None:
        """Remove everything that the engine keeps outside the index's directory, and close it."""

    def close(self) -> None:
        """Close files and connections."""


def create_engine(
    name: str,
    *,
    dim: int,
    depth: int,
    rows: int,
    options: Mapping[str, Any],
    before_outside: Callable[[Settings], None] = lambda _: None,
) -> SearchEngine:
    """A new, empty engine for about ``rows`` vectors.

    Args:
        name: one of `ENGINES`.
        dim: length of a vector.
        depth: levels of the taxonomy.
        rows: how many vectors will be added.
        options: of the engine.
        before_outside: called with the engine's settings before it creates anything outside the index's
            directory, so that an interrupted build can be cleaned up.

    Raises:
        OptionError: an unknown engine or option.
        MissingExtraError: the engine's package is not installed.
    """
    if name == "flat":
        from happier.search.exact import FlatEngine

        return FlatEngine.create(options)
    if name in ("hnsw", "ivfpq"):
        from happier.search.faiss_engine import create_faiss

        return create_faiss(name, dim=dim, rows=rows, options=options)
    if name == "milvus":
        from happier.search.milvus_engine import MilvusEngine

        return MilvusEngine.create(dim=dim, depth=depth, options=options, before_outside=before_outside)
    if name == "pgvector":
        from happier.search.pgvector_engine import PgvectorEngine

        return PgvectorEngine.create(dim=dim, depth=depth, options=options, before_outside=before_outside)
    raise OptionError(f"engine must be one of {', '.join(ENGINES)}, got {name!r}")


def choose_engine(name: str, *, dim: int, rows: int, options: Mapping[str, Any]) -> None:
    """Check what the user chose before any slow work. A server named here may get the token or password.

    Args:
        name: of the engine.
        dim: length of a vector.
        rows: how many vectors there will be.
        options: of the engine.

    Raises:
        OptionError: an unknown engine or option.
        MissingExtraError: the engine's package is not installed.
        SearchError: the server does not answer.
    """
    if name == "milvus":
        from happier.search.milvus_engine import choose_milvus

        choose_milvus(options)
    elif name == "pgvector":
        from happier.search.pgvector_engine import choose_pgvector

        choose_pgvector(dim, options)
    else:
        create_engine(name, dim=dim, depth=1, rows=rows, options=options)


def open_engine(name: str, directory: Path, settings: Settings) -> SearchEngine:
    """The engine that an index was written with.

    Raises:
        OptionError: an unknown engine.
        SearchError: its files or its server are not there.
    """
    if name == "flat":
        from happier.search.exact import FlatEngine

        return FlatEngine()
    if name in ("hnsw", "ivfpq"):
        from happier.search.faiss_engine import open_faiss

        return open_faiss(directory, settings)
    if name == "milvus":
        from happier.search.milvus_engine import MilvusEngine

        return MilvusEngine.open(settings)
    if name == "pgvector":
        from happier.search.pgvector_engine import PgvectorEngine

        return PgvectorEngine.open(settings)
    raise OptionError(f"engine must be one of {', '.join(ENGINES)}, got {name!r}")


def discard_outside(name: str, settings: Settings) -> None:
    """Remove what an engine keeps outside the index's directory; nothing to do where it is gone.

    Raises:
        SearchError: the server does not answer.
    """
    if name == "milvus":
        from happier.search.milvus_engine import drop_collection

        drop_collection(settings)
    if name == "pgvector":
        from happier.search.pgvector_engine import drop_table

        drop_table(settings)


def allow_uri(uri: str) -> None:
    """The user named this server: it may get the token or password, in this process."""
    if uri.startswith(("postgresql://", "postgres://")):
        from happier.search.pgvector_server import allow_database

        allow_database(uri)
    else:
        from happier.search.milvus_server import allow_server

        allow_server(uri)
