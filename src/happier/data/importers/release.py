"""What the importers share: reading a release's text files, and comparing with its published counts."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

from happier.data.manifest import Manifest
from happier.errors import DataError
from happier.storage.regular_file import read_regular

LARGEST_BYTES = 1 << 30
"""Size of the largest text file of a release that is read."""

log = logging.getLogger(__name__)


def text_lines(source: Path, name: str, *, release: str) -> Iterator[tuple[int, str]]:
    """Line numbers and lines, without blank ones, of a file that the release must have.

    Raises:
        DataError: there is no such file, or it is not text.
    """
    path = require(source, name, release=release)
    try:
        text = read_regular(path, largest=LARGEST_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield number, line


def require(source: Path, name: str, *, release: str) -> Path:
    """Path of a file that the release must have.

    Raises:
        DataError: there is none.
    """
    path = source / name
    if not path.is_file():
        raise DataError(f"{source} is not the unpacked {release} release: it has no {name}")
    return path


def bad_line(path: Path, number: int, line: str, expected: str) -> DataError:
    """The error for a line that cannot be read."""
    return DataError(f"{path}, line {number}: expected {expected}, got {line[:80]!r}")


def warn_of_difference(manifest: Manifest, published: Mapping[str, tuple[int, int]]) -> Manifest:
    """Log one warning that names every split whose images or fine classes are not as published.

    Args:
        manifest: passed through.
        published: number of images and of fine classes for each split.
    """
    differences = []
    for split, (images, classes) in published.items():
        rows = manifest.table["split"] == split
        found_images = int(rows.sum())
        found_classes = len(set(manifest.labels()[rows.to_numpy(), -1].tolist()) - {-1})
        if (found_images, found_classes) != (images, classes):
            differences.append(
                f"{split} has {found_images:,} images of {found_classes:,} classes "
                f"(released: {images:,} of {classes:,})"
            )
    if differences:
        log.warning("this is not the whole %s release: %s", manifest.name, "; ".join(differences))
    return manifest
