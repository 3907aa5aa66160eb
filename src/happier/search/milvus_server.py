"""Which Milvus server, and who may see the token.

``MILVUS_TOKEN`` is sent only to servers that the user named: by ``--uri`` in this command (`allow_server`)
or by ``MILVUS_URI`` in the environment (several are separated by commas). The address in an index's own
files is not enough: an index from elsewhere could name any server.
"""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from happier.errors import EngineUnavailableError, OptionError, SearchError
from happier.extras import needs_extra
from happier.storage.disk_errors import disk_errors

with needs_extra("search"):
    from pymilvus import MilvusClient
    from pymilvus.exceptions import MilvusException

_SCHEMES = ("http", "https", "tcp")
_DEFAULT_PORT = 19530
# What gRPC takes for "never", in milliseconds.
_NEVER = 2**31 - 1
_allowed: set[tuple[str, str, int]] = set()


def is_local(uri: str) -> bool:
    """Whether it names a local file of milvus-lite."""
    return "://" not in uri


def check_uri(uri: str) -> str:
    """An address or an absolute path.

    Raises:
        OptionError: neither a server's address nor a name of a local file.
    """
    if not uri or not uri.isprintable():
        raise OptionError(
            "engine 'milvus' needs a uri: --uri catalogue.db (a local file) or --uri http://HOST:19530"
        )
    if not is_local(uri):
        _address(uri)
        return uri
    path = Path(uri).absolute()
    if path.suffix != ".db":
        raise OptionError(f"a local Milvus file is named NAME.db, got {uri!r}")
    with disk_errors(path, error=OptionError):
        if path.exists() and not path.is_dir():
            raise OptionError(f"{path} is not a file of milvus-lite, which keeps a folder of that name")
    return str(path)


def allow_server(uri: str) -> None:
    """The user named this server: it may get the token, in this process."""
    if not is_local(uri):
        _allowed.add(_address(uri))


def _address(uri: str) -> tuple[str, str, int]:
    """Scheme, host and port.

    Raises:
        OptionError: not the address of a Milvus server.
    """
    try:
        parts = urlsplit(uri)
        scheme, host, port = parts.scheme.lower(), parts.hostname or "", parts.port or _DEFAULT_PORT
    except ValueError as error:
        raise OptionError(f"{uri!r} is not the address of a server: {error}") from None
    if scheme not in _SCHEMES or not host:
        raise OptionError(f"a Milvus server is given as http://HOST:19530, got {uri!r}")
    if parts.username is not None or parts.password is not None:
        raise OptionError("an address is stored with the index: give user and password in MILVUS_TOKEN")
    return scheme, host, port


def _token(uri: str) -> str:
    """The token for a server; empty where there is none.

    Raises:
        SearchError: there is a token, and the user did not name this server.
        OptionError: the token or ``MILVUS_URI`` is malformed.
    """
    token = os.environ.get("MILVUS_TOKEN", "")
    if not token or is_local(uri):
        return ""
    if not token.strip() or not token.isprintable():
        raise OptionError("MILVUS_TOKEN must be one line of printable text, such as user:password")
    named = [one.strip() for one in os.environ.get("MILVUS_URI", "").split(",")]
    if _address(uri) not in _allowed | {_address(one) for one in named if one and not is_local(one)}:
        raise SearchError(
            f"the index names the Milvus server {uri}; MILVUS_TOKEN is sent only to servers that you name: "
            f"set MILVUS_URI={uri} if you trust it"
        )
    return token


def connect(uri: str) -> Any:
    """A client of a server, or of a local file.

    Raises:
        SearchError: it cannot be reached, or may not get the token.
    """
    # Both log every failure with a traceback before they raise it; our error says it once.
    for name in ("pymilvus", "milvus_lite"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # milvus-lite hangs up on a client that asks every few seconds, while it loads, whether it is still there.
    patience = {"grpc.keepalive_time_ms": _NEVER} if is_local(uri) else {}
    token = _token(uri)
    try:
        return MilvusClient(uri=uri, token=token, timeout=30, grpc_options=patience)
    except (MilvusException, OSError, ValueError) as error:
        if is_local(uri):
            raise SearchError(f"cannot open the Milvus file {uri}: {_why_not(Path(uri))}") from error
        reason = getattr(error, "message", str(error))
        raise EngineUnavailableError(f"cannot connect to Milvus at {uri}: {reason}") from error


def _why_not(path: Path) -> str:
    """Why milvus-lite did not open a folder; it does not say."""
    try:
        with (path / "LOCK").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "another process is using it, and milvus-lite allows one at a time; try again later"
    except OSError as error:
        return f"{error.strerror}; choose a place that you may write to"
    return "it is damaged; build the index again"
