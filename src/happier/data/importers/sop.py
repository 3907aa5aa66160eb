"""Stanford Online Products: category > product.

Ebay_train.txt, Ebay_test.txt   "image_id class_id super_class_id path", space separated, with a header
bicycle_final/111085122871_0.JPG ...
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from happier.data.importers.release import bad_line, text_lines, warn_of_difference
from happier.data.manifest import Manifest

PUBLISHED = {"train": (59_551, 11_318), "test": (60_502, 11_316)}


def read_sop(source: Path) -> Manifest:
    """Read the release; the category is the name of the image's folder without ``_final``."""
    rows = []
    for split in ("train", "test"):
        name = f"Ebay_{split}.txt"
        for number, line in text_lines(source, name, release="Stanford Online Products"):
            fields = line.split()
            if fields[0] == "image_id":
                continue
            if len(fields) != 4 or "/" not in fields[3]:
                raise bad_line(source / name, number, line, "image_id class_id super_class_id folder/file")
            category = fields[3].split("/")[0].removesuffix("_final")
            rows.append((fields[3], split, category, fields[1]))
    table = pd.DataFrame(rows, columns=["path", "split", "category", "product"])
    manifest = Manifest(table, levels=("category", "product"), root=source, name="sop")
    return warn_of_difference(manifest, PUBLISHED)
