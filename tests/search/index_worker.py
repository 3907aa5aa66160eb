"""Another process that changes an index: orders come as lines of JSON, outcomes go back as lines of JSON.

An order has ``op`` and ``directory``; with ``pause`` the change stops before its commit, makes the file
``<pause>.inside`` and waits for ``<pause>.go``; with ``kill_at`` a fork of this process makes the change and
is killed before the n-th time that it opens a file for writing, renames or removes one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import orjson
import pandas as pd
import xxhash

from happier.data import Manifest
from happier.errors import HappierError
from happier.search import Index, store

MODEL = "a" * 64
DIM = 8


def vector_of(number: int) -> np.ndarray:
    """The one vector that belongs to an image."""
    vector = np.random.default_rng(number).standard_normal(DIM).astype(np.float32)
    return vector / np.linalg.norm(vector)


def images(numbers) -> tuple[Manifest, np.ndarray]:
    numbers = list(numbers)
    table = pd.DataFrame(
        {"path": [f"{number}.png" for number in numbers], "split": "test", "kind": "a", "item": "b"}
    )
    manifest = Manifest(table, levels=["kind", "item"], root="/images")
    return manifest, np.stack([vector_of(number) for number in numbers])


OPERATIONS = {
    "build": range(100),
    "add": range(100, 120),
    "add more": range(110, 130),
    "delete": range(5),
    "delete many": range(5, 50),
    "overwrite": range(200, 260),
}


def change(op: str, directory: str, engine: str = "flat") -> int:
    """Make one change; the number of images added or removed."""
    numbers = OPERATIONS[op]
    if op in ("build", "overwrite"):
        manifest, vectors = images(numbers)
        Index.build(
            directory, manifest, vectors, fingerprint=MODEL, engine=engine, overwrite=op == "overwrite"
        )
        return len(vectors)
    index = Index.open(directory)
    if op.startswith("add"):
        manifest, vectors = images(numbers)
        return index.add(manifest, vectors, fingerprint=MODEL, skip_known=True)
    return index.delete([f"{number}.png" for number in numbers])


def after(state: set[int], op: str) -> set[int] | None:
    """The images that an index holds after a change; None where the change is refused."""
    numbers = set(OPERATIONS[op])
    if op == "overwrite":
        return numbers
    if op.startswith("add"):
        return state | numbers
    return state - numbers if numbers <= state else None


def rewrite_head(directory: Path, head: dict) -> None:
    """Write an ``index.json`` by hand, with the checksum that belongs to it."""
    values = {name: value for name, value in head.items() if name != "checksum"}
    if head.get("format") != 1:
        values["checksum"] = xxhash.xxh3_128_hexdigest(orjson.dumps(values, option=orjson.OPT_SORT_KEYS))
    (directory / "index.json").write_bytes(orjson.dumps(values))


def held(directory: Path | str) -> set[int]:
    """The images of an index; each is found by its own vector, and has no other."""
    index = Index.open(directory)
    numbers = [int(one.removesuffix(".png")) for one in index.ids]
    assert len(set(numbers)) == len(numbers)
    wanted = np.stack([vector_of(number) for number in numbers])
    np.testing.assert_array_equal(index.vectors, wanted)
    assert [hits[0].id for hits in index.search(wanted, k=1)] == index.ids
    index.close()
    return set(numbers)


def _pause_before_commit(pause: str) -> None:
    real = store.write_head

    def paused(*arguments):
        store.write_head = real
        Path(f"{pause}.inside").touch()
        while not Path(f"{pause}.go").exists():
            time.sleep(0.01)
        real(*arguments)

    store.write_head = paused


def _die_at(wanted: int) -> None:
    seen = 0

    def hook(event: str, arguments) -> None:
        nonlocal seen
        writes = (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if writes or event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir"):
            seen += 1
            if seen == wanted:
                os._exit(9)

    sys.addaudithook(hook)


def _killed(order: dict) -> bool:
    """Whether a fork of this process was killed in the middle of a change."""
    child = os.fork()
    if child == 0:
        _die_at(order["kill_at"])
        change(order["op"], order["directory"], order.get("engine", "flat"))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if "kill_at" in order:
                outcome = {"killed": _killed(order)}
            else:
                if order.get("pause"):
                    _pause_before_commit(order["pause"])
                outcome = {"changed": change(order["op"], order["directory"], order.get("engine", "flat"))}
        except HappierError as error:
            outcome = {"refused": str(error)}
        print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
