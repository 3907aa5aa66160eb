"""DyML-Vehicle, -Animal and -Product: coarse > middle > fine.

    train/label.csv, train/imgs/                     "fname, coarse_id, middle_id, fine_id"
    bmk_{coarse,middle,fine}/{query,gallery}.csv     "fname, labels"; images in folders of the same name
    mini-bmk_all_in_one/{label.csv,imgs/}            the one test set of Product, with all levels

The header of these files runs into their first row: ``fname, coarse_id, middle_id, fine_id0.jpg, 3, 14, 15``.
Read as usual, the first image is lost; here it is recovered.

Test sets with one label: the label is in the first level column (with the set's name, so that sets do not
mix), the levels below are unknown, and the column ``set`` says which test set a row belongs to. An image may
be query and gallery at once: its ``id`` is the same in both, so it is never retrieved for itself.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pandas as pd

from happier.data.importers.release import bad_line, require, text_lines
from happier.data.manifest import Manifest

log = logging.getLogger(__name__)

LEVELS = ("coarse", "middle", "fine")
_COLUMNS = ["path", "split", *LEVELS, "id", "set"]


def read_dyml_vehicle(source: Path) -> Manifest:
    """Read DyML-Vehicle: a training set, and three test sets of one label each."""
    return _with_three_test_sets(source, "dyml-vehicle")


def read_dyml_animal(source: Path) -> Manifest:
    """Read DyML-Animal: a training set, and three test sets of one label each."""
    return _with_three_test_sets(source, "dyml-animal")


def read_dyml_product(source: Path) -> Manifest:
    """Read DyML-Product: a training set and one test set, both with all levels."""
    rows = [*_labelled(source, "train", "train"), *_labelled(source, "mini-bmk_all_in_one", "test")]
    table = pd.DataFrame(rows, columns=_COLUMNS).drop(columns="set")
    return Manifest(table, levels=LEVELS, root=source, name="dyml-product")


def _with_three_test_sets(source: Path, name: str) -> Manifest:
    rows = _labelled(source, "train", "train")
    for test_set in LEVELS:
        for split in ("query", "gallery"):
            folder = f"bmk_{test_set}"
            for file, label in _rows(source, f"{folder}/{split}.csv", labels=1):
                path = f"{folder}/{split}/{file}"
                own = f"{folder}/{file}"
                rows.append((path, split, f"{test_set} {label}", "", "", own, test_set))
    return Manifest(pd.DataFrame(rows, columns=_COLUMNS), levels=LEVELS, root=source, name=name)


def _labelled(source: Path, folder: str, split: str) -> list[tuple[str, ...]]:
    return [
        (f"{folder}/imgs/{file}", split, coarse, middle, fine, f"{folder}/{file}", "")
        for file, coarse, middle, fine in _rows(source, f"{folder}/label.csv", labels=3)
    ]


def _rows(source: Path, name: str, *, labels: int) -> list[tuple[str, ...]]:
    """File name and labels of each row, the one that the header ran into included."""
    path = require(source, name, release="DyML")
    header_words = 1 + labels
    expected = "a file name and " + ("one label" if labels == 1 else f"{labels} labels")
    rows = []
    for number, line in text_lines(source, name, release="DyML"):
        fields = [field.strip() for field in line.split(",")]
        if number == 1 and fields[0] == "fname":
            # "fine_id0.jpg" is the last header word joined to the first file name.
            last = fields[header_words - 1] if len(fields) >= header_words else ""
            word = "labels" if labels == 1 else "fine_id"
            if not last.startswith(word):
                raise bad_line(path, number, line, f"a header that ends in {word}")
            glued = last.removeprefix(word)
            if not glued:
                continue
            if len(fields) != header_words + labels:
                log.warning("%s: the labels of the first image, %s, are lost; it is left out", path, glued)
                continue
            fields = [glued, *fields[header_words:]]
        if len(fields) != header_words or not all(fields):
            raise bad_line(path, number, line, expected)
        rows.append(tuple(fields))
    return rows
