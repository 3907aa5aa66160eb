"""PostgreSQL with the extension pgvector: the vectors beside whatever else a team keeps in its database.

One table per index: the position as primary key, the image's id and path, its class path, one column per
taxonomy level, and the vector. An addition is one transaction, and so is a deletion. A table is replaced when
an index is built anew or thinned out; a view (``--option view=NAME``) keeps its name and always shows the
current one, so that other queries can join with it.

A table cannot change in one step with ``index.json``. So rows are added before the commit, behind those that
``index.json`` counts, and every search filters by that count. Rows are deleted after the commit; until then
the settings list them, so that every search leaves them out.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from happier.data.class_path import join
from happier.errors import OptionError, SearchError
from happier.search.engine import EngineItems, Positions, SearchScope, Settings, VectorArray
from happier.search.exact import SCAN_ROWS, scan
from happier.search.options import Option, Text, Whole, check_options
from happier.search.pgvector_server import Database, PostgresAddress, allow_database, register_type
from happier.search.server_effort import effort_in, raise_effort
from happier.search.settings import PgvectorSettings

import psycopg  # isort: skip  # after `pgvector_server`, which says what is missing
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal  # isort: skip

# The highest `hnsw.ef_search`; a graph gives no more rows than that.
MAX_EFFORT = 1_000
MAX_HNSW_DIM = 2_000
MAX_DIM = 16_000
OPTIONS: Mapping[str, Option] = {
    "uri": Text(""),
    "index_type": Text("hnsw", ("hnsw", "flat")),
    "effort": Whole(96, 1, MAX_EFFORT),
    "view": Text(""),
}
_VIEW_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_VIEW_COMMENT = "Images of a happier index"
# A graph that does not fit into this much of the server's memory while it is built takes many times longer.
_MAX_BUILD_MEGABYTES = 2_048
_NO_LIMIT = SQL("SET LOCAL statement_timeout = 0")


class PgvectorEngine:
    """A table in PostgreSQL."""

    def __init__(self, database: Database, settings: PgvectorSettings) -> None:
        self._database = database
        self._kept = settings
        self.exact = settings.index_type == "flat"
        # The effort that each connection was told last; it holds until it is set again.
        self._efforts: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    @property
    def settings(self) -> Settings:
        """What `open` needs."""
        return self._kept.model_dump()

    @property
    def _table(self) -> Composable:
        return Identifier(self._kept.schema_name, self._kept.table)

    @property
    def _graph(self) -> str:
        return f"{self._kept.table}_graph"

    @classmethod
    def create(
        cls,
        *,
        dim: int,
        depth: int,
        options: Mapping[str, Any],
        before_outside: Callable[[Settings], None],
    ) -> PgvectorEngine:
        """A new table with a name of its own.

        Raises:
            OptionError: an unknown option, or no uri.
            SearchError: the server does not answer, or lacks the extension.
        """
        chosen = _check(dim, options)
        database = Database(PostgresAddress.parse(chosen["uri"]))
        try:
            schema = database.ask("answer", _prepare)
            settings = PgvectorSettings(
                **chosen, schema_name=schema, table=f"happier_{uuid.uuid4().hex}", depth=depth
            )
            engine = cls(database, settings)
            before_outside(engine.settings)
            levels = SQL(", ").join(SQL("{} text NOT NULL").format(name) for name in engine._levels())
            statement = SQL(
                "CREATE TABLE IF NOT EXISTS {} (position bigint PRIMARY KEY, id text NOT NULL, "
                "path text NOT NULL, class_path text NOT NULL, {}, embedding vector({}) NOT NULL)"
            ).format(engine._table, levels, Literal(dim))
            database.ask("create the table", lambda connection: connection.execute(statement))
        except BaseException:
            database.close()
            raise
        return engine

    def _levels(self) -> list[Identifier]:
        return [Identifier(f"level_{level}") for level in range(1, self._kept.depth + 1)]

    @classmethod
    def open(cls, settings: Settings) -> PgvectorEngine:
        """Connect to the table an index was written with.

        Raises:
            SearchError: the server does not answer or has no such table.
        """
        kept = PgvectorSettings.model_validate(settings)
        engine = cls(Database(PostgresAddress.parse(kept.uri)), kept)
        statement = SQL("SELECT to_regclass({}) IS NOT NULL").format(Literal(engine._table.as_string(None)))
        try:
            if not engine._database.ask("answer", lambda one: one.execute(statement).fetchone()[0]):
                raise SearchError(
                    f"PostgreSQL at {engine._database.address} has no table {engine._name}; open the index "
                    "again if it was changed just now, else build it again"
                )
        except BaseException:
            engine.close()
            raise
        return engine

    @property
    def _name(self) -> str:
        return f"{self._kept.schema_name}.{self._kept.table}"

    def check(self, positions: Positions) -> None:
        """Check that the table still holds the rows of the index."""
        statement = SQL("SELECT count(*) FROM {} WHERE position <= %s").format(self._table)
        last = int(positions.max())
        found = self._database.ask("count its rows", lambda one: one.execute(statement, [last]).fetchone()[0])
        if found < len(positions):
            raise SearchError(
                f"the table {self._name} of PostgreSQL at {self._database.address} holds {found:,} of the "
                f"index's {len(positions):,} images: something else changed it; build the index again"
            )

    def add(self, vectors: VectorArray, items: EngineItems, *, start: int) -> None:
        """Insert the rows in one transaction, in place of what an interrupted addition left."""
        clear = SQL("DELETE FROM {} WHERE position >= %s").format(self._table)
        copy = SQL("COPY {} FROM STDIN WITH (FORMAT BINARY)").format(self._table)
        depth = self._kept.depth
        types = ["int8", *["text"] * (3 + depth), "vector"]  # position; id, path, class path, levels; vector
        known = {
            one: (_text(join(one)), *map(_text, one), *[""] * (depth - len(one)))
            for one in set(items.branches)
        }

        def insert(connection: Any) -> None:
            with connection.transaction():
                connection.execute(_NO_LIMIT)
                connection.execute(clear, [start])
                with connection.cursor().copy(copy) as rows:
                    rows.set_types(types)
                    for row, (one, path) in enumerate(zip(items.ids, items.paths, strict=True)):
                        named = known[items.branches[row]]
                        rows.write_row((start + row, _text(one), _text(path), *named, vectors[row]))

        self._database.ask("insert rows", insert)

    def delete(self, positions: Positions) -> None:
        """List the positions in the settings; `clean` deletes them after the commit."""
        dead = sorted({*self._kept.dead, *positions.tolist()})
        self._kept = self._kept.model_copy(update={"dead": dead})

    def clean(self) -> bool:
        """Delete the listed positions in one transaction; a view that went missing is made again."""
        dead = self._kept.dead
        statement = SQL("DELETE FROM {} WHERE position = ANY(%s)").format(self._table)

        def delete(connection: Any) -> None:
            with connection.transaction():
                connection.execute(_NO_LIMIT)
                connection.execute(statement, [dead])
                self._show(connection)

        if dead or self._kept.view:
            self._database.ask("delete rows", delete)
        self._kept = self._kept.model_copy(update={"dead": []})
        return bool(dead)

    def search(self, queries: VectorArray, k: int, scope: SearchScope) -> tuple[Positions, VectorArray]:
        """Search with the branch as the server's filter, or scan the vectors here where that finds more."""
        small = scope.positions is not None and self.scans(len(scope.positions))
        if small or (k > MAX_EFFORT and not self.exact):
            return scan(queries, k, scope)
        effort = min(MAX_EFFORT, max(k, effort_in(self._kept, scope, most=MAX_EFFORT)))
        statement, values = self._question(scope)

        def ask(connection: Any) -> Any:
            if self._efforts.get(connection) != effort:
                connection.execute("SELECT set_config('hnsw.ef_search', %s, false)", [str(effort)])
                self._efforts[connection] = effort
            return connection.execute(statement, {**values, "queries": list(queries), "k": k}).fetchall()

        positions = np.full((len(queries), k), -1, dtype=np.int64)
        scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
        found = self._database.ask("search", ask)
        counts = np.bincount([row[0] for row in found], minlength=len(queries))
        filled = np.arange(k) < counts[:, None]
        positions[filled] = [row[1] for row in found]
        scores[filled] = [row[2] for row in found]
        # A filter may leave too few of what the graph found.
        available = len(scope.vectors) if scope.positions is None else len(scope.positions)
        short = np.flatnonzero(counts < min(k, available))
        if len(short):
            positions[short], scores[short] = scan(queries[short], k, scope)
        return positions, scores

    def _question(self, scope: SearchScope) -> tuple[Composed, dict[str, Any]]:
        """The query and its values: the nearest of each vector, best first, among the rows of a scope."""
        # Rows beyond the index's own count belong to an addition that was not committed.
        conditions: list[Composable] = [SQL("position < %(rows)s")]
        values: dict[str, Any] = {"rows": len(scope.vectors)}
        if self._kept.dead:
            conditions.append(SQL("position <> ALL(%(dead)s)"))
            values["dead"] = self._kept.dead
        for number, (column, name) in enumerate(zip(self._levels(), scope.branch, strict=False), start=1):
            conditions.append(SQL("{} = %({})s").format(column, SQL(f"level_{number}")))
            values[f"level_{number}"] = _text(name)
        statement = SQL(
            "SELECT asked.number - 1, near.position, near.score "
            "FROM unnest(%(queries)s::vector[]) WITH ORDINALITY AS asked(vector, number), "
            "LATERAL (SELECT position, -(embedding <#> asked.vector) AS score FROM {} WHERE {} "
            "ORDER BY embedding <#> asked.vector LIMIT %(k)s) AS near "
            "ORDER BY asked.number, near.score DESC, near.position"
        ).format(self._table, SQL(" AND ").join(conditions))
        return statement, values

    def scans(self, rows: int) -> bool:
        """Where it is cheap, or where the server finds too little."""
        return rows <= max(SCAN_ROWS, self._kept.scan_rows)

    def search_harder(self, *, filtered: bool) -> bool:
        """Double the effort, up to what pgvector takes; then scan larger branches here."""
        harder = raise_effort(self._kept, filtered=filtered, most=MAX_EFFORT, scan_rows=SCAN_ROWS)
        self._kept = harder or self._kept
        return harder is not None

    def write(self, directory: Path, stem: str) -> None:  # noqa: ARG002
        """Build the graph where that is still to be done, and let the view show this table."""
        kept = self._kept
        graph = SQL(
            "CREATE INDEX IF NOT EXISTS {} ON {} USING hnsw (embedding vector_ip_ops) "
            "WITH (m = 24, ef_construction = 128)"
        ).format(Identifier(self._graph), self._table)
        classes = SQL("CREATE INDEX IF NOT EXISTS {} ON {} ({})").format(
            Identifier(f"{kept.table}_class"), self._table, SQL(", ").join(self._levels())
        )
        ids = SQL("CREATE INDEX IF NOT EXISTS {} ON {} (id)").format(
            Identifier(f"{kept.table}_id"), self._table
        )

        def build(connection: Any) -> None:
            with connection.transaction():
                connection.execute(_NO_LIMIT)
                connection.execute("SET LOCAL client_min_messages = warning")
                connection.execute(
                    SQL("SET LOCAL maintenance_work_mem = {}").format(Literal(self._memory(connection)))
                )
                for statement in (ids, classes, *([] if self.exact else [graph])):
                    connection.execute(statement)
                connection.execute(SQL("ANALYZE {}").format(self._table))
                self._show(connection)

        self._database.ask("build the index", build)

    def _memory(self, connection: Any) -> str:
        """What building takes: rows and their links; never less than what the server gives anyway."""
        size, own = connection.execute(
            "SELECT pg_relation_size(%s), setting::bigint / 1024 FROM pg_settings "
            "WHERE name = 'maintenance_work_mem'",
            [self._table.as_string(connection)],
        ).fetchone()
        return f"{max(int(own), min(_MAX_BUILD_MEGABYTES, 64 + 2 * int(size) // (1 << 20)))}MB"

    def _show(self, connection: Any) -> None:
        """Let the view show this table; inside a transaction."""
        kept = self._kept
        if not kept.view:
            return
        _check_view(connection, kept.schema_name, kept.view)
        view = Identifier(kept.schema_name, kept.view)
        shown = SQL("VIEW {} AS SELECT id, path, class_path, embedding FROM {}").format(view, self._table)
        try:
            with connection.transaction():
                connection.execute(SQL("CREATE OR REPLACE ") + shown)
        except psycopg.errors.InvalidTableDefinition:  # vectors of another length
            connection.execute(SQL("DROP VIEW {}").format(view))
            connection.execute(SQL("CREATE ") + shown)
        connection.execute(SQL("COMMENT ON VIEW {} IS {}").format(view, Literal(_VIEW_COMMENT)))

    def discard(self) -> None:
        """Drop the table, and the view where it still shows it."""
        kept = self._kept

        def drop(connection: Any) -> None:
            with connection.transaction():
                shows = SQL(
                    "SELECT 1 FROM pg_views WHERE schemaname = %s AND viewname = %s "
                    "AND position(%s IN definition) > 0"
                )
                names = [kept.schema_name, kept.view, kept.table]
                if kept.view and connection.execute(shows, names).fetchone():
                    connection.execute(SQL("DROP VIEW {}").format(Identifier(kept.schema_name, kept.view)))
                connection.execute("SET LOCAL client_min_messages = warning")
                connection.execute(SQL("DROP TABLE IF EXISTS {}").format(self._table))

        self._database.ask("drop the table", drop)
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._database.close()


