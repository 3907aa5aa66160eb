"""The servers that engines are tried with: milvus-lite, a real Milvus, a real PostgreSQL; and kills."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
from pymilvus import MilvusClient

from happier.search import Index, milvus_engine, store
from tests.search.index_worker import MODEL, OPERATIONS, images
from tests.search.milvus_standalone import TOKEN


class Killed(BaseException):
    """Stands for the end of the process: nothing that comes after it takes place."""


@dataclass(frozen=True)
class Server:
    """Where an engine keeps its vectors.

    Attributes:
        engine: name of the engine.
        uri: address.
        options: with which an index on it gives exact answers.
        alone: whether nobody else uses it now.
        steps: the class and method that every request goes through.
        kept: names of the collections or tables.
        forget: delete positions of one behind the index's back.
    """

    engine: str
    uri: str
    options: dict[str, str]
    alone: bool
    steps: tuple[type, str]
    kept: Callable[[], set[str]]
    forget: Callable[[str, list[int]], None]

    def at(self, uri: str) -> Server:
        """The same by another address."""
        return Server(self.engine, uri, self.options, self.alone, self.steps, self.kept, self.forget)

    def build(self, directory, numbers, **more) -> None:
        """Write an index of these images."""
        manifest, vectors = images(numbers)
        options = {**self.options, "uri": self.uri}
        Index.build(
            directory, manifest, vectors, fingerprint=MODEL, engine=self.engine, options=options, **more
        ).close()

    def change(self, op: str, directory) -> None:
        """Make one of the operations of `index_worker`."""
        if op in ("build", "overwrite"):
            self.build(directory, OPERATIONS[op], overwrite=op == "overwrite")
            return
        index = Index.open(directory)
        try:
            if op.startswith("add"):
                index.add(*images(OPERATIONS[op]), fingerprint=MODEL)
            else:
                index.delete([f"{number}.png" for number in OPERATIONS[op]])
        finally:
            index.close()

    def kill_at(self, patch: Any, wanted: int) -> None:
        """Raise before the n-th step of a change, and let no clean-up run afterwards."""
        seen = itertools.count(1)
        dead = False

        def counted(real):
            def step(*arguments, **more):
                nonlocal dead
                dead = dead or next(seen) == wanted
                if dead:
                    raise Killed
                return real(*arguments, **more)

            return step

        def unless_dead(real):
            return lambda *arguments: None if dead else real(*arguments)

        patch.setattr(*self.steps, counted(getattr(*self.steps)))
        for name in ("write_head", "write_items", "write_vectors", "write_json"):
            patch.setattr(store, name, counted(getattr(store, name)))
        leftovers = store.IndexStore._remove_leftovers
        patch.setattr(store.IndexStore, "_remove_leftovers", unless_dead(leftovers))


def milvus(uri: str) -> Server:
    """A Milvus server, or a local file."""

    def connect() -> MilvusClient:
        return MilvusClient(uri, token="" if alone else TOKEN)

    def kept() -> set[str]:
        client = connect()
        found = set(client.list_collections())
        client.close()
        return found

    def forget(name: str, positions: list[int]) -> None:
        client = connect()
        client.delete(name, ids=positions)
        client.close()

    steps = (milvus_engine.MilvusEngine, "_ask")
    alone = "://" not in uri  # other tests use the server, too
    return Server("milvus", uri, {"index_type": "FLAT"}, alone, steps, kept, forget)


def postgres(uri: str, password: str) -> Server:
    """A PostgreSQL server."""

    def run(statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(uri, password=password, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def kept() -> set[str]:
        return {name for (name,) in run("SELECT tablename FROM pg_tables WHERE tablename LIKE 'happier%'")}

    def forget(name: str, positions: list[int]) -> None:
        run(f"DELETE FROM {name} WHERE position IN ({', '.join(map(str, positions))})")

    steps = (psycopg.Connection, "execute")
    return Server("pgvector", uri, {"index_type": "flat"}, True, steps, kept, forget)
