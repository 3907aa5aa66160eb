"""In-Shop Clothes Retrieval (DeepFashion): category > item.

    Eval/list_eval_partition.txt   a count, a header, then "img/WOMEN/Dresses/id_.../....jpg id_... train"
    img/ (or Img/img/)

The category is that of the path, by gender: "WOMEN Dresses".
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from happier.data.importers.release import bad_line, text_lines, warn_of_difference
from happier.data.manifest import Manifest

PUBLISHED = {"train": (25_882, 3_997), "query": (14_218, 3_985), "gallery": (12_612, 3_985)}


def read_inshop(source: Path) -> Manifest:
    """Read the release; with its own queries and gallery."""
    name = "Eval/list_eval_partition.txt"
    if not (source / name).exists() and (source / "list_eval_partition.txt").exists():
        name = "list_eval_partition.txt"
    above = "Img/" if not (source / "img").exists() and (source / "Img" / "img").exists() else ""
    rows = []
    for number, line in text_lines(source, name, release="In-Shop Clothes Retrieval"):
        if number <= 2:  # the count and the header
            continue
        fields = line.split()
        parts = fields[0].split("/")
        if len(fields) != 3 or len(parts) < 5 or fields[2] not in PUBLISHED:
            expected = "img/<gender>/<category>/<item>/<file> <item> train|query|gallery"
            raise bad_line(source / name, number, line, expected)
        rows.append((above + fields[0], fields[2], f"{parts[1]} {parts[2]}", fields[1]))
    table = pd.DataFrame(rows, columns=["path", "split", "category", "item"])
    manifest = Manifest(table, levels=("category", "item"), root=source, name="inshop")
    return warn_of_difference(manifest, PUBLISHED)
