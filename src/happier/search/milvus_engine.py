"""Milvus: the same client for a local file (milvus-lite) and for a cluster.

One collection per index: the position as primary key, the vector, and one text field per taxonomy level, so
that a branch is a filter that the server applies. The collection is loaded when its first rows are all
there: milvus-lite then builds the search structure once and does nothing else while rows come in.

A collection cannot change in one step with ``index.json``. So rows are added before the commit, behind those
that ``index.json`` counts, and every search filters by that count. Rows are deleted after the commit; until
then the settings list them, so that every search leaves them out.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from happier.errors import EngineUnavailableError, SearchError
from happier.search.back_off import ask_again
from happier.search.engine import Branch, EngineItems, Positions, SearchScope, Settings, VectorArray
from happier.search.exact import SCAN_ROWS, scan
from happier.search.faiss_search import restore_search
from happier.search.milvus_server import allow_server, check_uri, connect, is_local
from happier.search.options import Option, Text, Whole, check_options
from happier.search.server_effort import effort_in, raise_effort
from happier.search.settings import MAX_MILVUS_K, MilvusSettings

from pymilvus import DataType, MilvusClient  # isort: skip  # after `milvus_server`, which says what is missing
from pymilvus.client.types import Status  # isort: skip
from pymilvus.exceptions import MilvusException  # isort: skip

log = logging.getLogger(__name__)
OPTIONS: Mapping[str, Option] = {
    "uri": Text(""),
    "index_type": Text("HNSW", ("HNSW", "FLAT", "IVF_FLAT", "IVF_SQ8", "AUTOINDEX", "DISKANN")),
    "effort": Whole(96, 1, MAX_MILVUS_K),
}
MAX_NAME_BYTES = 512
_SEARCH_SECONDS = 60
_CHANGE_SECONDS = 600
_RETRY_SECONDS = 10
_MESSAGE_BYTES = 8 << 20
_POLL_SECONDS = 0.2
# What a server answers that was restarted, until it has read the collection again.
_NOT_LOADED = 101


class MilvusEngine:
    """A collection in Milvus."""

    def __init__(self, client: Any, settings: MilvusSettings) -> None:
        self._client = client
        self._kept = settings
        self.exact = settings.index_type == "FLAT"

    @property
    def settings(self) -> Settings:
        """What `open` needs."""
        return self._kept.model_dump()

    @classmethod
    def create(
        cls,
        *,
        dim: int,
        depth: int,
        options: Mapping[str, Any],
        before_outside: Callable[[Settings], None],
    ) -> MilvusEngine:
        """A new collection with a name of its own.

        Raises:
            OptionError: an unknown option, or no uri.
            SearchError: the server does not answer.
        """
        chosen = check_options("milvus", options, OPTIONS)
        chosen["uri"] = check_uri(chosen["uri"])
        settings = MilvusSettings(**chosen, collection=f"happier_{uuid.uuid4().hex}", depth=depth)
        engine = cls(connect(settings.uri), settings)
        before_outside(engine.settings)
        try:
            engine._create_collection(dim)
        except BaseException:
            engine.close()
            raise
        return engine

    def _create_collection(self, dim: int) -> None:
        client, kept = self._client, self._kept
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("position", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dim)
        for level in range(1, kept.depth + 1):
            schema.add_field(f"level_{level}", DataType.VARCHAR, max_length=MAX_NAME_BYTES)
        self._ask(
            "create the collection",
            client.create_collection,
            kept.collection,
            schema=schema,
            consistency_level="Strong",
        )
        self._create_structure()
        self._ask("release the collection", client.release_collection, kept.collection)

    def _create_structure(self) -> None:
        """Say how the vectors are searched; milvus-lite builds it when the collection is loaded."""
        kept = self._kept
        parameters = self._client.prepare_index_params()
        structure = {"M": 24, "efConstruction": 128} if kept.index_type == "HNSW" else {}
        # Twice "params": the client takes one layer off, and milvus-lite reads nothing outside of it.
        parameters.add_index(
            field_name="vector", index_type=kept.index_type, metric_type="IP", params={"params": structure}
        )
        self._ask("create the index", self._client.create_index, kept.collection, parameters)

    @classmethod
    def open(cls, settings: Settings) -> MilvusEngine:
        """Connect to the collection an index was written with.

        Raises:
            SearchError: the server does not answer or has no such collection.
        """
        kept = MilvusSettings.model_validate(settings)
        if is_local(kept.uri) and not Path(kept.uri).exists():
            raise SearchError(f"the Milvus file {kept.uri} of this index is missing; build the index again")
        engine = cls(connect(kept.uri), kept)
        try:
            client, seconds = engine._client, _SEARCH_SECONDS
            if not engine._ask("answer", client.has_collection, kept.collection, seconds=seconds):
                raise SearchError(
                    f"Milvus at {kept.uri} has no collection {kept.collection}; open the index again if it "
                    "was changed just now, else build it again"
                )
            engine._load()
        except BaseException:
            engine.close()
            raise
        return engine

    def check(self, positions: Positions) -> None:
        """Check that the collection still holds the rows of the index."""
        kept = self._kept
        answer = self._ask(
            "count its rows",
            self._client.query,
            kept.collection,
            filter=f"position <= {positions.max()}",
            output_fields=["count(*)"],
            seconds=_SEARCH_SECONDS,
        )
        found = answer[0]["count(*)"]
        if found < len(positions):
            raise SearchError(
                f"the collection {kept.collection} of Milvus at {kept.uri} holds {found:,} of the index's "
                f"{len(positions):,} images: something else changed it; build the index again"
            )

    def add(self, vectors: VectorArray, items: EngineItems, *, start: int) -> None:
        """Insert the rows, after what an interrupted addition left in their place is gone."""
        collection = self._kept.collection
        branches = items.branches
        names = {branch: self._names(branch) for branch in set(branches)}
        if start:
            self._ask("delete rows", self._client.delete, collection, filter=f"position >= {start}")
        step = max(1, min(5_000, _MESSAGE_BYTES // (4 * vectors.shape[1])))
        for first in range(0, len(vectors), step):
            # Not upsert: looking up each row's predecessor takes longer than the rest.
            rows = [
                {"position": start + offset, "vector": vector, **names[branches[offset]]}
                for offset, vector in enumerate(np.asarray(vectors[first : first + step]), start=first)
            ]
            self._ask("insert rows", self._client.insert, collection, rows)

    def _names(self, branch: Branch) -> dict[str, str]:
        """A branch as fields, empty below what is known."""
        for name in branch:
            if len(name.encode()) > MAX_NAME_BYTES:
                raise SearchError(f"a class name may have {MAX_NAME_BYTES} bytes in Milvus, got {name!r}")
        padded = (*branch, *("",) * (self._kept.depth - len(branch)))
        return {f"level_{level}": name for level, name in enumerate(padded, start=1)}

    def delete(self, positions: Positions) -> None:
        """List the positions in the settings; `clean` deletes them after the commit."""
        dead = sorted({*self._kept.dead, *positions.tolist()})
        self._kept = self._kept.model_copy(update={"dead": dead})

    def clean(self) -> bool:
        """Delete the listed positions by primary key."""
        dead = self._kept.dead
        for first in range(0, len(dead), 10_000):
            part = dead[first : first + 10_000]
            self._ask("delete rows", self._client.delete, self._kept.collection, ids=part)
        if dead:
            self._flush()
            self._note_time()
        self._kept = self._kept.model_copy(update={"dead": []})
        return bool(dead)

    def search(self, queries: VectorArray, k: int, scope: SearchScope) -> tuple[Positions, VectorArray]:
        """Search with the branch as the server's filter, or scan the vectors here where it is small."""
        if scope.positions is not None and self.scans(len(scope.positions)):
            return scan(queries, k, scope)
        # Rows beyond the index's own count belong to an addition that was not committed.
        conditions = [f"position < {len(scope.vectors)}"]
        if self._kept.dead:
            conditions.append(f"position not in {self._kept.dead}")
        for level, name in enumerate(scope.branch, start=1):
            # JSON's escapes are those of Milvus's expressions.
            conditions.append(f"level_{level} == {json.dumps(name, ensure_ascii=False)}")
        limit = min(k, MAX_MILVUS_K)
        effort = max(limit, effort_in(self._kept, scope, most=MAX_MILVUS_K))
        restore_search()
        found = self._ask(
            "search",
            self._client.search,
            self._kept.collection,
            data=list(queries),
            limit=limit,
            filter=" and ".join(conditions),
            output_fields=["position"],
            search_params={"metric_type": "IP", "params": {self._effort_name: effort}},
            seconds=_SEARCH_SECONDS,
            **self._fresh_enough(),
        )
        positions = np.full((len(queries), k), -1, dtype=np.int64)
        scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
        for row, hits in enumerate(found):
            positions[row, : len(hits)] = [hit["position"] for hit in hits]
            scores[row, : len(hits)] = [hit["distance"] for hit in hits]
        return positions, scores

    def _fresh_enough(self) -> dict[str, Any]:
        """What a search waits for: the last change of this state, or the present."""
        if not self._kept.written_at:
            return {}
        return {"consistency_level": "Customized", "guarantee_timestamp": self._kept.written_at}

    @property
    def _effort_name(self) -> str:
        return "nprobe" if self._kept.index_type.startswith("IVF") else "ef"

    def scans(self, rows: int) -> bool:
        """Where it is cheap, or where the server finds too little."""
        return rows <= max(SCAN_ROWS, self._kept.scan_rows)

    def search_harder(self, *, filtered: bool) -> bool:
        """Double the effort, up to what Milvus takes; then scan larger branches here."""
        harder = raise_effort(self._kept, filtered=filtered, most=MAX_MILVUS_K, scan_rows=SCAN_ROWS)
        self._kept = harder or self._kept
        return harder is not None

    def write(self, directory: Path, stem: str) -> None:  # noqa: ARG002
        """Flush, and load where that is still to be done; the server keeps the data."""
        self._flush()
        self._wait_for_structure()
        self._note_time()
        self._load()

    def _load(self) -> None:
        """Load the collection; a search structure that milvus-lite cannot read is built again.

        It writes that file in place, so a kill there leaves a part of it. The rows are in other files.
        """
        load, collection = self._client.load_collection, self._kept.collection
        try:
            self._ask("load the collection", load, collection)
        except SearchError as error:
            if isinstance(error, EngineUnavailableError) or not is_local(self._kept.uri):
                raise
            log.warning("%s: the search structure is damaged, and built again", self._kept.uri)
            self._ask("drop the index", self._client.drop_index, collection, "vector")
            self._create_structure()
            self._ask("load the collection", load, collection)

    def _wait_for_structure(self) -> None:
        """Wait until the server has built its search structure, which it does after rows were flushed.

        Until then it compares with every row: slow, and the recall would be measured of something else.
        Rows are pending again when it merges parts, and builds the structure of the whole.
        """
        if is_local(self._kept.uri):
            return
        collection = self._kept.collection
        before, since = None, time.monotonic()
        while time.monotonic() - since < _CHANGE_SECONDS:
            state = self._ask(
                "tell how far its index is",
                self._client.describe_index,
                collection,
                index_name="vector",
                seconds=_SEARCH_SECONDS,
            )
            done, pending = int(state["indexed_rows"]), int(state.get("pending_index_rows", 0))
            if done >= int(state["total_rows"]) and not pending:
                return
            if (done, pending) != before:
                before, since = (done, pending), time.monotonic()
            time.sleep(_POLL_SECONDS)
        raise SearchError(
            f"Milvus at {self._kept.uri} has not built its index of {collection} in {_CHANGE_SECONDS} s"
        )

    def _note_time(self) -> None:
        """Ask for the server's time after a change.

        Without it each search would have to wait for the present, which nodes hear of five times a second.
        """
        now = 0
        if not is_local(self._kept.uri):
            # Not among the client's own methods, and no loss where a server does not tell.
            with suppress(AttributeError, MilvusException):
                now = self._client._get_connection().alloc_timestamp(timeout=_SEARCH_SECONDS)
        self._kept = self._kept.model_copy(update={"written_at": now})

    def _flush(self) -> None:
        self._ask("flush", self._client.flush, self._kept.collection)

    def discard(self) -> None:
        """Drop the collection."""
        self._ask("drop the collection", self._client.drop_collection, self._kept.collection)
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _ask(
        self, what: str, call: Callable[..., Any], *arguments: Any, seconds: int | None = None, **more: Any
    ) -> Any:
        """Call the client; a server that cannot be reached is asked again, at growing intervals."""

        def ask() -> Any:
            try:
                return call(*arguments, timeout=seconds or _CHANGE_SECONDS, **more)
            except MilvusException as error:
                if error.code != _NOT_LOADED:
                    raise
            self._load_again()
            return call(*arguments, timeout=seconds or _CHANGE_SECONDS, **more)

        try:
            return ask_again(ask, unreachable=_unreachable, seconds=_RETRY_SECONDS)
        except MilvusException as error:
            reason = " ".join(str(error.message).split())[:300]
            kind = EngineUnavailableError if _unreachable(error) else SearchError
            raise kind(f"Milvus at {self._kept.uri} failed to {what}: {reason}") from error

    def _load_again(self) -> None:
        """Load the collection that a restart of the server, or somebody else, has released."""
        try:
            self._client.load_collection(self._kept.collection, timeout=_RETRY_SECONDS)
        except MilvusException as error:
            raise EngineUnavailableError(
                f"Milvus at {self._kept.uri} has not yet loaded the collection {self._kept.collection}; try "
                "again in a minute"
            ) from error


def _unreachable(error: Exception) -> bool:
    return bool(getattr(error, "code", None) == Status.CONNECT_FAILED)


def choose_milvus(options: Mapping[str, Any]) -> None:
    """Check the options of a new index; the server that they name may get the token.

    Raises:
        OptionError: an unknown option, or a malformed uri.
        SearchError: the server does not answer.
    """
    uri = check_uri(check_options("milvus", options, OPTIONS)["uri"])
    allow_server(uri)
    connect(uri).close()


def drop_collection(settings: Settings) -> None:
    """Drop a collection; nothing to do where it is gone.

    Raises:
        SearchError: the server does not answer.
    """
    kept = MilvusSettings.model_validate(settings)
    if is_local(kept.uri) and not Path(kept.uri).exists():
        return
    MilvusEngine(connect(kept.uri), kept).discard()
