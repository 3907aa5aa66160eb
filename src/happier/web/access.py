"""Who may use the server: the host names it accepts, and the tokens it requires."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from happier.web.tokens import Token, check_secret, find_token, read_tokens

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass
class Access:
    """Who may use the server.

    Attributes:
        hosts: host names the server accepts, without port; empty allows any (behind a token only).
        token: secret that all users share; None where only this machine has access, or where each has one.
        token_file: where the tokens of each are read from.
        tokens: those of the file.
    """

    hosts: frozenset[str] = LOCAL_NAMES
    token: str | None = None
    token_file: Path | None = None
    tokens: tuple[Token, ...] = ()

    @property
    def required(self) -> bool:
        """Whether a request must include a token."""
        return self.token is not None or self.token_file is not None

    def find(self, given: str) -> Token | None:
        """The valid token with this secret."""
        shared = () if self.token is None else (Token(self.token),)
        return find_token((*shared, *self.tokens), given)

    def reload(self) -> None:
        """Read the file of tokens again.

        Raises:
            OptionError: it cannot be read; the tokens before stay valid.
        """
        if self.token_file is not None:
            self.tokens = read_tokens(self.token_file)


def access_for(
    host: str, *, token: str | None, allow_hosts: Sequence[str] = (), token_file: Path | None = None
) -> Access:
    """The access to a server that listens on ``host``: beyond this machine a token is required.

    Raises:
        OptionError: a token that is too short, or holds characters that no header can carry; or a file of
            tokens that cannot be read.
    """
    if token is not None:
        check_secret(token)
    tokens = () if token_file is None else read_tokens(token_file)
    named = frozenset(name.lower() for name in allow_hosts)
    if is_loopback(host):
        return Access(LOCAL_NAMES | named | {host.lower()}, token, token_file, tokens)
    own = frozenset() if host in ("", "0.0.0.0", "::") else frozenset({host.lower()})  # noqa: S104
    # Bound to all addresses, the server may be reached by any name: then only the token decides.
    hosts = LOCAL_NAMES | named | own if own or named else frozenset[str]()
    if token is None and token_file is None:
        token = secrets.token_urlsafe(24)
    return Access(hosts, token, token_file, tokens)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
