"""Run the explorer: bind, serve, and shut down cleanly."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from happier.curation.corrections import CorrectionsFile
from happier.errors import OptionError
from happier.extras import needs_extra
from happier.search.index import Index

with needs_extra("web"):
    import uvicorn

from happier.web.access import Access, access_for, is_loopback
from happier.web.app import create_app
from happier.web.explorer import Explorer
from happier.web.http_timeouts import protocol_for
from happier.web.limits import Limits

__all__ = ["ExplorerServer", "access_for", "is_loopback", "open_explorer"]

SHUTDOWN_SECONDS = 5
BACKLOG = 1024


class ExplorerServer:
    """A bound, not yet running server.

    Args:
        explorer: what it shows.
        host: address to listen on.
        port: 0 for any that is free.
        access: who may use it.
        limits: bounds.

    Raises:
        OptionError: the address is in use or not ours.
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
        limits = limits or Limits()
        self._socket = _bind(host, port)
        self.port = int(self._socket.getsockname()[1])
        shown = "127.0.0.1" if host in ("", "0.0.0.0") else f"[{host}]" if ":" in host else host  # noqa: S104
        self.address = f"http://{shown}:{self.port}"
        config = uvicorn.Config(
            create_app(explorer, access=self._access, limits=limits),
            http=protocol_for(limits),
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
    index: Path | str,
    against: Path | str | None = None,
    *,
    images: Sequence[Path] = (),
    corrections: Path | None = None,
) -> Explorer:
    """Read one or two indexes to explore, and load their models.

    Args:
        index: what to explore.
        against: a second index of the same catalogue.
        images: further folders that images may be in.
        corrections: the CSV that decisions about suspects go to; without it the server only reads.

    Raises:
        SearchError: not an index, or two that do not fit together.
        DataError: the file is not one of corrections.
    """
    decisions = None if corrections is None else CorrectionsFile(corrections)
    if decisions is not None and decisions.path.exists():
        decisions.read()  # a file of something else should fail here, not at the first decision
    opened = Index.open(index)
    other = None if against is None else Index.open(against)
    explorer = Explorer(opened, other, images=images, corrections=decisions)
    for model in explorer.models.values():
        if model.embeds:
            model.index.encoder()  # a broken model should fail here, not in the first search
    return explorer


def _bind(host: str, port: int) -> socket.socket:
    family: Any = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        # From here on a client that opens the printed address waits for the server instead of being refused.
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise OptionError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another --port"
        ) from error
    return bound
