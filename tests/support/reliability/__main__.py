"""``python -m reliability``: kill, pair, damage, fill the disk; then write the page about it.

An hour or two for everything, on one core. Results are kept in results.json beside this file, so that the
parts can be run one by one, ``python -m reliability crash --only index``, and what was stopped goes on with
``--resume``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from reliability import crash, damage, full_disk, page, pairs
from reliability.operations import Workshop
from reliability.tracing import supported

KINDS = ("crash", "pairs", "damage", "full", "small")
# States to open after a kill where --most does not say: of operations that take seconds, fewer.
LIMITS = {"export": 6, "train": 24, "report": 24, "fit": 16}
MOST_STATES = 60
# A few of each kind, the ones that have most to lose: what `make test` runs.
QUICK = {
    "crash": ("import", "embed over another", "evaluate", "index --add, flat", "index --overwrite, hnsw"),
    "pairs": ("manifest", "index, flat", "corrections"),
    "damage": ("embeddings", "index, flat"),
    "full": ("embed", "unindex, flat"),
    "small": ("embed",),
}


def main() -> None:
    """Run what was asked for; exit code 1 where something went wrong."""
    parser = argparse.ArgumentParser(prog="python -m reliability", description=__doc__)
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="by default all")
    parser.add_argument("--only", action="append", help="only those whose name contains this")
    parser.add_argument("--most", type=int, help="of each, about this many kills, meetings or damages")
    parser.add_argument("--quick", action="store_true", help="a few of each, nothing written")
    parser.add_argument(
        "--page", action="store_true", help="only write the page from the results that are kept"
    )
    parser.add_argument("--results", type=Path, default=page.RESULTS, help="file of the results")
    parser.add_argument("--resume", action="store_true", help="skip what the file of the results has")
    options = parser.parse_args()
    if not options.page:
        reason = supported()
        if reason:
            sys.exit(f"skipped: {reason}")
        faults = _run(options)
        if options.quick:
            sys.exit(1 if faults else 0)
    if options.page or options.results == page.RESULTS:
        page.write(options.results)


def _run(options: argparse.Namespace) -> int:
    faults, commit = 0, _commit()
    with (
        tempfile.TemporaryDirectory(dir=_fast_disk()) as folder,
        closing(Workshop(Path(folder))) as workshop,
    ):
        for kind in options.kinds or KINDS:
            for name, work in jobs(workshop, kind, 4 if options.quick else options.most):
                if options.quick and name not in QUICK[kind]:
                    continue
                if options.only and not any(part in name for part in options.only):
                    continue
                if options.resume and page.has(options.results, kind, name):
                    continue
                start = time.monotonic()
                try:
                    result = work()
                except PermissionError as error:
                    print(f"{kind}: {name} skipped: {error}", flush=True)
                    continue
                _show(kind, result, time.monotonic() - start)
                faults += len(result.faults)
                if not options.quick:
                    page.keep(options.results, kind, name, {**vars(result), "commit": commit})
    return faults


def jobs(workshop: Workshop, kind: str, most: int | None) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What there is to do of one kind, by name; of each about ``most``, or as many as `LIMITS` allow."""
    operations = workshop.operations.values()
    if kind in ("full", "small"):
        yield from _disk_jobs(workshop, kind, most)
    elif kind == "crash":
        for one in operations:
            limit = most or LIMITS.get(one.name, MOST_STATES)
            yield one.name, partial(crash.sweep, workshop, one, limit=limit)
    elif kind == "pairs":
        for name, group in pairs.sets(workshop).items():
            yield name, partial(pairs.meet, workshop, name, group, most=most)
        yield "run in training", partial(pairs.meet_while_training, workshop, most=most)
    elif kind == "damage":
        for thing in damage.things(workshop):
            # A fit has all the others' files, too: a sample of it is enough, where --most does not say.
            number = most or (150 if thing.name == "fit" else None)
            yield thing.name, partial(damage.spoil, workshop, thing, most=number)


def _disk_jobs(workshop: Workshop, kind: str, most: int | None) -> Iterator[tuple[str, Callable[[], Any]]]:
    operations = workshop.operations.values()
    if kind == "full":
        for one in operations:
            points = 1 if one.name == "export" else 6 if most is None else max(1, most // 2)
            yield one.name, partial(full_disk.fill, workshop, one, points=points)
    else:
        parts = (0.1, 0.5, 0.9) if most is None else (0.5,)
        for one in operations:
            if one.name != "export":
                yield one.name, partial(full_disk.fill_really, workshop, one, parts=parts)


def _show(kind: str, result: Any, seconds: float) -> None:
    values = {name: value for name, value in vars(result).items() if name != "faults"}
    print(f"{kind}: {json.dumps(values)} faults {len(result.faults)} ({seconds:.0f} s)", flush=True)
    for fault in result.faults:
        print(f"    {fault[:400]}", flush=True)


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--exclude=*", "--dirty=+"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _fast_disk() -> Path | None:
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else None


if __name__ == "__main__":
    main()
