"""Whether numba can keep what it compiles for the next process.

It keeps it beside the package, under the home directory, or in ``NUMBA_CACHE_DIR``. Where none of them can be
written, as in some containers, numba refuses to define a function that wants to be kept; here it is then
compiled by every process anew, and told once.
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
            "compiled code cannot be kept, so each process compiles it again: neither the package's folder "
            "nor the home directory can be written; set NUMBA_CACHE_DIR to a folder that can"
        )
        return False
    return True


def _probe() -> None:
    """Stands for the functions that are to be kept."""


KEEP = _find_place()
"""For ``numba.njit(cache=KEEP)``."""
