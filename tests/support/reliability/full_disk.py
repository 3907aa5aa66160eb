"""Commands on a disk that becomes full, or that nobody may write to."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from reliability.crash import Expected, changes, traced
from reliability.operations import Operation, Workshop
from reliability.tracing import Call

# On a full disk these fail; names can still be changed and removed.
NEED_SPACE = (
    "write",
    "pwrite64",
    "writev",
    "fallocate",
    "mkdir",
    "open",
    "openat",
    "sendfile",
    "copy_file_range",
)


@dataclass
class Full:
    """What became of a command on a disk without space.

    Attributes:
        operation: what was tried.
        tries: how often, the disk being full from another moment on.
        refused: how often it said so in one line.
        faults: what went wrong, one line each.
    """

    operation: str
    tries: int = 0
    refused: int = 0
    faults: list[str] = field(default_factory=list)


def fill(workshop: Workshop, operation: Operation, *, points: int = 5) -> Full:
    """Let the disk be full from some moment on; with space again, the command is repeated."""
    box, result = workshop.box, Full(operation.name)
    expected = Expected.of(workshop, operation)
    calls = changes(workshop, operation)
    needing = [call.number for call in calls if call.name in NEED_SPACE]
    parts = np.linspace(0, 1, points) if points > 1 else [0.5]
    places = {needing[round(part * (len(needing) - 1))] for part in parts}
    cases = [(place, errno.ENOSPC) for place in sorted(places)] + [(1, errno.EROFS)]
    for place, fault in cases:
        box.put(workshop.before(operation))
        outcome = traced(box, operation.words, partial(_answer, place=place, fault=fault))
        result.tries += 1
        result.refused += outcome.refused
        wrong = outcome.fault or expected.fault_after(box.take())
        if wrong:
            what = "read-only" if fault == errno.EROFS else f"full from {calls[place - 1]} on"
            result.faults.append(f"{what}: {wrong}")
    return result


def _answer(call: Call, place: int, fault: int) -> int | None:
    if fault == errno.EROFS:
        return None if call.name in ("fsync", "fdatasync", "syncfs", "sendto") else fault
    return fault if call.number >= place and call.name in NEED_SPACE else None


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[None]:
    """A disk of this many bytes in this place.

    Raises:
        PermissionError: one may not mount here.
    """
    options = f"size={size // 4096 * 4096 + 4096}"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PermissionError(done.stderr.strip())
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def fill_really(
    workshop: Workshop, operation: Operation, *, parts: tuple[float, ...] = (0.1, 0.5, 0.9)
) -> Full:
    """The same on a real disk that is too small by some part of what the command writes.

    Raises:
        PermissionError: one may not mount here.
    """
    box, result = workshop.box, Full(operation.name)
    before = workshop.before(operation)
    expected = Expected.of(workshop, operation)
    with small_disk(box.path, 1 << 30):
        box.put(before)
        used = _used(box.path)
        largest = used

        def visit(call: Call) -> None:
            nonlocal largest
            largest = max(largest, _used(box.path))

        traced(box, operation.words, visit)
    for part in parts:
        with small_disk(box.path, int(used + part * (largest - used))):
            box.put(before)
            outcome = box.run(*operation.words)
            after = box.take()
        result.tries += 1
        result.refused += outcome.refused
        wrong = outcome.fault or expected.fault_after(after)
        if wrong:
            result.faults.append(f"a disk with {part:.0%} of the space: {wrong}")
    return result


def _used(place: Path) -> int:
    found = os.statvfs(place)
    return (found.f_blocks - found.f_bfree) * found.f_frsize
