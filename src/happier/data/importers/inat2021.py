"""iNaturalist 2021: seven levels, from kingdom to species.

    train.json (or train_mini.json), val.json    images, annotations, categories with their ranks
    train/00000_Animalia_.../....jpg, val/...

The species of ``val`` are those of ``train``: a closed set, unlike the open-set splits of 2018.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from happier.data.importers.inat import RANKS
from happier.data.importers.release import require
from happier.data.manifest import Manifest
from happier.errors import DataError
from happier.storage.regular_file import read_regular

LEVELS = (*RANKS, "species")
_LARGEST_BYTES = 4 << 30


def read_inat2021(source: Path) -> Manifest:
    """Read the release; the training images are those of ``train.json``, else of ``train_mini.json``."""
    train = "train.json" if (source / "train.json").is_file() else "train_mini.json"
    if not (source / train).is_file():
        require(source, "train.json", release="iNaturalist 2021")
    rows = _rows(source / train, "train")
    if (source / "val.json").is_file():
        rows += _rows(source / "val.json", "val")
    table = pd.DataFrame(rows, columns=["path", "split", *LEVELS])
    return Manifest(table, levels=LEVELS, root=source, name="inat2021")


def _rows(path: Path, split: str) -> list[tuple[str, ...]]:
    try:
        content: Any = json.loads(read_regular(path, largest=_LARGEST_BYTES))
        categories = {
            one["id"]: (*(str(one[rank]) for rank in RANKS), str(one["name"]))
            for one in content["categories"]
        }
        category_of = {one["image_id"]: one["category_id"] for one in content["annotations"]}
        return [(one["file_name"], split, *categories[category_of[one["id"]]]) for one in content["images"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"cannot read {path} as iNaturalist 2021: {error!r}") from error
