"""A PostgreSQL database as a part of the box: its tables and views belong to every snapshot."""

from __future__ import annotations

import json
import os
from typing import Any

from postgres_server import PostgresServer

OURS = """
SELECT c.relname, c.relkind::text, c.oid, obj_description(c.oid, 'pg_class')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relkind IN ('r', 'v') ORDER BY c.relname
"""
COLUMNS = """
SELECT string_agg(quote_ident(attname) || ' ' || format_type(atttypid, atttypmod)
                  || CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END, ', ' ORDER BY attnum)
FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
"""
INDEXES = "SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = %s ORDER BY 1"


class DatabaseBox:
    """A server that is started when a command first names it: as text, it is its address."""

    def __init__(self) -> None:
        self._server: PostgresServer | None = None
        self._connection: Any = None
        self._last: dict[str, bytes] = {}

    def start(self) -> None:
        """Start it, in the process that forks all others; they get its password."""
        import psycopg

        if self._server is not None:
            return
        self._server = PostgresServer()
        os.environ["PGPASSWORD"] = self._server.password
        os.environ["PGVECTOR_URI"] = self._server.uri
        self._connection = psycopg.connect(self._server.uri, autocommit=True)
        self._connection.execute("CREATE EXTENSION vector")

    def close(self) -> None:
        """Stop it, where it was started."""
        if self._server is not None:
            self._connection.close()
            self._server.remove()

    def __str__(self) -> str:
        assert self._server is not None, "start it first"
        return self._server.uri

    def take(self) -> dict[str, bytes]:
        """What is committed, by name."""
        import psycopg

        try:
            with self._connection.transaction():
                self._connection.execute("SET LOCAL lock_timeout = '2s'")
                self._last = {row[0]: self._described(*row) for row in self._ours()}
        except psycopg.errors.LockNotAvailable:
            # A command stands still inside its transaction: what is committed is what was there before.
            pass
        return self._last

    def _ours(self) -> list[tuple[Any, ...]]:
        return self._connection.execute(OURS).fetchall()

    def _described(self, name: str, kind: str, number: int, comment: str | None) -> bytes:
        run = self._connection.execute
        if kind == "v":
            (definition,) = run("SELECT pg_get_viewdef(%s::oid)", [number]).fetchone()
            made = [f'CREATE VIEW "{name}" AS {definition}', f"COMMENT ON VIEW \"{name}\" IS '{comment}'"]
            return json.dumps({"kind": kind, "make": made, "rows": "", "indexes": []}).encode()
        (columns,) = run(COLUMNS, [number]).fetchone()
        indexes = [text for (text,) in run(INDEXES, [number]).fetchall()]
        with self._connection.cursor().copy(f'COPY (SELECT * FROM "{name}" ORDER BY 1) TO STDOUT') as copy:
            rows = b"".join(bytes(part) for part in copy).decode()
        made = [f'CREATE TABLE "{name}" ({columns})']
        return json.dumps({"kind": kind, "make": made, "rows": rows, "indexes": indexes}).encode()

    def put(self, content: dict[str, bytes]) -> None:
        """Make the database what it was then."""
        found = {name: json.loads(text) for name, text in content.items()}
        with self._connection.transaction():
            for name, kind, *_ in sorted(self._ours(), key=lambda row: row[1] == "r"):
                self._connection.execute(
                    f'DROP {"VIEW" if kind == "v" else "TABLE"} IF EXISTS "{name}" CASCADE'
                )
            for name, one in sorted(found.items(), key=lambda item: item[1]["kind"] == "v"):
                for statement in one["make"]:
                    self._connection.execute(statement)
                if one["kind"] == "r":
                    with self._connection.cursor().copy(f'COPY "{name}" FROM STDIN') as copy:
                        copy.write(one["rows"])
                for statement in one["indexes"]:
                    self._connection.execute(statement)
        self._last = dict(content)
