"""Which PostgreSQL server, who may see the password, and connections to it.

``PGPASSWORD`` is sent only to servers that the user named: by ``--uri`` in this command (`allow_database`) or
by ``PGVECTOR_URI`` in the environment (several are separated by commas). The address in an index's own files
is not enough: an index from elsewhere could name any server. ``~/.pgpass`` needs no such rule: it names the
servers itself. An address is taken apart here and never handed to libpq as a whole, which knows parameters
(``hostaddr``, ``passfile``) that send a password elsewhere.
"""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from happier.errors import EngineUnavailableError, OptionError, SearchError
from happier.extras import needs_extra
from happier.search.back_off import ask_again

with needs_extra("pgvector"):
    import psycopg
    from pgvector.psycopg import register_vector

Answer = TypeVar("Answer")
_DEFAULT_PORT = 5432
_HOST = re.compile(r"[A-Za-z0-9._:-]+")
_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_CONNECT_SECONDS = 10
_SEARCH_SECONDS = 60
_RETRY_SECONDS = 10
# A server that says one of these will take connections in a moment; other refusals (FATAL) are final.
_NOT_YET = ("starting up", "shutting down", "recovery mode", "too many clients")
_EXAMPLE = "postgresql://USER@HOST:5432/DATABASE"
_allowed: set[PostgresAddress] = set()


@dataclass(frozen=True)
class PostgresAddress:
    """A database.

    Attributes:
        host: name or address of the server, or the folder of its socket.
        port: it listens on.
        sslmode: libpq's word for how the connection is encrypted; empty for libpq's default.
        database: its name; empty for libpq's default.
        user: who connects; empty for libpq's default.
    """

    host: str
    port: int
    sslmode: str
    database: str = ""
    user: str = ""

    @classmethod
    def parse(cls, uri: str) -> PostgresAddress:
        """Take an address apart.

        Raises:
            OptionError: not the address of a database, or one with a password.
        """
        if not uri or not uri.isprintable():
            raise OptionError(f"engine 'pgvector' needs a uri: --uri {_EXAMPLE}")
        try:
            parts = urlsplit(uri)
            host, port = parts.hostname or "", parts.port or _DEFAULT_PORT
            given = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        except ValueError as error:
            raise OptionError(f"this is not the address of a database: {error}") from None
        if parts.password is not None:
            raise OptionError(
                "an address is stored with the index: give the password in PGPASSWORD or ~/.pgpass"
            )
        if unknown := sorted(set(given) - {"sslmode", "host"}):
            raise OptionError(f"an address may have the parameters sslmode and host, got {unknown[0]!r}")
        socket = given.get("host", "")
        if socket and (host or not socket.startswith("/")):
            raise OptionError(f"host={socket!r} must be the folder of a socket, and the only host")
        sslmode = given.get("sslmode", "")
        if "sslmode" in given and sslmode not in _SSL_MODES:
            raise OptionError(f"sslmode must be one of {', '.join(_SSL_MODES)}, got {sslmode!r}")
        known = parts.scheme in ("postgresql", "postgres") and not parts.fragment
        if not known or not (socket or _HOST.fullmatch(host)):
            raise OptionError(f"a PostgreSQL database is given as {_EXAMPLE}, got {uri!r}")
        return cls(socket or host, port, sslmode, unquote(parts.path[1:]), unquote(parts.username or ""))

    @property
    def server(self) -> PostgresAddress:
        """The server alone: what a user has to name for it to get the password."""
        return PostgresAddress(self.host, self.port, self.sslmode)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def allow_database(uri: str) -> None:
    """The user named this server: it may get the password, in this process."""
    _allowed.add(PostgresAddress.parse(uri).server)


def _check_password(address: PostgresAddress) -> None:
    """Check that the password goes to a server that the user named.

    Raises:
        SearchError: there is a password, and the user did not name this server.
        OptionError: ``PGVECTOR_URI`` is malformed.
    """
    if not os.environ.get("PGPASSWORD"):
        return
    named = [one.strip() for one in os.environ.get("PGVECTOR_URI", "").split(",")]
    if address.server not in _allowed | {PostgresAddress.parse(one).server for one in named if one}:
        raise SearchError(
            f"the index names the PostgreSQL server {address}; PGPASSWORD is sent only to servers that you "
            "name: set PGVECTOR_URI to the index's uri if you trust it, or keep the password in ~/.pgpass"
        )


class Database:
    """Connections to one database, each used by one thread at a time and kept for the next.

    Attributes:
        address: of the database.
    """

    def __init__(self, address: PostgresAddress) -> None:
        self.address = address
        self._lock = threading.Lock()
        self._idle: list[Any] = []
        self._process = os.getpid()
        # For those who forget to close an index.
        self._end = weakref.finalize(self, _close, self._idle, self._process)

    def ask(self, what: str, work: Callable[[Any], Answer]) -> Answer:
        """Do work on a connection; a server that cannot be reached is asked again, at growing intervals.

        Args:
            what: the work does, for an error.
            work: gets a connection outside of a transaction; where it fails halfway it is done again from
                the beginning, so it must be one transaction.

        Raises:
            SearchError: the server refused.
            EngineUnavailableError: it did not answer for some seconds.
        """

        def once() -> Answer:
            with self._connection() as connection:
                return work(connection)

        try:
            return ask_again(once, unreachable=_unreachable, seconds=_RETRY_SECONDS)
        except psycopg.Error as error:
            reason = " ".join(str(error).split())[:300]
            kind = EngineUnavailableError if _unreachable(error) else SearchError
            raise kind(f"PostgreSQL at {self.address} failed to {what}: {reason}") from error

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        with self._lock:
            if self._process != os.getpid():  # a fork: these are still the parent's
                self._process, self._idle = os.getpid(), []
                self._end = weakref.finalize(self, _close, self._idle, self._process)
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = _connect(self.address)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._idle.append(connection)

    def close(self) -> None:
        """Close the connections that are not in use."""
        with self._lock:
            _close(self._idle, self._process)


def _close(idle: list[Any], process: int) -> None:
    """Close connections in the process that made them."""
    if process == os.getpid():
        while idle:
            idle.pop().close()


def _connect(address: PostgresAddress) -> Any:
    """A connection that gives up on a server that is gone.

    Raises:
        SearchError: the server may not get the password.
    """
    _check_password(address)
    connection = psycopg.connect(
        host=address.host,
        port=address.port,
        dbname=address.database or None,
        user=address.user or None,
        sslmode=address.sslmode or None,
        autocommit=True,
        connect_timeout=_CONNECT_SECONDS,
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=4,
        tcp_user_timeout=30_000,
        application_name="happier",
    )
    try:
        # Compiling a plan takes longer than our queries.
        connection.execute(f"SET jit = off; SET statement_timeout = '{_SEARCH_SECONDS}s'")
        register_type(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def register_type(connection: Any) -> None:
    """Let a connection send vectors; nothing to do where the database does not know them yet."""
    if psycopg.types.TypeInfo.fetch(connection, "vector") is not None:
        register_vector(connection)


def _unreachable(error: Exception) -> bool:
    """Whether a server may answer later: it is down, or starts, or hung up."""
    if not isinstance(error, psycopg.OperationalError) or isinstance(error, psycopg.errors.QueryCanceled):
        return False
    said = str(error)
    return "FATAL" not in said or any(words in said for words in _NOT_YET)
