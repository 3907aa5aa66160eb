"""Who may use the server: the host names it accepts, and the token it requires."""

from __future__ import annotations

import ipaddress
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from happier.errors import OptionError

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
SHORTEST_TOKEN = 16
# What a bearer token may hold (RFC 6750): it passes through headers, cookies and addresses unchanged.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


@dataclass(frozen=True)
class Access:
    """Who may use the server.

    Attributes:
        hosts: host names the server accepts, without port; empty allows any (behind a token only).
        token: secret that a request must include; None where only this machine has access.
    """

    hosts: frozenset[str] = LOCAL_NAMES
    token: str | None = None


def access_for(host: str, *, token: str | None, allow_hosts: Sequence[str] = ()) -> Access:
    """The access to a server that listens on ``host``: beyond this machine a token is required.

    Raises:
        OptionError: a token that is too short, or holds characters that no header can carry.
    """
    if token is not None:
        _check_token(token)
    named = frozenset(name.lower() for name in allow_hosts)
    if is_loopback(host):
        return Access(LOCAL_NAMES | named | {host.lower()}, token)
    own = frozenset() if host in ("", "0.0.0.0", "::") else frozenset({host.lower()})  # noqa: S104
    # Bound to all addresses, the server may be reached by any name: then only the token decides.
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


def _check_token(token: str) -> None:
    if not _TOKEN.fullmatch(token):
        raise OptionError(
            "a token may hold letters, digits and -._~+/ only, and = at its end; leave it out to get a "
            "random one"
        )
    if len(token) < SHORTEST_TOKEN:
        raise OptionError(
            f"a token must have at least {SHORTEST_TOKEN} characters; leave it out to get a random one"
        )
