"""Small copies of the catalogue's images, and its maps: made once, kept on disk, bounded."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from contextlib import suppress
from pathlib import Path

import xxhash

from happier.storage.regular_file import containing_file

log = logging.getLogger(__name__)
MAX_BYTES = 512 << 20
# What is removed at once when there are too many: most recently made ones stay.
_KEPT_SHARE = 0.9
_SCHEMA = "CREATE TABLE IF NOT EXISTS picture (key TEXT PRIMARY KEY, made REAL, checksum BLOB, data BLOB)"


class ThumbnailStore:
    """A file of pictures that all servers of a user share.

    A picture's key says what it was made of (see `picture_key`): one whose file changed is made again.
    It is a cache: where the file cannot be read or written, pictures are made anew, and nothing fails.

    Args:
        path: the file; None keeps nothing.
        max_bytes: of the pictures; the oldest are removed.
    """

    def __init__(self, path: Path | None, *, max_bytes: int = MAX_BYTES) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        self._bytes = 0

    def get(self, key: str) -> bytes | None:
        """A picture, or None where it is not there or damaged."""
        with self._lock:
            try:
                row = (
                    self._open().execute("SELECT checksum, data FROM picture WHERE key = ?", [key]).fetchone()
                )
            except (sqlite3.Error, OSError) as error:
                self._give_up(error)
                return None
        return row[1] if row is not None and _checksum(row[1]) == row[0] else None

    def put(self, key: str, data: bytes) -> None:
        """Keep a picture."""
        with self._lock:
            try:
                database = self._open()
                with database:
                    row = (key, time.time(), _checksum(data), data)
                    database.execute("INSERT OR REPLACE INTO picture VALUES (?, ?, ?, ?)", row)
                self._bytes += len(data)
                if self._bytes > self._max_bytes:
                    self._remove_oldest(database)
            except (sqlite3.Error, OSError) as error:
                self._give_up(error)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None

    def _open(self) -> sqlite3.Connection:
        if self._path is None:
            raise OSError("no file")
        if self._database is None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._path.touch(mode=0o600)
            database = sqlite3.connect(self._path, timeout=2, check_same_thread=False)
            try:
                database.execute("PRAGMA journal_mode = WAL")
                database.execute("PRAGMA synchronous = OFF")  # a lost thumbnail is made again
                database.execute(_SCHEMA)
                self._bytes = _stored_bytes(database)
            except sqlite3.Error:
                database.close()
                raise
            self._database = database
        return self._database

    def _remove_oldest(self, database: sqlite3.Connection) -> None:
        """Other servers add to the file as well, so count again first."""
        self._bytes = _stored_bytes(database)
        if self._bytes <= self._max_bytes:
            return
        with database:
            for key, size in database.execute(
                "SELECT key, length(data) FROM picture ORDER BY made"
            ).fetchall():
                if self._bytes <= _KEPT_SHARE * self._max_bytes:
                    break
                database.execute("DELETE FROM picture WHERE key = ?", [key])
                self._bytes -= size

    def _give_up(self, error: Exception) -> None:
        """A damaged file is removed, so that the next server starts anew; this one keeps nothing more."""
        if self._path is None:
            return
        log.warning("%s: thumbnails are not kept: %s", self._path, error)
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            with suppress(OSError):
                self._path.unlink()
        if self._database is not None:
            self._database.close()
            self._database = None
        self._path = None


def picture_key(path: Path, size: int) -> str:
    """What a picture is made of: the file as it is now, and the size.

    Raises:
        OSError: there is no such file.
    """
    status = containing_file(path).stat()
    parts = (str(path), status.st_mtime_ns, status.st_size, status.st_ino, size)
    return xxhash.xxh3_128_hexdigest("\0".join(map(str, parts)).encode(errors="surrogateescape"))


def _checksum(data: bytes) -> bytes:
    return xxhash.xxh3_64_digest(data)


def _stored_bytes(database: sqlite3.Connection) -> int:
    return int(database.execute("SELECT coalesce(sum(length(data)), 0) FROM picture").fetchone()[0])
