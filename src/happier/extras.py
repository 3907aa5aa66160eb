"""Optional dependencies: a missing one becomes an error that names the extra to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from happier.errors import MissingExtraError

# Packages that nearly everything of an extra needs; benchmarks compare with what is installed.
NEEDED: Final = {
    "data": ("pandas", "PIL"),
    "train": ("pandas", "hydra", "lightning", "timm"),
    "search": ("pandas", "timm", "faiss"),
    "pgvector": ("pandas", "timm", "faiss", "psycopg", "pgvector"),
    "report": ("pandas", "timm", "jinja2", "matplotlib"),
    "web": ("pandas", "timm", "faiss", "fastapi", "uvicorn"),
    "client": ("httpx",),
    "loggers": ("lightning", "mlflow", "wandb"),
    "bench": (),
}


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Raise `MissingExtraError` if a package that is imported inside is not installed.

    The outermost use decides which extra is named: a command that searches needs all of ``search``, although
    the first package that it misses belongs to ``data``. But an extra that lacks the package does not replace
    one that has it: an option may need more than its command.

    Args:
        extra: name of the extra that brings the packages, or several: ``"report,search"``.

    >>> with needs_extra("search"):
    ...     import gone
    Traceback (most recent call last):
        ...
    happier.errors.MissingExtraError: this needs the package 'gone': pip install 'happier-retrieval[search]'
    """
    try:
        yield
    except MissingExtraError as error:
        if _brings(error.extra, error.package) and not _brings(extra, error.package):
            raise
        raise MissingExtraError(error.package, extra) from error
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "happier"):
            raise
        raise MissingExtraError(package, extra) from error


def _brings(extra: str, package: str) -> bool:
    return any(package in NEEDED.get(name, ()) for name in extra.split(","))


def check_extra(extra: str) -> None:
    """Raise `MissingExtraError` if an extra is not installed: before hours of work, not after them.

    Args:
        extra: name of the extra, or several: ``"report,search"``.
    """
    for package in (package for name in extra.split(",") for package in NEEDED[name]):
        if find_spec(package) is None:
            raise MissingExtraError(package, extra)
