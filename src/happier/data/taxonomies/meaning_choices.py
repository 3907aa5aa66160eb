"""Which meaning each class has: a file in which a person chooses where a name has several, or none.

A CSV with one row for each possible meaning of each class that is not clear. An ``x`` in the column
``choose`` picks it. A class may also get another meaning (``mouse.n.01``) in a row of one's own, or ``-`` for
none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pandas as pd

from happier.data.taxonomies.class_paths import listed
from happier.data.taxonomies.wordnet import Meaning, WordNet
from happier.errors import OptionError, TaxonomyError
from happier.storage.atomic import atomic_file
from happier.storage.tables import read_csv

__all__ = ["read_choices", "unclear_meanings", "write_choices"]

COLUMNS: Final = ("class", "choose", "meaning", "kind of", "description")
NONE: Final = "-"
_NOT_FOUND: Final = "not in WordNet: write a meaning such as bird.n.01, or - for none, and x into choose"
_GUESS: Final = "only the last words of the name: "


def unclear_meanings(wordnet: WordNet, classes: Sequence[str]) -> tuple[dict[str, Meaning], list[str]]:
    """The meaning of each class whose name has exactly one, and the classes that a person must look at."""
    found = {name: wordnet.meanings(name) for name in classes}
    clear = {name: meanings[0] for name, meanings in found.items() if len(meanings) == 1}
    return clear, [name for name in classes if name not in clear]


def write_choices(path: Path, wordnet: WordNet, classes: Sequence[str]) -> None:
    """Write the file for these classes; nothing is chosen in it yet.

    Raises:
        OptionError: there is such a file already, which may hold choices.
    """
    if path.exists():
        raise OptionError(f"{path} already exists: finish it and give it after --from wordnet, or remove it")
    rows: list[tuple[str, ...]] = []
    for name in classes:
        meanings, guess = wordnet.meanings(name), ""
        if not meanings:
            meanings, guess = wordnet.guesses(name), _GUESS
        for one in meanings:
            above = wordnet.ancestors(one)[:-1]
            kind = above[-1].name if above else ""
            rows.append((name, "", one.id, kind, guess + one.description))
        if guess:
            rows.append((name, "", "", "", _NOT_FOUND))
    with atomic_file(path) as part:
        pd.DataFrame(rows, columns=list(COLUMNS)).to_csv(part, index=False)


def read_choices(path: Path, wordnet: WordNet, classes: Sequence[str]) -> dict[str, Meaning | None]:
    """The chosen meaning of each class of the file; None for a class that has none.

    Raises:
        TaxonomyError: a class of the file that the manifest lacks, with no choice or with several, or a
            meaning that WordNet lacks.
    """
    table = read_csv(path, error=TaxonomyError, missing=f"no file of choices at {path}")
    if missing := [name for name in COLUMNS[:3] if name not in table.columns]:
        raise TaxonomyError(
            f"{path} must have the columns {', '.join(COLUMNS[:3])}; {missing[0]!r} is missing"
        )
    if unknown := sorted(set(table["class"]) - set(classes)):
        raise TaxonomyError(f"{path} has classes that the manifest does not have: {listed(unknown)}")
    chosen: Mapping[str, list[str]] = defaultdict(list)
    for row in table[table["choose"].str.strip() != ""].to_dict("records"):
        chosen[row["class"]].append(row["meaning"].strip())
    open_ = [name for name in dict.fromkeys(table["class"]) if name not in chosen]
    if open_:
        raise TaxonomyError(
            f"{path}: {len(open_)} classes have no x in the column choose yet: {listed(open_)}"
        )
    if several := [name for name, ids in chosen.items() if len(set(ids)) > 1]:
        raise TaxonomyError(f"{path}: choose one meaning for each class; several for {listed(several)}")
    return {name: None if ids[0] == NONE else wordnet.meaning(ids[0]) for name, ids in chosen.items()}
