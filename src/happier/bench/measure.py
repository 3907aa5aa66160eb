"""How the benchmarks measure: CPU time, because machines are shared, and the high-water mark of memory."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def cpu_seconds(step: Callable[[], Any], *, least: int = 2, budget: float = 2.0) -> float:
    """Best CPU time of at least ``least`` runs, more while they fit into ``budget`` seconds."""
    best, spent, runs = float("inf"), 0.0, 0
    while runs < least or (spent < budget and runs < 200):
        start = time.process_time()
        step()
        used = time.process_time() - start
        best, spent, runs = min(best, used), spent + used, runs + 1
        if used > 4:  # long enough to be steady
            break
    return best


def alternating_cpu_seconds(steps: Sequence[Callable[[], Any]], *, rounds: int = 3) -> list[float]:
    """Best CPU time of each step, run in turns: other load on the machine then slows all of them alike."""
    best = [float("inf")] * len(steps)
    for _ in range(rounds):
        for i, step in enumerate(steps):
            start = time.process_time()
            step()
            best[i] = min(best[i], time.process_time() - start)
    return best


def wall_seconds(step: Callable[[], Any], *, least: int = 2) -> float:
    """Best wall-clock time of ``least`` runs: for what runs on several cores."""
    best = float("inf")
    for _ in range(least):
        start = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - start)
    return best


def peak_mebibytes(step: Callable[[], Any]) -> float | None:
    """Peak resident memory of one run beyond what was resident before it; Linux only."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    # Blocks that go back to the system when freed, so that each run shows its own; large heaps again after.
    libc.mallopt(_M_MMAP_THRESHOLD, 1 << 16)
    libc.malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
        before = _status("VmRSS")
        step()
        return max(0.0, (_status("VmHWM") - before) / 1024)
    except OSError:
        return None
    finally:
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 25)
        libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30)


def _status(key: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1])
