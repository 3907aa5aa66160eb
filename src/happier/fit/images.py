"""A folder or a manifest -> images to train on and to test with: checked, cleaned, split by class."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from happier.data import Manifest
from happier.data.check import CheckReport, check_contents
from happier.data.importers import import_manifest
from happier.data.split import split_by_class
from happier.errors import DataError, ManifestError
from happier.storage.regular_file import containing_file
from happier.taxonomy import UNKNOWN

__all__ = ["Prepared", "digest", "prepare", "read_source"]

FEWEST_CLASSES = 4
"""Two to train on and two to test with."""


@dataclass(frozen=True)
class Prepared:
    """Images to train on and to test with.

    Attributes:
        manifest: the rows.
        left_out: how many images were left out, for each reason.
    """

    manifest: Manifest
    left_out: dict[str, int]


def read_source(source: Path, levels: Sequence[str] | None = None) -> Manifest:
    """The manifest of a folder of images, or an existing manifest.

    Raises:
        DataError: it is neither, or holds no images.
        ManifestError: the manifest is faulty.
    """
    if source.suffix.lower() in (".parquet", ".csv"):
        manifest = Manifest.read(source, levels=levels)
    elif source.is_dir():
        manifest = import_manifest("folder", source, levels=levels)
    else:
        raise DataError(f"{source} is neither a folder of images nor a manifest (.parquet or .csv)")
    if manifest.name is None:
        manifest.name = source.resolve().stem
    _check_rows(manifest, source)
    return manifest


def digest(manifest: Manifest, contents: Sequence[str] | None = None) -> str:
    """Of the rows, their labels, and the content of each file; by default its size and time."""
    text = hashlib.sha256()
    columns = [name for name in ("path", "split", "set", "id", *manifest.levels) if name in manifest.table]
    for name in columns:
        for value in manifest.table[name]:
            text.update(f"{value}\0".encode("utf-8", "surrogatepass"))
    for content in map(_size_and_time, manifest.files()) if contents is None else contents:
        text.update(f"{content}\0".encode())
    return text.hexdigest()


def _size_and_time(file: Path) -> str:
    try:
        found = containing_file(file).stat()
    except OSError:
        return "missing"
    return f"{found.st_size} {found.st_mtime_ns}"


def prepare(
    manifest: Manifest, source: Path, hashes: Mapping[Path, str], unreadable: Mapping[Path, str]
) -> Prepared:
    """Leave out what cannot be used, and split by class where there is no test split.

    Args:
        manifest: the images and labels that were given.
        source: where they are.
        hashes: of the content of each image.
        unreadable: the images that cannot be read, and why.

    Raises:
        DataError: too few classes or images are left.
    """
    files = dict(enumerate(manifest.files()))
    faulty = {row: unreadable[file] for row, file in files.items() if file in unreadable}
    missing = {row for row in faulty if not containing_file(files[row]).exists()}
    report = check_contents(
        manifest,
        {row: hashes[file] for row, file in files.items() if row not in faulty},
        sorted(missing),
        {row: reason for row, reason in faulty.items() if row not in missing},
    )
    try:
        rows = report.cleaned()
    except ManifestError:
        first = report.faults[0]
        raise DataError(
            f"none of the {len(manifest):,} images of {source} can be used: {first.message}, such as "
            f"{first.examples[0]}"
        ) from None
    _check_rows(rows, source)
    if not _has_test(rows):
        rows = split_by_class(rows, seed=0)
    return Prepared(rows, _reasons(report))


def _reasons(report: CheckReport) -> dict[str, int]:
    """How many of the images that are left out have which fault; the first fault counts."""
    kinds: dict[int, str] = {}
    for finding in report.faults:
        for row in set(finding.rows) & set(report.left_out):
            kinds.setdefault(row, finding.kind)
    return dict(sorted(Counter(kinds.get(row, "duplicate") for row in report.left_out).items()))


def _has_test(manifest: Manifest) -> bool:
    return bool({"test", "query"} & manifest.splits.keys())


def _check_rows(manifest: Manifest, source: Path) -> None:
    if _has_test(manifest) and "train" not in manifest.splits:
        raise DataError(f"{source} has no training images; its splits are {', '.join(manifest.splits)}")
    fine = manifest.labels()[:, -1]
    names, counts = np.unique(fine[fine != UNKNOWN], return_counts=True)
    if len(names) == 1:
        raise DataError(f"{source} has one class, {manifest.class_paths()[int(np.argmax(fine == names[0]))]}")
    if len(names) and counts.max() == 1:
        raise DataError(
            f"each class of {source} has one image: nothing else can be found for it; two or more are needed"
        )
    if (counts > 1).sum() < FEWEST_CLASSES:
        raise DataError(
            f"{source} has {int((counts > 1).sum())} classes of two or more images; {FEWEST_CLASSES} are "
            "needed, to train on some and to test with others"
        )
