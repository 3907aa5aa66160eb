"""iNaturalist 2018 with the open-set splits: two levels (base) or seven (full).

Inat_dataset_splits/Inaturalist_{train,test}_set1.txt   one path per line, .../<super>/<species id>/<file>
train2018.json                                          categories with kingdom, phylum, ..., genus, name
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd

from happier.data.importers.release import LARGEST_BYTES, bad_line, require, text_lines, warn_of_difference
from happier.data.manifest import Manifest
from happier.errors import DataError
from happier.storage.regular_file import read_regular

PUBLISHED = {"train": (325_846, 5_690), "test": (136_093, 2_452)}
RANKS = ("kingdom", "phylum", "class", "order", "family", "genus")
_RELEASE = "iNaturalist 2018"


def read_inat_base(source: Path) -> Manifest:
    """Two levels: the super category in the path, and the species."""
    categories = _categories(source) if (source / "train2018.json").exists() else {}
    rows = []
    for path, split, super_category, species in _images(source):
        name = categories[species]["unique_name"] if species in categories else species
        rows.append((path, split, super_category, name))
    table = pd.DataFrame(rows, columns=["path", "split", "supercategory", "species"])
    manifest = Manifest(table, levels=("supercategory", "species"), root=source, name="inat-base")
    return warn_of_difference(manifest, PUBLISHED)


def read_inat_full(source: Path) -> Manifest:
    """Seven levels, from kingdom to species, as ``train2018.json`` has them."""
    categories = _categories(source)
    rows = []
    for path, split, _, species in _images(source):
        if species not in categories:
            raise DataError(f"{path}: train2018.json has no category with the id {species}")
        category = categories[species]
        rows.append((path, split, *(str(category[rank]) for rank in RANKS), category["unique_name"]))
    levels = (*RANKS, "species")
    table = pd.DataFrame(rows, columns=["path", "split", *levels])
    return warn_of_difference(Manifest(table, levels=levels, root=source, name="inat-full"), PUBLISHED)


def _images(source: Path) -> list[tuple[str, str, str, str]]:
    """Path, split, super category and species id of every image."""
    rows = []
    for split in ("train", "test"):
        name = f"Inat_dataset_splits/Inaturalist_{split}_set1.txt"
        for number, line in text_lines(source, name, release=_RELEASE):
            parts = PurePosixPath(line.strip().lstrip("/")).parts
            if len(parts) < 3:
                raise bad_line(source / name, number, line, ".../<super category>/<species id>/<file>")
            rows.append(("/".join(parts), split, parts[-3], parts[-2]))
    # The lists may start above or below the folder that was unpacked; one image decides for all.
    if rows:
        first = rows[0][0].split("/")
        for skip in range(len(first) - 2):
            if (source / "/".join(first[skip:])).exists():
                return [("/".join(row[0].split("/")[skip:]), *row[1:]) for row in rows]
    return rows


def _categories(source: Path) -> dict[str, dict[str, Any]]:
    """The categories by id, each with a species name that no other has."""
    path = require(source, "train2018.json", release=_RELEASE)
    try:
        categories = json.loads(read_regular(path, largest=LARGEST_BYTES))["categories"]
        counts = Counter(category["name"] for category in categories)
        for category in categories:
            name = category["name"]
            category["unique_name"] = name if counts[name] == 1 else f"{name} ({category['id']})"
            missing = [rank for rank in RANKS if rank not in category]
            if missing:
                raise DataError(f"{path}: category {category['id']} lacks {', '.join(missing)}")
        return {str(category["id"]): category for category in categories}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"cannot read the categories of {path}: {error!r}") from error
