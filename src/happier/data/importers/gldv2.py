"""Google Landmarks v2, clean, with the hierarchy of SupRank: supercategory > category > landmark.

    train_clean.csv                                  landmark_id,images (ids with spaces between)
    train_label_to_subcategory_with_clusters.csv     landmark_id,...,cluster,overall_cluster
    index_image_to_landmark.csv                      id,landmark_id
    index_label_to_subcategory_with_clusters.csv     landmark_id,...,cluster,overall_cluster
    retrieval_solution_v2.1.csv                      id,images,... ("None": no match in the index)
    images/train/a/b/c/abc....jpg, test/..., index/...

The retrieval benchmark (queries and index) is read where its files are there. Landmarks without a category
are left out, as in SupRank (Ramzi et al., Optimization of Rank Losses for Image Retrieval, TPAMI 2025).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from happier.data.importers.release import require
from happier.data.manifest import Manifest
from happier.errors import DataError
from happier.storage.tables import read_csv

LEVELS = ("supercategory", "category", "landmark")
_RELEASE = "Google Landmarks v2"
log = logging.getLogger(__name__)


def read_gldv2(source: Path) -> Manifest:
    """Read the release; images of the benchmark are queries and gallery."""
    categories = _categories(source, "train_label_to_subcategory_with_clusters.csv")
    rows = list(_rows(_training_images(source), "images/train", "train", categories))
    if (source / "index_image_to_landmark.csv").is_file():
        categories = _categories(source, "index_label_to_subcategory_with_clusters.csv")
        index = _read(source, "index_image_to_landmark.csv", "id", "landmark_id")
        landmark_of = dict(zip(index["id"], index["landmark_id"], strict=True))
        rows += _rows(_queries(source, landmark_of), "test", "query", categories)
        rows += _rows(landmark_of.items(), "index", "gallery", categories)
    kept = [row for row in rows if row is not None]
    if len(kept) < len(rows):
        log.info(
            "%d of %d images are of landmarks without a category and were left out",
            len(rows) - len(kept),
            len(rows),
        )
    table = pd.DataFrame(kept, columns=["path", "split", "id", *LEVELS])
    return Manifest(table, levels=LEVELS, root=source, name="gldv2")


def _training_images(source: Path) -> Iterator[tuple[str, str]]:
    """Image and landmark of each training image."""
    table = _read(source, "train_clean.csv", "landmark_id", "images")
    for landmark, images in zip(table["landmark_id"], table["images"], strict=True):
        for image in images.split():
            yield image, landmark


def _queries(source: Path, landmark_of: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Image and landmark of each query that has a match in the index."""
    name = "retrieval_solution_v2.1.csv"
    table = _read(source, name, "id", "images")
    for row, (image, matches) in enumerate(zip(table["id"], table["images"], strict=True), start=1):
        if matches == "None":
            continue
        first = matches.split()[0]
        if first not in landmark_of:
            raise DataError(f"{source / name}, row {row}: the index has no image {first!r}")
        yield image, landmark_of[first]


def _rows(
    images: Iterable[tuple[str, str]], folder: str, split: str, categories: dict[str, tuple[str, str]]
) -> Iterator[tuple[str, ...] | None]:
    """A row of the manifest for each image, None where its landmark has no category."""
    for image, landmark in images:
        if landmark not in categories:
            yield None
            continue
        if len(image) < 3:
            raise DataError(f"the image id {image!r} of landmark {landmark} is too short for a folder")
        path = f"{folder}/{image[0]}/{image[1]}/{image[2]}/{image}.jpg"
        yield (path, split, image, *categories[landmark], landmark)


def _categories(source: Path, name: str) -> dict[str, tuple[str, str]]:
    """Supercategory and category of each landmark that has both."""
    table = _read(source, name, "landmark_id", "cluster", "overall_cluster")
    return {
        landmark: (overall, cluster)
        for landmark, cluster, overall in zip(
            table["landmark_id"], table["cluster"], table["overall_cluster"], strict=True
        )
        if cluster and overall
    }


def _read(source: Path, name: str, *columns: str) -> pd.DataFrame:
    """Columns of a file as text; "" where a cell is empty.

    Raises:
        DataError: there is no such file, or it lacks a column.
    """
    path = require(source, name, release=_RELEASE)
    table = read_csv(path, error=DataError)
    if missing := [column for column in columns if column not in table]:
        raise DataError(f"{path} lacks the column {', '.join(missing)}; it has {', '.join(table.columns)}")
    return table[list(columns)]
