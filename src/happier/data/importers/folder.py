"""Users' own images: nested folders are the taxonomy.

    animals/birds/owl/1.jpg          group > kind > item
    train/animals/birds/owl/1.jpg    the same, where all top folders are splits

An image that is higher up than others has no label for the levels below its folder.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from happier.data.manifest import SPLITS, Manifest
from happier.errors import DataError, OptionError

log = logging.getLogger(__name__)

SUFFIXES = frozenset({".avif", ".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})


def read_folder(source: Path, *, levels: Sequence[str] | None = None) -> Manifest:
    """Read a tree of folders; without split folders all images are for training.

    Args:
        source: the top folder.
        levels: names of the levels, coarse to fine; by default ``level1``, ``level2``, ...

    Raises:
        DataError: no such folder, no images in it, or none of them in a sub-folder.
        OptionError: the wrong number of level names.
    """
    if not source.is_dir():
        raise DataError(f"{source} is not a folder")
    found = _image_files(source)
    if not found:
        raise DataError(f"{source} holds no images ({', '.join(sorted(SUFFIXES))})")
    tops = {parts[0] for parts in found if len(parts) > 1}
    split_folders = tops & set(SPLITS)
    has_splits = bool(tops) and tops <= set(SPLITS)
    if split_folders and not has_splits:
        log.warning(
            "the folder(s) %s are treated as classes, not as splits, because of folders next to them: %s",
            ", ".join(sorted(split_folders)),
            ", ".join(sorted(tops - split_folders)[:5]),
        )
    first = 1 if has_splits else 0
    depth = max(len(parts) - 1 - first for parts in found)
    if depth < 1:
        raise DataError(
            f"the images of {source} are not in class folders: expected {source.name}/<class>/<image>"
        )
    names = tuple(levels) if levels is not None else tuple(f"level{n}" for n in range(1, depth + 1))
    if len(names) != depth:
        raise OptionError(
            f"the folders are {depth} levels deep, got {len(names)} level names: {', '.join(names)}"
        )
    rows = []
    for parts in found:
        labels = parts[first:-1]
        split = parts[0] if has_splits and len(parts) > 1 else "train"
        rows.append(("/".join(parts), split, *labels, *[""] * (depth - len(labels))))
    if shallow := sum(row[-1] == "" for row in rows):
        log.warning(
            "%d of %d images have no label at the finest level: they are higher up", shallow, len(rows)
        )
    return Manifest(pd.DataFrame(rows, columns=["path", "split", *names]), levels=names, root=source)


def _image_files(source: Path) -> list[tuple[str, ...]]:
    """The parts of each image's path below a folder.

    Raises:
        DataError: a folder cannot be read, or a name is not UTF-8, which no manifest can hold.
    """

    def fail(error: OSError) -> None:
        raise DataError(f"cannot read {error.filename}: {error.strerror}") from error

    found: list[tuple[str, ...]] = []
    other = 0
    for place, folders, files in os.walk(source, onerror=fail):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        above = Path(place).relative_to(source).parts
        for file in sorted(files):
            if Path(file).suffix.lower() in SUFFIXES:
                found.append((*above, file))
            elif not file.startswith("."):
                other += 1
    if other:
        log.info("%d files that are not images were left out", other)
    for parts in found:
        try:
            "".join(parts).encode()
        except UnicodeEncodeError:
            name = ascii("/".join(parts))
            raise DataError(
                f"{source} holds a file whose name is not UTF-8: {name}; rename it, or set a locale in UTF-8"
            ) from None
    return found
