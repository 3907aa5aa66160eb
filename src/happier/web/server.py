"""Run the explorer: bind, serve, and shut down cleanly."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from happier.errors import MissingExtraError, OptionError
from happier.search.index import Index

try:
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise MissingExtraError("uvicorn", "web") from error

from happier.web.app import create_app
from happier.web.explorer import Explorer
from happier.web.guard import LOCAL_NAMES, Access, Limits

HEADER_SECONDS = 10.0
SHUTDOWN_SECONDS = 5
BACKLOG = 1024


class ImpatientProtocol(H11Protocol):
    """HTTP that closes a connection whose request line and headers do not arrive in time."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def data_received(self, data: bytes) -> None:
        """Start it again for the next request on the same connection."""
        waiting = self.cycle is None or self.cycle.response_complete
        if waiting and self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self._give_up)
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop it."""
        self._stop_clock()
        super().connection_lost(exc)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


def access_for(host: str, *, token: str | None, allow_hosts: Sequence[str] = ()) -> Access:
    """Who may ask a server that listens on ``host``: beyond this machine only who has the token.

    Raises:
        OptionError: a token that is too short to be one.
    """
    if token is not None and len(token) < 16:
        raise OptionError("a token must have at least 16 characters; leave it out to get a good one")
    named = frozenset(name.lower() for name in allow_hosts)
    if is_loopback(host):
        return Access(LOCAL_NAMES | named | {host.lower()}, token)
    own = frozenset() if host in ("", "0.0.0.0", "::") else frozenset({host.lower()})  # noqa: S104
    # On every address the server may be called by any name: then the token alone decides.
    hosts = LOCAL_NAMES | named | own if own or named else frozenset[str]()
    return Access(hosts, token or secrets.token_urlsafe(24))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class ExplorerServer:
    """A bound, not yet running server.

    Args:
        explorer: what it shows.
        host: address to listen on.
        port: 0 for any that is free.
        access: who may ask.
        limits: bounds.

    Raises:
        OptionError: the address is taken or not ours.
    """

    def __init__(
        self,
        explorer: Explorer,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        access: Access | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._access = access or access_for(host, token=None)
        self._socket = _bind(host, port)
        self.port = int(self._socket.getsockname()[1])
        shown = "127.0.0.1" if host in ("", "0.0.0.0") else f"[{host}]" if ":" in host else host  # noqa: S104
        self.address = f"http://{shown}:{self.port}"
        config = uvicorn.Config(
            create_app(explorer, access=self._access, limits=limits),
            http=ImpatientProtocol,
            ws="none",
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            backlog=BACKLOG,
        )
        self._server = uvicorn.Server(config)

    @property
    def link(self) -> str:
        """What to open in the browser, with the token where one is needed."""
        token = self._access.token
        return self.address + ("/?" + urlencode({"token": token}) if token else "/")

    def run(self) -> None:
        """Serve until Ctrl-C or a signal, then finish what is under way."""
        self._server.run(sockets=[self._socket])

    @contextmanager
    def running(self) -> Iterator[ExplorerServer]:
        """Serve from a thread while the block runs."""
        thread = threading.Thread(target=self.run, name="happier-serve", daemon=True)
        thread.start()
        try:
            while not self._server.started and thread.is_alive():
                thread.join(0.01)
            yield self
        finally:
            self._server.should_exit = True
            thread.join(SHUTDOWN_SECONDS + 5)


def open_explorer(
    index: Path | str, against: Path | str | None = None, *, images: Sequence[Path] = ()
) -> Explorer:
    """Read one or two indexes to explore, and load their models.

    Raises:
        SearchError: not an index, or two that do not fit together.
    """
    opened = Index.open(index)
    other = None if against is None else Index.open(against)
    explorer = Explorer(opened, other, images=images)
    for side in explorer.sides.values():
        if side.embeds:
            side.index.encoder()  # a broken model should fail here, not in the first search
    return explorer


def _bind(host: str, port: int) -> socket.socket:
    family: Any = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        # From here on who opens the printed address waits for the server instead of being refused.
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise OptionError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another --port"
        ) from error
    return bound
