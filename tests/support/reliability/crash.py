"""Kill a command before each of its changes to a file, and see what the next command finds.

A kill leaves on the disk what is there at that moment. So one run, stopped at each change for a snapshot,
gives the outcome of a kill at every one of them.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from reliability.box import Box, Outcome, Snapshot, redirect, run_words
from reliability.operations import Operation, Workshop
from reliability.tracing import SOCKET, Call, memory_of, trace

# Where what is on disk changes its meaning: always looked at.
TURNS = ("rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "link", "linkat", "mkdir")


@dataclass
class Sweep:
    """What became of an operation that was killed everywhere.

    Attributes:
        points: changes before which it was killed.
        states: different contents of the disk that this left; where only bytes in scratch folders differ,
            which nobody reads, they count as one.
        checked: how many of those were opened and gone on with.
        faults: what went wrong, one line each.
    """

    operation: str
    points: int = 0
    states: int = 0
    checked: int = 0
    faults: list[str] = field(default_factory=list)


def traced(box: Box, words: tuple[object, ...], visit: Callable[[Call], object]) -> Outcome:
    """Run a command and call ``visit`` before each of its changes in the box, and each word to a database."""
    folder = Path(tempfile.mkdtemp(dir=box.root))

    def work() -> None:
        redirect(folder)
        os.chdir(box.root)
        run_words(words)

    code = trace(work, (str(box.path), *([SOCKET] if box.database else [])), visit)
    return Outcome(
        code, (folder / "out").read_text(errors="replace"), (folder / "err").read_text(errors="replace")
    )


def snapshots(box: Box, words: tuple[object, ...]) -> tuple[Outcome, list[tuple[Call, Snapshot]]]:
    """What is in the box before each change that a command makes, and with the first half of each write."""
    found: list[tuple[Call, Snapshot]] = []

    def visit(call: Call) -> None:
        found.append((call, box.take()))
        if half := _half_of(call):
            found.append((call, box.take(torn=half)))

    return traced(box, words, visit), found


def _half_of(call: Call) -> tuple[str, int, bytes] | None:
    if call.name not in ("write", "pwrite64") or call.arguments[2] < 2:
        return None
    piece = memory_of(call, call.arguments[1], min(call.arguments[2] // 2, 1 << 20))
    if call.name == "pwrite64":
        return call.path, call.arguments[3], piece
    text = Path(f"/proc/{call.thread}/fdinfo/{call.arguments[0]}").read_text()
    flags = int(_field(text, "flags"), 8)
    if flags & os.O_APPEND:
        return call.path, Path(call.path).stat().st_size, piece
    return call.path, int(_field(text, "pos")), piece


def _field(text: str, name: str) -> str:
    found = re.search(rf"{name}:\s+(\d+)", text)
    assert found is not None
    return found[1]


def changes(workshop: Workshop, operation: Operation) -> list[Call]:
    """Every change that an operation makes; found once."""
    key = (operation.name, operation.before)
    if key not in workshop.changes:
        calls: list[Call] = []
        workshop.box.put(workshop.before(operation))
        traced(workshop.box, operation.words, calls.append)
        workshop.changes[key] = calls
    return workshop.changes[key]


def sweep(workshop: Workshop, operation: Operation, *, limit: int | None = None) -> Sweep:
    """Kill an operation at each of its changes; afterwards look, and run the command again.

    Args:
        workshop: where.
        operation: what.
        limit: look at about this many of the states that this leaves, spread over the operation.
    """
    box, result = workshop.box, Sweep(operation.name)
    before = workshop.before(operation)
    expected = Expected.of(workshop, operation)
    box.put(before)
    outcome, seen = snapshots(box, operation.words)
    calls = {call.number: call for call, _ in seen}
    workshop.changes[(operation.name, operation.before)] = list(calls.values())
    if outcome.code:
        result.faults.append(f"fails without a kill: {outcome.fault or outcome.last_line}")
        return result
    states: dict[str, tuple[Call, Snapshot]] = {}
    for call, snapshot in seen:
        states.setdefault(snapshot.visible, (call, snapshot))
    result.points, result.states = len(seen), len(states)
    for call, snapshot in _some(list(states.values()), limit):
        result.checked += 1
        fault = expected.fault_after(snapshot)
        if fault:
            result.faults.append(f"killed before {call}: {fault}")
    return result


def _some(states: list[tuple[Call, Snapshot]], limit: int | None) -> list[tuple[Call, Snapshot]]:
    if limit is None or len(states) <= limit:
        return states
    turns = [state for state in states if state[0].name in TURNS]
    pool = turns if len(turns) >= limit else states
    return [pool[round(position * (len(pool) - 1) / (limit - 1))] for position in range(limit)]


@dataclass(frozen=True)
class Expected:
    """What may be seen after a kill, and what the command must lead to when it is given again."""

    workshop: Workshop
    operation: Operation
    states: tuple[object, ...]
    names: tuple[Counter[str], ...]
    refused: bool
    end: object

    @classmethod
    def of(cls, workshop: Workshop, operation: Operation) -> Expected:
        """From a run without a kill, and a second one after it; made once."""
        key = (operation.name, operation.before)
        if key not in workshop.expected:
            workshop.expected[key] = cls._found(workshop, operation)
        return workshop.expected[key]

    @classmethod
    def _found(cls, workshop: Workshop, operation: Operation) -> Expected:
        box, before = workshop.box, workshop.before(operation)
        box.put(before)
        old = box.call(operation.observe)
        box.put(before)
        outcome = box.run(*operation.words)
        assert outcome.code == 0, (operation.name, outcome)
        after = box.take()
        new = box.call(operation.observe)
        box.put(after)
        outcome = box.run(*operation.rerun)
        assert outcome.code == 0 or outcome.refused, outcome
        names = (after.names, box.take().names)
        return cls(workshop, operation, (old, new), names, outcome.refused, box.call(operation.observe))

    def fault_after(self, snapshot: Snapshot) -> str:
        """What is wrong with a state that a kill left; empty where nothing is."""
        box = self.workshop.box
        box.put(snapshot)
        seen = box.call(self.operation.observe)
        if not self.operation.any_state and seen not in self.states:
            return f"neither the old state nor the new: {seen}"
        if self.operation.any_state and str(seen).startswith("fault: ") and seen not in self.states:
            return str(seen)
        box.put(snapshot)
        outcome = box.run(*self.operation.rerun)
        if outcome.fault:
            return f"then {outcome.fault}"
        if outcome.refused and not (self.refused and seen == self.states[1]):
            return f"then refused: {outcome.last_line}"
        # A command that refuses because all is done need not clean up.
        left = box.take().names - (self.names[0] | self.names[1])
        if left and not outcome.refused:
            return f"leftovers: {sorted(left)}"
        end = box.call(self.operation.observe)
        return "" if end in (self.end, self.states[1]) else f"then another end: {end}"
