"""Bounds of the server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of the server; a client is an address.

    Attributes:
        upload_bytes: of a request's body.
        body_bytes: of all bodies held in memory at once; one client may hold half of them.
        body_seconds: in which a body must have arrived.
        request_seconds: in which an answer must be ready.
        write_seconds: for which a client may leave an answer unread before its connection is closed.
        requests: under way at once; more are answered with 429.
        client_requests: of one client under way at once.
        client_connections: of one client open at once.
        workers: threads that search, embed and scale images.
        refresh_seconds: after which a change of the index is seen.
    """

    upload_bytes: int = 20 << 20
    body_bytes: int = 256 << 20
    body_seconds: float = 20.0
    request_seconds: float = 60.0
    write_seconds: float = 20.0
    requests: int = 256
    client_requests: int = 128
    client_connections: int = 256
    workers: int = 4
    refresh_seconds: float = 0.5
