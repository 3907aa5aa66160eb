"""How functions are compiled, and whether numba keeps them for the next process.

The cache is beside the package, under the home directory, or in ``NUMBA_CACHE_DIR``. Where none is writable,
as in some containers, numba raises an error for a function with ``cache=True``; here every process then
compiles it again, and warns once.

Numba keeps a function until its own file changes, but compiles in what it calls from others. `jit` therefore
ties each function to all of `COMPILED`.
"""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable
from importlib import resources
from typing import Any

import numba

log = logging.getLogger(__name__)

COMPILED = (
    "bench/evaluation.py",
    "evaluation/inputs.py",
    "losses/_kernel.py",
    "losses/_kernel_problem.py",
    "losses/_sum_kernel.py",
    "losses/objective.py",
    "metrics/graded.py",
    "metrics/kernel.py",
)
"""The files with compiled functions, or with constants for them; when one changes, all are compiled again."""


def jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit`` with these options and, where possible, a cache that notices a change in `COMPILED`."""

    def decorate(function: Callable[..., Any]) -> Any:
        compiled = numba.njit(cache=CACHE, **options)(function)
        if CACHE:
            compiled._cache._cache_file._source_stamp = _stamp()
        return compiled

    return decorate


@functools.cache
def _stamp() -> str:
    package = resources.files("happier")
    return hashlib.sha256(b"".join(package.joinpath(name).read_bytes() for name in COMPILED)).hexdigest()


def _find_place() -> bool:
    try:
        numba.njit(cache=True)(_probe)  # only looks for the folder; nothing is compiled before a call
    except RuntimeError:
        log.warning(
            "compiled code cannot be cached, so each process compiles it again: neither the package's folder "
            "nor the home directory is writable; set NUMBA_CACHE_DIR to a writable folder"
        )
        return False
    return True


def _probe() -> None:
    """Represents the functions to cache."""


CACHE = _find_place()
"""Whether numba keeps what it compiles."""
