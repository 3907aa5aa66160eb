"""Tokens: secrets that requests must include, each with a name, a role and an end."""

from __future__ import annotations

import hmac
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal

from happier.errors import OptionError, first_line
from happier.storage.regular_file import read_regular

SHORTEST_TOKEN = 16
# Of thousands of holders; a larger file is not one of tokens.
LARGEST_BYTES = 1 << 20
# What a bearer token may hold (RFC 6750): it passes through headers, cookies and addresses unchanged.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
Role = Literal["read", "write"]
_ROLES: tuple[Role, ...] = ("read", "write")


@dataclass(frozen=True)
class Token:
    """One token.

    Attributes:
        secret: what a request includes.
        name: of its holder; empty for the one token that all users of a server share.
        role: ``read``, or ``write`` for those who may change the index.
        expires: when it ends; None for never.
    """

    secret: str
    name: str = ""
    role: Role = "read"
    expires: datetime | None = None

    @property
    def expired(self) -> bool:
        """Whether it has ended."""
        return self.expires is not None and datetime.now(UTC) >= self.expires


def find_token(tokens: Sequence[Token], given: str) -> Token | None:
    """The valid token with this secret; each is compared, so that the time says nothing."""
    found = None
    for token in tokens:
        if hmac.compare_digest(given.encode(), token.secret.encode()) and not token.expired:
            found = token
    return found


def check_secret(secret: str, *, where: str = "a token") -> None:
    """Raises `OptionError` for a token that is too short, or holds characters that no header can carry."""
    if not _TOKEN.fullmatch(secret):
        raise OptionError(
            f"{where} may hold letters, digits and -._~+/ only, and = at its end; leave it out to get a "
            "random one"
        )
    if len(secret) < SHORTEST_TOKEN:
        raise OptionError(
            f"{where} must have at least {SHORTEST_TOKEN} characters; leave it out to get a random one"
        )


def read_tokens(path: Path) -> tuple[Token, ...]:
    """The tokens of a TOML file, one table for each holder.

        [anna]
        token = "..."
        role = "write"          # "read" where it is left out
        expires = 2027-01-31    # never where it is left out

    Raises:
        OptionError: the file cannot be read, or a table is wrong; the message names it.
    """
    try:
        tables = tomllib.loads(read_regular(path, largest=LARGEST_BYTES).decode())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else first_line(error)
        raise OptionError(f"cannot read the tokens in {path}: {reason}") from error
    tokens = tuple(_token(path, name, table) for name, table in tables.items())
    if not tokens:
        raise OptionError(f"{path} has no tokens; a token is a table [NAME] with token = '...'")
    if len({token.secret for token in tokens}) < len(tokens):
        raise OptionError(f"two holders in {path} have the same token")
    return tokens


def _token(path: Path, name: str, table: Any) -> Token:
    where = f"[{name}] in {path}"
    if not isinstance(table, dict) or not isinstance(table.get("token"), str):
        raise OptionError(f"{where} must be a table with token = '...'")
    unknown = sorted(set(table) - {"token", "role", "expires"})
    if unknown:
        raise OptionError(f"{where} has {unknown[0]!r}; it may have token, role and expires")
    check_secret(table["token"], where=f"the token of {where}")
    role = table.get("role", "read")
    if role not in _ROLES:
        raise OptionError(f"the role of {where} must be read or write, got {role!r}")
    return Token(table["token"], name, role, _end(where, table.get("expires")))


def _end(where: str, value: Any) -> datetime | None:
    if value is None:
        return None
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    raise OptionError(f"expires of {where} must be a date such as 2027-01-31, got {value!r}")
