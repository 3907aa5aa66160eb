"""The one small protocol that every search engine speaks.

An engine speeds up the search over vectors that the index itself keeps. It knows vectors by their position,
the row they have in the index's vector file, and answers with positions and scores (inner products of unit
vectors). Everything that is particular to one engine stays in that engine's file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from happier.errors import OptionError

Vectors = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int64]
Branch = tuple[str, ...]

ENGINES = ("flat", "hnsw", "ivfpq", "milvus")


@dataclass(frozen=True)
class Scope:
    """What a search may return.

    Attributes:
        vectors: all rows ``[rows, D]`` of the index's vector file, those of deleted images among them.
        positions: the rows that may be returned, rising; None where all of them may.
        branch: names of the taxonomy branch, coarse first; empty for the whole tree.
    """

    vectors: Vectors
    positions: Positions | None = None
    branch: Branch = ()


class Engine(Protocol):
    """A structure that finds the nearest vectors.

    Attributes:
        exact: whether the answer is that of comparing with every vector.
    """

    exact: bool

    def add(self, vectors: Vectors, branches: Sequence[Branch], *, start: int) -> None:
        """Take vectors that stand at positions ``start``, ``start + 1``, ... with their taxonomy branches."""

    def delete(self, positions: Positions) -> None:
        """Forget these positions; those that are not there are left alone."""

    def search(self, queries: Vectors, k: int, scope: Scope) -> tuple[Positions, Vectors]:
        """The ``k`` nearest of the scope for each query, best first; position -1 where there are fewer."""

    def write(self, directory: Path, stem: str) -> dict[str, Any]:
        """Keep what must be kept in new files named ``stem.*``; return the settings for `open_engine`."""

    def discard(self) -> None:
        """Remove what the engine keeps outside the index's directory; it is not used any more."""

    def close(self) -> None:
        """Let go of files and connections."""


def create_engine(name: str, *, dim: int, depth: int, rows: int, options: Mapping[str, Any]) -> Engine:
    """A new, empty engine for about ``rows`` vectors.

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

        return MilvusEngine.create(dim=dim, depth=depth, options=options)
    raise OptionError(f"engine must be one of {', '.join(ENGINES)}, got {name!r}")


def open_engine(name: str, directory: Path, settings: Mapping[str, Any]) -> Engine:
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
    raise OptionError(f"engine must be one of {', '.join(ENGINES)}, got {name!r}")


def check_options(engine: str, options: Mapping[str, Any], known: Mapping[str, int | str]) -> dict[str, Any]:
    """The engine's options with its defaults filled in.

    Raises:
        OptionError: an unknown name, or a value of the wrong kind.
    """
    for name, value in options.items():
        if name not in known:
            have = ", ".join(known) or "none"
            raise OptionError(f"engine {engine!r} has no option {name!r}; it has: {have}")
        if not isinstance(value, type(known[name])) or (isinstance(value, int) and value < 1):
            kind = "a whole number of at least 1" if isinstance(known[name], int) else "text"
            raise OptionError(f"option {name!r} of engine {engine!r} must be {kind}, got {value!r}")
    return {**known, **options}


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """Options as the command line gives them: ``name=value``, whole numbers as numbers.

    Raises:
        OptionError: not of this form.

    >>> parse_options(["effort=64", "uri=catalogue.db"])
    {'effort': 64, 'uri': 'catalogue.db'}
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise OptionError(f"an engine's option is written name=value, got {pair!r}")
        options[name] = int(value) if value.isdecimal() else value
    return options
