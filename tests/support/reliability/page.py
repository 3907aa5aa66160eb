"""docs/reliability.md, from the results that the command keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PAGE = HERE.parents[2] / "docs" / "reliability.md"

INTRODUCTION = """\
# Reliability

<!-- Written by `make reliability`; do not edit. -->

The commands are designed to give three guarantees about what is on disk.

- **Nothing is lost.** What a command replaces is kept until the new version is complete. After a kill, a
  power cut or a full disk there is the old state or the new one; the next command continues from there
  and removes the leftovers.
- **Nothing is wrong.** Stored vectors, models and checkpoints have checksums; small files are checked
  against a schema. A damaged file is reported by name, or regenerated; it never changes a figure.
- **One writer at a time.** A run, a folder of embeddings and an index have a lock. A second command
  names the process it waits for, or refuses. Readers never wait: they keep what they opened.

These are aims; this page says how far they were tested, and with what outcome. `make reliability` runs
everything and writes this page; the parts can be run separately (`--only`, `--most`), and each line
below is the latest result of its part, which may cover a sample: the tables say how many there are and
how many were tried, and the last column with which commit (+: and changes that were not committed yet).
Every fault of that result is listed. An actual power cut was not tested.

"""


def keep(path: Path, kind: str, name: str, values: dict[str, Any]) -> None:
    """Put one result beside the others."""
    results = json.loads(path.read_text()) if path.exists() else {}
    results.setdefault(kind, {})[name] = values
    path.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def has(path: Path, kind: str, name: str) -> bool:
    """Whether a result is kept."""
    return path.exists() and name in json.loads(path.read_text()).get(kind, {})


def write(results: Path = RESULTS, target: Path = PAGE) -> None:
    """Write the page."""
    target.write_text(render(json.loads(results.read_text())))


def render(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    """The page as text."""
    return INTRODUCTION + _totals(results) + "".join(section(results) for section in SECTIONS)


def _totals(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    def total(kind: str, field: str) -> int:
        return sum(one.get(field, 0) for one in results.get(kind, {}).values())

    faults = [fault for kind in results.values() for one in kind.values() for fault in one["faults"]]
    tracebacks = sum("traceback" in fault or "signal" in fault for fault in faults)
    leftovers = sum("leftovers" in fault for fault in faults)
    rows = [
        ("operations stopped at every change", len(results.get("crash", {})), ""),
        ("states of the disk recorded there", total("crash", "points"), ""),
        ("of those, different", total("crash", "states"), ""),
        ("of those, opened and continued from", total("crash", "checked"), ""),
        ("ordered pairs of commands on one target", total("pairs", "possible"), ""),
        ("of those, tried", total("pairs", "pairs"), ""),
        ("times that one command was started inside another", total("pairs", "meetings"), ""),
        ("damages of files", total("damage", "possible"), ""),
        ("of those, tried", total("damage", "damages"), ""),
        ("commands on a full or read-only disk", total("full", "tries") + total("small", "tries"), ""),
        ("**lost or wrong**", len(faults) - tracebacks - leftovers, ""),
        ("**tracebacks and crashes**", tracebacks, ""),
        ("**leftovers that remain**", leftovers, ""),
    ]
    return "| | |\n|---|---:|\n" + "".join(f"| {name} | {value:,} |\n" for name, value, _ in rows) + "\n"


def _table(results: dict[str, dict[str, Any]], columns: dict[str, str]) -> str:
    head = "| " + " | ".join([*columns.values(), "faults", "commit"]) + " |\n"
    line = "|---|" + "---:|" * len(columns) + "---|\n"
    rows = ""
    for values in results.values():
        cells = [_cell(values.get(name, "")) for name in columns]
        rows += "| " + " | ".join([*cells, str(len(values["faults"])), values.get("commit", "")]) + " |\n"
    listed = "".join(f"- {name}: {fault}\n" for name, values in results.items() for fault in values["faults"])
    return head + line + rows + (f"\nFaults:\n\n{listed}" if listed else "") + "\n"


def _cell(value: int | str) -> str:
    return f"{value:,}" if isinstance(value, int) else value


def _crash(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    text = """\
## Killed at every change

Each command runs under a tracer that stops it before every system call that changes a file (write,
rename, fsync, unlink, mkdir, truncate, ...) and records what is on the disk: what a kill at that
moment would leave; for a write also with its first half done. Bytes in scratch folders, which nothing
reads, make no different state (in rows where all states were opened they do). As many of the different
states as the second last column says are then opened, which must show the old content or the new; the
command is run again, which must end as it would without a kill, and leave no additional files behind.
Of the database of milvus-lite its collections count as files; what it keeps in their folders, scraps of
its own included, is left to it.
With pgvector the tables of a real PostgreSQL belong to the state, and every request to it is a moment to
be killed at. Training need not show the old or the new state in between: the same command resumes, to
the same weights.

"""
    columns = {
        "operation": "operation",
        "points": "recorded",
        "states": "different",
        "checked": "continued from",
    }
    return text + _table(results.get("crash", {}), columns)


def _pairs(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    text = """\
## Two commands at once

Every command that writes together with every other on the same target, and with itself, in both orders.
The first is paused at several points up to its last rename; the second is started there, and the first
continues when the second has ended or reports that it waits. The outcome, including everything that both
print, must be that of running them in sequence, or one of them refuses in one line with exit code 2.
Where fewer pairs were tried than there are, each command is the first of some and the second of others.

"""
    columns = {
        "target": "target",
        "possible": "pairs",
        "pairs": "tried",
        "meetings": "meetings",
        "refused": "one refused",
    }
    return text + _table(results.get("pairs", {}), columns)


def _damage(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    text = """\
## Damaged files

Every file is emptied, cut in half, cut by a byte, replaced by text, by other JSON, by an array, by a
directory, by a pipe, removed, and has one bit flipped at each of 20 places. A command that reads it
then refuses in one line with exit code 2, or gives the same answer as before (the file does not matter
to it, or was regenerated). What people write with an editor (CSV, tokens) has no checksum: there a
changed letter may make another valid file, which is counted separately.

"""
    columns = {
        "thing": "what",
        "files": "files",
        "possible": "damages",
        "damages": "tried",
        "refused": "refused",
        "unharmed": "same answer",
        "edited": "valid, edited",
    }
    return text + _table(results.get("damage", {}), columns)


def _full(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    text = """\
## Full and read-only disks

The tracer makes every call that needs space fail from some moment on, as on a full disk, and every
change fail from the start, as on a read-only one. The command refuses in one line, existing files are
kept, and once there is space the same command succeeds.

"""
    columns = {"operation": "operation", "tries": "tries", "refused": "refused"}
    text += _table(results.get("full", {}), columns)
    if results.get("small"):
        text += (
            "The same on a real disk that holds a tenth, half, or nine tenths of what the command needs.\n\n"
        )
        text += _table(results["small"], columns)
    return text


SECTIONS = (_crash, _pairs, _damage, _full)
