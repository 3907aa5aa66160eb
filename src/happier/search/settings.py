"""What each engine keeps in ``index.json`` so that it can be opened again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from happier.errors import SearchError
from happier.storage.records import Record, check_record

# Milvus refuses more in one answer.
MAX_MILVUS_K = 16_384
# The settings that say how far a search looks.
EFFORTS = ("effort", "probes", "candidates", "branch_effort", "scan_rows")
Positive = Annotated[int, Field(ge=1)]
# Never a collection or table that this package did not make: what an index names may be dropped with it.
OurName = Annotated[str, Field(pattern=r"^happier_[0-9a-f]{32}$")]


class FlatSettings(Record):
    """Exact search keeps nothing."""


class FaissSettings(Record):
    """HNSW and IVF-PQ.

    Attributes:
        file: of the FAISS index.
        search_options: how far a search looks; ``branch_effort`` is how many times further in a branch.
    """

    file: Annotated[str, Field(pattern=r"^engine-\d+\.faiss$")]
    search_options: dict[Literal["effort", "probes", "candidates", "branch_effort"], Positive]


class ServerSettings(Record):
    """What a server keeps of an index.

    Attributes:
        uri: a server's address, or the absolute path of a local file.
        depth: levels of the taxonomy.
        index_type: the search structure.
        effort: how far a search looks.
        branch_effort: how many times further in a branch.
        scan_rows: branches of up to this many rows are scanned here: the server finds too little of them.
        dead: positions that were deleted from the index, but perhaps not yet from the server.
    """

    uri: str
    depth: Annotated[int, Field(ge=1, le=1000)]
    index_type: str
    effort: Annotated[int, Field(ge=1, le=MAX_MILVUS_K)]
    branch_effort: Positive = 1
    scan_rows: Annotated[int, Field(ge=0)] = 0
    dead: list[int] = Field(default_factory=list)


class MilvusSettings(ServerSettings):
    """A Milvus collection.

    Attributes:
        collection: its name.
        written_at: time on the server's clock after the last change; a search that waits for it sees the
            whole index. 0 where it is not known: then a search waits for the present.
    """

    collection: OurName
    written_at: Annotated[int, Field(ge=0)] = 0


class PgvectorSettings(ServerSettings):
    """A PostgreSQL table.

    Attributes:
        schema_name: of the database.
        table: its name.
        view: a view of it for other programs, whose name stays the same; empty for none.
    """

    schema_name: Annotated[str, Field(min_length=1, max_length=63)]
    table: OurName
    view: Annotated[str, Field(pattern=r"^([a-z_][a-z0-9_]{0,62})?$")] = ""


_KINDS: dict[str, type[Record]] = {
    "flat": FlatSettings,
    "hnsw": FaissSettings,
    "ivfpq": FaissSettings,
    "milvus": MilvusSettings,
    "pgvector": PgvectorSettings,
}


def outside_name(settings: dict[str, Any]) -> str | None:
    """What an engine keeps outside the index's directory: a collection or a table; None for nothing."""
    return settings.get("collection") or settings.get("table")


def check_settings(engine: str, settings: dict[str, Any], path: Path) -> None:
    """Check that settings are those of an engine.

    Args:
        engine: its name.
        settings: as a file gives them.
        path: the file.

    Raises:
        SearchError: they are not.
    """
    if engine not in _KINDS:
        raise SearchError(f"{path} is damaged: there is no engine {engine!r}")
    check_record(settings, _KINDS[engine], path, error=SearchError, hint="build the index again")
