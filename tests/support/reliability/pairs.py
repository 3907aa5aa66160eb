"""Two commands at once on the same target: the second starts while the first stands still inside its work."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from reliability.box import Outcome, Started, run_words, value_or_error
from reliability.crash import TURNS, changes, traced
from reliability.operations import ENGINES, Operation, Workshop
from reliability.tracing import Call

# A second command that neither ends nor says that it waits goes on beside the first after this many seconds.
PATIENCE = 30
# The second command is started at this many places inside the first.
POINTS = 3


@dataclass
class Pairs:
    """What became of two commands on one target.

    Attributes:
        target: what both change.
        possible: ordered pairs that there are.
        pairs: those that were tried.
        meetings: how often one was started inside the other.
        refused: in how many of them one refused.
        faults: what went wrong, one line each.
    """

    target: str
    possible: int = 0
    pairs: int = 0
    meetings: int = 0
    refused: int = 0
    faults: list[str] = field(default_factory=list)


def sets(workshop: Workshop) -> dict[str, list[Operation]]:
    """Operations on each target, all from the same state."""
    have = workshop.operations
    grouped: dict[str, list[Operation]] = {"manifest": [], "cache": [], "run": []}
    imported, split = have["import"], have["split"]
    base = split.before
    grouped["manifest"] = [
        _from(imported, base),
        Operation("import of another", imported.before[0], imported.observe, base),
        split,
        Operation("split by another seed", base[-1], split.observe, base),
    ]
    grouped["cache"] = [have["fetch"], have["fetch with validation"]]
    trained = have["embed"].before
    other = have["embed over another"].before[-1]
    grouped["run"] = [
        have["embed"],
        Operation("embed of others", other, have["embed"].observe, trained),
        have["evaluate"],
        have["evaluate into files"],
        _from(have["report"], trained),
        have["export"],
        _from(have["index build, flat"], trained),
        have["suspects"],
        Operation("train further", workshop.train_words(epochs=3), have["train"].observe, trained),
    ]
    others = (*have["features"].words[:-1], "train")
    grouped["features"] = [
        have["features"],
        Operation("features of others", others, have["features"].observe, trained),
    ]
    decide, apply = have["decide"], have["apply"]
    grouped["corrections"] = [
        _from(decide, apply.before),
        Operation("decide another", workshop.decision(2, "k3/i3"), decide.observe, apply.before),
        Operation("decide otherwise", workshop.decision(1, "k0"), decide.observe, apply.before),
        apply,
    ]
    shown = have["thumbnails"]
    more = (*shown.words[:-1], "?_3_1.png")
    grouped["thumbnails"] = [shown, Operation("other thumbnails", more, shown.observe, shown.before)]
    fit = have["fit"]
    grouped["fit"] = [fit, Operation("fit of others", fit.before[-1], fit.observe, fit.before)]
    for engine in ENGINES:
        first = have[f"unindex, {engine}"].before
        grouped[f"index, {engine}"] = [
            have[f"index --add, {engine}"],
            have[f"unindex, {engine}"],
            have[f"index --overwrite, {engine}"],
            _from(have[f"index build, {engine}"], first),
        ]
    grouped["index, flat"].append(have["add over the network"])
    return grouped


def _from(operation: Operation, before: tuple[tuple[object, ...], ...]) -> Operation:
    return Operation(operation.name, operation.words, operation.observe, before)


def meet(workshop: Workshop, target: str, operations: list[Operation], *, most: int | None = None) -> Pairs:
    """Every operation beside every other and beside itself, both orders.

    Args:
        workshop: where.
        target: its name.
        operations: all from one state.
        most: about this many meetings, each operation being the first and the second in some; None for all:
            every pair, and `POINTS` places inside the first at which the second is started.
    """
    size = len(operations)
    result = Pairs(target, possible=size**2)
    shifts = range(size) if most is None else range(1, 1 + min(size, max(1, round(most / size))))
    for shift, start in product(shifts, range(size)):
        first, second = operations[start], operations[(start + shift) % size]
        result.pairs += 1
        places = _places(workshop, first)
        if most is not None:
            places = places[(start + shift) % len(places) :][:1] if places else []
        _meet(workshop, first, second, places, result)
    return result


def meet_while_training(workshop: Workshop, *, most: int | None = None) -> Pairs:
    """A training run beside a second one of the same run, and beside every command that reads it."""
    have, result = workshop.operations, Pairs("run in training")
    train = have["train"]
    workshop.box.put(workshop.before(train))
    workshop.box.run(*train.words)
    end = workshop.box.call(train.observe)
    names = ("train", "embed", "evaluate", "report", "export", "index build, flat")
    result.possible = len(names)
    places = _places(workshop, train)
    for number, second in enumerate(_from(have[name], ()) for name in names[:most]):
        result.pairs += 1
        for place in places if most is None else [places[number % len(places)]]:
            result.meetings += 1
            workshop.box.put(workshop.before(train))
            one, two = together(workshop, train, second, place)
            result.refused += one.refused or two.refused
            fault = one.fault or two.fault
            if not fault and one.refused:
                fault = f"the first refused: {one.last_line}"
            if not fault and workshop.box.call(train.observe) != end:
                fault = "another end of the training"
            if fault:
                result.faults.append(f"train, {second.name} before its {place}th change: {fault}")
    return result


def _meet(workshop: Workshop, first: Operation, second: Operation, places: list[int], result: Pairs) -> None:
    box, before = workshop.box, workshop.before(first)
    for place in places:
        result.meetings += 1
        box.put(before)
        outcomes = together(workshop, first, second, place)
        seen = _look(workshop, first, second)
        fault = next((outcome.fault for outcome in outcomes if outcome.fault), "")
        refused = tuple(outcome.refused for outcome in outcomes)
        result.refused += any(refused)
        orders = (0, 1), (1, 0), (0,), (1,)
        turns = (_in_turn(workshop, first, second, order) for order in orders)
        if not fault and not any(turn.explains(seen, outcomes) for turn in turns):
            fault = f"not as one after the other: {seen}, exit codes {[one.code for one in outcomes]}"
        if fault:
            result.faults.append(f"{first.name}, {second.name} before its {place}th change: {fault}")


@dataclass(frozen=True)
class _Turn:
    """What is seen when the commands run one after the other; None where one did not run."""

    seen: list[Any]
    outcomes: tuple[Outcome | None, Outcome | None]

    def explains(self, seen: list[Any], outcomes: tuple[Outcome, Outcome]) -> bool:
        for expected, outcome in zip(self.outcomes, outcomes, strict=True):
            if expected is None:
                if not outcome.refused:
                    return False
            elif expected.code != outcome.code or expected.out != outcome.out:
                return False
        return seen == self.seen


def _in_turn(workshop: Workshop, first: Operation, second: Operation, order: tuple[int, ...]) -> _Turn:
    key = (first.name, second.name, first.before, order)
    if key not in workshop.turns:
        box = workshop.box
        outcomes: list[Outcome | None] = [None, None]
        box.put(workshop.before(first))
        for which in order:
            outcomes[which] = box.run(*(first, second)[which].words)
        seen = _look(workshop, first, second)
        workshop.turns[key] = _Turn(seen, (outcomes[0], outcomes[1]))
    return workshop.turns[key]


def _look(workshop: Workshop, first: Operation, second: Operation) -> list[Any]:
    return workshop.box.call(lambda: [value_or_error(first.observe), value_or_error(second.observe)])


def _places(workshop: Workshop, operation: Operation) -> list[int]:
    """Numbers of changes, spread over an operation; the last is its last rename."""
    calls = changes(workshop, operation)
    if not calls:
        return []
    last = max((call.number for call in calls if call.name in TURNS[:3]), default=len(calls))
    spread = {max(1, round(last * part / POINTS)) for part in range(1, POINTS + 1)}
    return sorted(spread)


def together(workshop: Workshop, first: Operation, second: Operation, place: int) -> tuple[Outcome, Outcome]:
    """Start the second before the ``place``-th change of the first, which goes on when that ends or waits."""
    started: list[Started] = []
    ended: list[Outcome] = []

    def visit(call: Call) -> None:
        if call.number == place:
            started.append(workshop.box.start(lambda: run_words(second.words)))
            _until(lambda: _ended(started[0], ended) or "waiting for" in started[0].said())

    one = traced(workshop.box, first.words, visit)
    if not started:  # it made fewer changes this time
        return one, workshop.box.run(*second.words)
    return one, ended[0] if ended else started[0].wait()


def _ended(started: Started, ended: list[Outcome]) -> bool:
    outcome = started.poll()
    if outcome is not None:
        ended.append(outcome)
    return outcome is not None


def _until(done: Callable[[], bool]) -> None:
    start = time.monotonic()
    while not done() and time.monotonic() - start < PATIENCE:
        time.sleep(0.01)
