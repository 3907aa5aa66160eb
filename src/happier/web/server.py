"""Run the explorer: bind, serve, and shut down cleanly."""

from __future__ import annotations

import gc
import logging
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from PIL import Image

from happier.curation.corrections import CorrectionsFile
from happier.data import cache_folder
from happier.errors import HappierError, OptionError, first_line
from happier.extras import needs_extra
from happier.search.index import Index

with needs_extra("web"):
    import uvicorn

from happier.web.access import Access, access_for, is_loopback
from happier.web.app import create_app
from happier.web.connection_limits import protocol_for
from happier.web.explorer import Explorer
from happier.web.limits import Limits
from happier.web.metrics import ServerMetrics
from happier.web.thumbnails import ThumbnailStore

__all__ = [
    "ExplorerServer",
    "ListeningAddress",
    "Tls",
    "access_for",
    "freeze_loaded_code",
    "is_loopback",
    "open_explorer",
    "warn_of_unreadable_images",
]

log = logging.getLogger("happier.web")
SHUTDOWN_SECONDS = 5
BACKLOG = 1024
SWITCH_SECONDS = 0.001


@dataclass(frozen=True)
class Tls:
    """Files of the server's certificate and its key."""

    certificate: Path
    key: Path

    def check(self) -> None:
        """Raises `OptionError` where they cannot be used."""
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            reason = error.strerror or first_line(error)
            raise OptionError(f"cannot use {self.certificate} with {self.key}: {reason}") from error


class ListeningAddress:
    """A bound address, which processes may share.

    Args:
        host: address to listen on.
        port: 0 for any that is free.
        tls: the certificate, where the server speaks TLS itself.
        root_path: path that the server is reached under.

    Raises:
        OptionError: the address is in use or not ours.
    """

    def __init__(
        self, host: str = "127.0.0.1", port: int = 0, *, tls: Tls | None = None, root_path: str = ""
    ) -> None:
        if tls is not None:
            tls.check()
        self.socket, self.tls = _bind(host, port), tls
        self.port = int(self.socket.getsockname()[1])
        shown = "127.0.0.1" if host in ("", "0.0.0.0") else f"[{host}]" if ":" in host else host  # noqa: S104
        self.address = f"http{'s' if tls else ''}://{shown}:{self.port}{root_path}"

    def link(self, token: str | None) -> str:
        """What to open in the browser, with the token where all users share one."""
        return self.address + ("/?" + urlencode({"token": token}) if token else "/")


class ExplorerServer:
    """A bound, not yet running server.

    Args:
        explorer: what it shows.
        host: address to listen on.
        port: 0 for any that is free.
        access: who may use it.
        limits: bounds.
        listening: the address, where it is bound already.
        metrics: what it counts in.

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
        listening: ListeningAddress | None = None,
        metrics: ServerMetrics | None = None,
    ) -> None:
        self._access = access or access_for(host, token=None)
        self._explorer = explorer
        limits, metrics = limits or Limits(), metrics or ServerMetrics()
        self._listening = listening or ListeningAddress(host, port, root_path=explorer.root_path)
        self.port, self.address = self._listening.port, self._listening.address
        tls = self._listening.tls
        self._config = uvicorn.Config(
            create_app(explorer, access=self._access, limits=limits, metrics=metrics),
            http=protocol_for(limits, metrics),
            ws="none",
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            backlog=BACKLOG,
            ssl_certfile=None if tls is None else tls.certificate,
            ssl_keyfile=None if tls is None else tls.key,
        )
        self._server = uvicorn.Server(self._config)

    @property
    def link(self) -> str:
        """What to open in the browser, with the token where all users share one."""
        return self._listening.link(self._access.token)

    def run(self) -> None:
        """Serve until Ctrl-C or a signal, then finish what is under way; SIGHUP is `reload`."""
        # A thread that computes must hand over to the event loop soon: there are more requests than threads.
        sys.setswitchinterval(SWITCH_SECONDS)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGHUP, lambda *_: threading.Thread(target=self.reload).start())
        self._server.run(sockets=[self._listening.socket])

    def reload(self) -> None:
        """Read tokens, certificate and index again; what cannot be read stays as it was."""
        try:
            self._access.reload()
            if self._listening.tls is not None and self._config.ssl is not None:
                self._listening.tls.check()
                self._config.ssl.load_cert_chain(self._listening.tls.certificate, self._listening.tls.key)
            self._explorer.refresh()
            log.info("reloaded")
        except HappierError as error:
            log.warning("not reloaded: %s", error)

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


def freeze_loaded_code() -> None:
    """Leave what is loaded by now out of garbage collections.

    A full one looks at half a million objects of torch and others: 0.3 s in which no thread runs, and again
    when the process ends.
    """
    gc.freeze()


def open_explorer(
    index: Path | str,
    against: Path | str | Sequence[Path | str] = (),
    *,
    images: Sequence[Path] = (),
    corrections: Path | None = None,
    uploads: Path | None = None,
    writes: Path | None = None,
    root_path: str = "",
) -> Explorer:
    """Read up to four indexes to explore, and load their models; thumbnails are kept in the user's cache.

    Args:
        index: what to explore.
        against: another index of the same catalogue, or several.
        images: further folders that images may be in.
        corrections: the CSV that decisions about suspects go to; without it the server only reads.
        uploads: folder in which processes share uploads.
        writes: folder for images that are added over the network.
        root_path: path that the server's addresses begin with.

    Raises:
        OptionError: more than four indexes.
        SearchError: not an index, or two that do not fit together.
        DataError: the file is not one of corrections.
    """
    decisions = None if corrections is None else CorrectionsFile(corrections)
    if decisions is not None and decisions.path.exists():
        decisions.read()  # a file of something else should fail here, not at the first decision
    others = [against] if isinstance(against, Path | str) else against
    explorer = Explorer(
        Index.open(index),
        [Index.open(other) for other in others],
        images=images,
        corrections=decisions,
        thumbnails=ThumbnailStore(cache_folder() / "thumbnails" / "thumbnails.sqlite"),
        uploads=uploads,
        writes=writes,
        root_path=root_path,
    )
    for model in explorer.models.values():
        if model.embeds:
            # A broken model should fail here, not in the first search; and the first search should not wait.
            model.embedder.embed(Image.new("RGB", (64, 64)))
    return explorer


def warn_of_unreadable_images(explorer: Explorer) -> None:
    """Log why an index's images cannot be shown: else its page has frames without pictures, and no reason."""
    for model in explorer.models.values():
        unreadable, tried, reason = model.unreadable_images()
        if unreadable:
            log.warning(
                "%s: %d of %d images tried cannot be shown: %s", model.name, unreadable, tried, reason
            )


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
        other = "--host" if isinstance(error, socket.gaierror) else "--port"
        raise OptionError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another {other}"
        ) from error
    return bound
