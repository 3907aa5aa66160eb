"""Whether numba can cache what it compiles for the next process.

The cache is beside the package, under the home directory, or in ``NUMBA_CACHE_DIR``. Where none is writable,
as in some containers, numba raises an error for a function with ``cache=True``; here every process then
compiles it again, and warns once.
"""

from __future__ import annotations

import logging

import numba

log = logging.getLogger(__name__)


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
"""For ``numba.njit(cache=CACHE)``."""
