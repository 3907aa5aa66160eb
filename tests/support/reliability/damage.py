"""Damage every file of a run, of embeddings, of an index: a command says so, or its answer is the same."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from reliability.box import Outcome, name_of
from reliability.operations import ENGINES, Operation, Workshop
from reliability.served import TOKENS, copy, show_features, show_thumbnails, show_tokens, write_text

FLIPS = 20


@dataclass
class Damage:
    """What became of the damaged files of one thing on disk.

    Attributes:
        thing: what was damaged.
        files: how many files it has.
        possible: how many damages there are.
        damages: how many were tried.
        refused: after how many the command refused in one line.
        unharmed: after how many it gave the same answer as before.
        edited: after how many a file that people write by hand was still a valid one, with another content.
        faults: what went wrong, one line each.
    """

    thing: str
    files: int = 0
    possible: int = 0
    damages: int = 0
    refused: int = 0
    unharmed: int = 0
    edited: int = 0
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Thing:
    """Something on disk and the commands that read it.

    Attributes:
        folder: in the box; or one file.
        before: commands that make it.
        readers: commands whose output must not change; numbers of JSON only where ``figures``.
        by_hand: people write it with an editor, so that it has no checksum.
    """

    name: str
    folder: str
    before: tuple[tuple[object, ...], ...]
    readers: tuple[tuple[object, ...], ...]
    figures: bool = False
    by_hand: bool = False


def things(workshop: Workshop) -> list[Thing]:
    """Everything that a command leaves and another one reads."""
    here, have = workshop.box.path, workshop.operations
    image = workshop.images / "0_3_0.png"
    trained = have["embed"].before
    evaluate = ("evaluate", here / "run", "--json", "-", "--resamples", 0)
    found = [
        Thing(
            "manifest",
            "out.parquet",
            have["split"].before[:1],
            (("data", "split", here / "out.parquet", "--json"),),
        ),
        Thing("run", "run", (*trained, evaluate), (evaluate,), figures=True),
        Thing("run, trained further", "run", trained, (have["train"].words,)),
        Thing(
            "run, trained further with a logger",
            "run/logger.json",
            (workshop.logged_words(epochs=1),),
            (workshop.logged_words(),),
        ),
        Thing(
            "embeddings",
            "embeddings",
            (*trained, have["embed"].words),
            (("evaluate", here / "embeddings", "--json", "-", "--resamples", 0),),
            figures=True,
        ),
    ]
    fit = have["fit"]
    found.append(Thing("fit", "fit", fit.before, (fit.before[-1],), figures=True))
    for engine in ENGINES:
        built = have[f"unindex, {engine}"].before
        search = ("search", here / "index", image, "--json", "-k", 5)
        identify = ("identify", here / "index", image, "--json")
        found.append(Thing(f"index, {engine}", "index", built, (search, identify)))
    return found + _served(workshop)


def _served(workshop: Workshop) -> list[Thing]:
    """What servers and people write."""
    here, have = workshop.box.path, workshop.operations
    decide, apply, features = have["decide"], have["apply"], have["features"]
    thumbnails = (show_thumbnails, here / "thumbnails.sqlite", workshop.images, "?_3_0.png")
    taxonomy = have["taxonomy"]
    tree = (*taxonomy.words[:3], here / "tree.csv", *taxonomy.words[4:], "--json")
    table = (copy, workshop.box.root / "tree.csv", here / "tree.csv")
    csv = have["import CSV"].words
    tokens = here / "tokens.toml"
    written = (write_text, tokens, TOKENS)
    return [
        Thing(
            "features",
            "features",
            (*features.before, features.words),
            ((show_features, here / "features"),),
        ),
        Thing(
            "corrections",
            "corrections.csv",
            (*decide.before, decide.words),
            ((*apply.words, "--json"),),
            by_hand=True,
        ),
        Thing("tokens", "tokens.toml", (written,), ((show_tokens, tokens),), by_hand=True),
        Thing("thumbnails", "thumbnails.sqlite", (thumbnails,), (thumbnails,)),
        Thing("table of a taxonomy", "tree.csv", (taxonomy.before[0], table), (tree,), by_hand=True),
        Thing(
            "manifest, CSV",
            "out.csv",
            (csv,),
            (("data", "split", here / "out.csv", "--json"),),
            by_hand=True,
        ),
    ]


def spoil(workshop: Workshop, thing: Thing, *, most: int | None = None, flips: int = FLIPS) -> Damage:
    """Damage each file in each way.

    Args:
        workshop: where.
        thing: what.
        most: try about this many of the damages, spread over all files; None for all.
        flips: at how many places of a file one bit is flipped.
    """
    box, result = workshop.box, Damage(thing.name)
    before = workshop.before(Operation(thing.name, (), lambda: None, thing.before))
    box.put(before)
    expected = [_answer(box.run(*reader), figures=thing.figures) for reader in thing.readers]
    box.put(before)
    files = [path for path in sorted(_files(box.path / thing.folder)) if not path.name.endswith("lock")]
    result.files = len(files)
    tried = [(path, damage) for path in files for damage in damages(path.stat().st_size, flips)]
    result.possible = len(tried)
    for path, (what, apply) in _spread(tried, most):
        box.put(before)
        apply(path)
        result.damages += 1
        damaged = box.take()
        for reader, answer in zip(thing.readers, expected, strict=True):
            box.put(damaged)
            if path.is_fifo() or (what == "a pipe"):
                apply(path)
            outcome = box.run(*reader)
            if outcome.fault:
                fault = outcome.fault
            elif outcome.refused:
                result.refused += 1
                continue
            elif _answer(outcome, figures=thing.figures) == answer:
                result.unharmed += 1
                continue
            elif thing.by_hand and outcome.code == 0:
                result.edited += 1
                continue
            else:
                fault = "another answer"
            name = path.relative_to(box.path)
            result.faults.append(f"{name}: {what}; {name_of(reader)}: {fault}")
    return result


def _spread(tried: list[Any], most: int | None) -> list[Any]:
    """About this many, with a step that shares no factor with the kinds: each file gets other kinds."""
    step = 1 if most is None else max(1, len(tried) // most) | 1
    while math.gcd(step, FLIPS + 9) > 1 and step > 1:
        step += 2
    return tried[::step]


def _files(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
        return
    for folder, _, names in os.walk(place):
        for name in names:
            path = Path(folder) / name
            if path.is_file() and not path.is_symlink():
                yield path


def damages(size: int, flips: int) -> list[tuple[str, Callable[[Path], object]]]:
    """What may happen to a file of this size."""
    found: list[tuple[str, Callable[[Path], object]]] = [
        ("emptied", lambda path: path.write_bytes(b"")),
        ("cut in half", lambda path: _cut(path, 0.5)),
        ("without its last byte", lambda path: path.write_bytes(path.read_bytes()[:-1])),
        ("replaced by text", lambda path: path.write_text("this is not what you expect\n")),
        ("replaced by other JSON", lambda path: path.write_text("[1, 2, 3]\n")),
        ("replaced by an array", _array),
        ("replaced by a directory", _directory),
        ("removed", lambda path: path.unlink()),
        ("a pipe", _pipe),
    ]
    places = np.linspace(0, max(0, size - 1), flips if size else 0).astype(int)
    for number, place in enumerate(dict.fromkeys(int(place) for place in places)):
        found.append((f"bit {number % 8} of byte {place} flipped", _Flip(place, number % 8)))
    return found


@dataclass(frozen=True)
class _Flip:
    place: int
    bit: int

    def __call__(self, path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[self.place] ^= 1 << self.bit
        path.write_bytes(content)


def _cut(path: Path, part: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part)])


def _array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.float32(0.5))


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    if path.exists() and not path.is_fifo():
        path.unlink() if not path.is_dir() else shutil.rmtree(path)
    if not path.exists():
        os.mkfifo(path)


def _answer(outcome: Outcome, *, figures: bool) -> Any:
    if not figures:
        return outcome.code, outcome.out
    try:
        return outcome.code, list(_numbers(json.loads(outcome.out)))
    except ValueError:
        return outcome.code, outcome.out


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for key in sorted(value):
            yield from _numbers(value[key])
    elif isinstance(value, list):
        for one in value:
            yield from _numbers(one)
    elif isinstance(value, (int, float)):
        yield value
