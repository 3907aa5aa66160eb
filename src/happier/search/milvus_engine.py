"""Milvus: the same client for a local file (milvus-lite) and for a cluster.

One collection per index: the position as primary key, the vector, and one text field per taxonomy level, so
that a branch is a filter that the server applies. The collection is loaded when its first rows are all
there: milvus-lite then builds the search structure once and does nothing else while rows come in. A
cluster's token is taken from ``MILVUS_TOKEN`` and never stored.
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from happier.errors import MissingExtraError, SearchError
from happier.search.engine import Branch, Positions, Scope, Vectors, check_options
from happier.search.faiss_search import restore_search

try:
    from pymilvus import DataType, MilvusClient
    from pymilvus.exceptions import MilvusException
except ImportError as error:
    raise MissingExtraError("pymilvus", "search") from error

OPTIONS: dict[str, int | str] = {"uri": "", "index_type": "HNSW", "effort": 96}
MAX_NAME_BYTES = 512
# Milvus refuses more in one answer.
MAX_K = 16_384
_MESSAGE_BYTES = 8 << 20
# What gRPC takes for it, in milliseconds.
_NEVER = 2**31 - 1


class MilvusEngine:
    """A collection in Milvus."""

    def __init__(self, client: Any, settings: dict[str, Any]) -> None:
        self._client = client
        self._settings = settings
        self.exact = settings["index_type"] == "FLAT"

    @classmethod
    def create(cls, *, dim: int, depth: int, options: Mapping[str, Any]) -> MilvusEngine:
        """A new collection with a name of its own.

        Raises:
            OptionError: an unknown option.
            SearchError: no uri, or the server does not answer.
        """
        chosen = check_options("milvus", options, OPTIONS)
        if not chosen["uri"]:
            raise SearchError(
                "engine 'milvus' needs a uri: --uri catalogue.db (a local file) or --uri http://HOST:19530"
            )
        if "://" not in chosen["uri"]:
            chosen["uri"] = str(Path(chosen["uri"]).absolute())
        settings = {**chosen, "collection": f"happier_{uuid.uuid4().hex}", "depth": depth}
        client = _connect(settings["uri"])
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("position", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dim)
        for level in range(1, depth + 1):
            schema.add_field(f"level_{level}", DataType.VARCHAR, max_length=MAX_NAME_BYTES)
        parameters = client.prepare_index_params()
        structure = {"M": 24, "efConstruction": 64} if chosen["index_type"] == "HNSW" else {}
        # Twice "params": the client takes one layer off, and milvus-lite reads nothing outside of it.
        parameters.add_index(
            field_name="vector",
            index_type=chosen["index_type"],
            metric_type="IP",
            params={"params": structure},
        )
        collection = settings["collection"]
        try:
            client.create_collection(collection, schema=schema, consistency_level="Strong")
            client.create_index(collection, parameters)
            client.release_collection(collection)
        except MilvusException as error:
            client.close()
            raise SearchError(
                f"Milvus at {settings['uri']} refuses the collection: {error.message}"
            ) from error
        return cls(client, settings)

    @classmethod
    def open(cls, settings: Mapping[str, Any]) -> MilvusEngine:
        """Connect to the collection an index was written with.

        Raises:
            SearchError: the server does not answer or has no such collection.
        """
        uri, collection = str(settings["uri"]), str(settings["collection"])
        if "://" not in uri and not Path(uri).exists():
            raise SearchError(f"the Milvus file {uri} of this index is gone; build the index again")
        client = _connect(uri)
        try:
            there = client.has_collection(collection)
            if there:
                client.load_collection(collection)
        except MilvusException as error:
            client.close()
            raise SearchError(f"Milvus at {uri} does not serve the collection: {error.message}") from error
        if not there:
            client.close()
            raise SearchError(f"Milvus at {uri} has no collection {collection}; build the index again")
        return cls(client, dict(settings))

    def add(self, vectors: Vectors, branches: Sequence[Branch], *, start: int) -> None:
        """Insert the rows, after what an interrupted addition left in their place is gone."""
        names = {branch: self._names(branch) for branch in set(branches)}
        if start:
            self._ask(
                "delete",
                lambda: self._client.delete(self._settings["collection"], filter=f"position >= {start}"),
            )
        step = max(1, min(5_000, _MESSAGE_BYTES // (4 * vectors.shape[1])))
        for first in range(0, len(vectors), step):
            # Not upsert: looking up each row's predecessor takes longer than the rest.
            rows = [
                {"position": start + offset, "vector": vector, **names[branches[offset]]}
                for offset, vector in enumerate(np.asarray(vectors[first : first + step]), start=first)
            ]
            self._ask("insert", lambda rows=rows: self._client.insert(self._settings["collection"], rows))

    def _names(self, branch: Branch) -> dict[str, str]:
        """A branch as fields, empty below what is known."""
        for name in branch:
            if len(name.encode()) > MAX_NAME_BYTES:
                raise SearchError(f"a class name may have {MAX_NAME_BYTES} bytes in Milvus, got {name!r}")
        padded = (*branch, *("",) * (self._settings["depth"] - len(branch)))
        return {f"level_{level}": name for level, name in enumerate(padded, start=1)}

    def delete(self, positions: Positions) -> None:
        """Delete by primary key."""
        for first in range(0, len(positions), 10_000):
            part = positions[first : first + 10_000].tolist()
            self._ask("delete", lambda part=part: self._client.delete(self._settings["collection"], ids=part))

    def search(self, queries: Vectors, k: int, scope: Scope) -> tuple[Positions, Vectors]:
        """Search with the branch as the server's filter."""
        # Rows beyond the index's own count belong to an addition that was interrupted.
        conditions = [f"position < {len(scope.vectors)}"]
        for level, name in enumerate(scope.branch, start=1):
            # JSON's escapes are those of Milvus's expressions.
            conditions.append(f"level_{level} == {json.dumps(name, ensure_ascii=False)}")
        limit = min(k, MAX_K)
        rows = len(scope.vectors)
        allowed = rows if scope.positions is None else max(1, len(scope.positions))
        # A filter hides most of what the graph walks over: walk further by as much.
        effort = min(MAX_K, rows, max(limit, self._settings["effort"]) * rows // allowed)
        restore_search()
        found = self._ask(
            "search",
            lambda: self._client.search(
                self._settings["collection"],
                data=list(queries),
                limit=limit,
                filter=" and ".join(conditions),
                output_fields=["position"],
                search_params={"metric_type": "IP", "params": {"ef": max(limit, effort)}},
            ),
        )
        positions = np.full((len(queries), k), -1, dtype=np.int64)
        scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
        for row, hits in enumerate(found):
            positions[row, : len(hits)] = [hit["position"] for hit in hits]
            scores[row, : len(hits)] = [hit["distance"] for hit in hits]
        return positions, scores

    def write(self, directory: Path, stem: str) -> dict[str, Any]:  # noqa: ARG002
        """Flush, and load where that is still to be done; the server keeps the data."""
        collection = self._settings["collection"]
        self._ask("flush", lambda: self._client.flush(collection))
        self._ask("load", lambda: self._client.load_collection(collection))
        return dict(self._settings)

    def discard(self) -> None:
        """Drop the collection."""
        self._ask("drop", lambda: self._client.drop_collection(self._settings["collection"]))
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _ask(self, what: str, call: Any) -> Any:
        try:
            return call()
        except MilvusException as error:
            raise SearchError(
                f"Milvus at {self._settings['uri']} failed to {what}: {error.message}"
            ) from error


def _connect(uri: str) -> Any:
    # The client logs every failure with a traceback before it raises it; the error says it once.
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    # milvus-lite hangs up on a client that asks every few seconds, while it loads, whether it is still there.
    patience = {} if "://" in uri else {"grpc.keepalive_time_ms": _NEVER}
    try:
        return MilvusClient(
            uri=uri, token=os.environ.get("MILVUS_TOKEN", ""), timeout=30, grpc_options=patience
        )
    except (MilvusException, OSError, ValueError) as error:
        raise SearchError(f"cannot connect to Milvus at {uri}: {error}") from error