def choose_pgvector(dim: int, options: Mapping[str, Any]) -> None:
    """Check the options of a new index; the server that they name may get the password.

    Raises:
        OptionError: an unknown option, a malformed uri, or vectors too long for the graph.
        SearchError: the server does not answer, lacks the extension, or the view's name is taken.
    """
    chosen = _check(dim, options)
    allow_database(chosen["uri"])
    database = Database(PostgresAddress.parse(chosen["uri"]))
    try:
        schema = database.ask("answer", _prepare)
        if chosen["view"]:
            database.ask("answer", lambda connection: _check_view(connection, schema, chosen["view"]))
    finally:
        database.close()


def drop_table(settings: Settings) -> None:
    """Drop a table; nothing to do where it is gone.

    Raises:
        SearchError: the server does not answer.
    """
    kept = PgvectorSettings.model_validate(settings)
    PgvectorEngine(Database(PostgresAddress.parse(kept.uri)), kept).discard()


def _check(dim: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with their defaults."""
    chosen = check_options("pgvector", options, OPTIONS)
    PostgresAddress.parse(chosen["uri"])
    if chosen["view"] and not _VIEW_NAME.fullmatch(chosen["view"]):
        raise OptionError(
            f"option 'view' must be lower-case letters, digits and underscores, got {chosen['view']!r}"
        )
    if chosen["index_type"] == "hnsw" and dim > MAX_HNSW_DIM:
        raise OptionError(
            f"pgvector's graph takes vectors of up to {MAX_HNSW_DIM:,} dimensions, these have {dim:,}; "
            "use --option index_type=flat"
        )
    if dim > MAX_DIM:
        raise OptionError(f"pgvector takes vectors of up to {MAX_DIM:,} dimensions, these have {dim:,}")
    return chosen


def _prepare(connection: Any) -> str:
    """Check that the database has the extension; the schema in which tables are made."""
    if not connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone():
        try:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported) as error:
            raise SearchError(
                "the database lacks the extension pgvector: let its administrator install it and run "
                f"CREATE EXTENSION vector ({' '.join(str(error).split())[:200]})"
            ) from error
        register_type(connection)
    schema = connection.execute("SELECT current_schema()").fetchone()[0]
    if schema is None:
        raise SearchError("the database has no schema to make tables in: set search_path for this user")
    return str(schema)


def _check_view(connection: Any, schema: str, name: str) -> None:
    """Check that no other object has the view's name."""
    found = connection.execute(
        "SELECT c.relkind::text, obj_description(c.oid, 'pg_class') FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s",
        [schema, name],
    ).fetchone()
    if found and found != ("v", _VIEW_COMMENT):
        raise SearchError(f"{schema}.{name} already exists in the database and is not a view of ours")


def _text(text: str) -> str:
    """A file's name may hold bytes that are no text."""
    return text.encode("utf-8", "replace").decode()
