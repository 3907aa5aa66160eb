"""The rows of a manifest that belong to a branch of the taxonomy."""

from __future__ import annotations

import numpy as np
import pandas as pd

from happier.data import Manifest
from happier.data.class_path import split as split_path
from happier.data.class_tree import branches
from happier.errors import SearchError
from happier.search.engine import Branch, EngineItems, Positions

__all__ = ["branches", "engine_items", "rows_within"]


def engine_items(manifest: Manifest) -> EngineItems:
    """What an engine may keep of each image."""
    ids = [str(one) for one in manifest.ids()]
    return EngineItems(ids, [str(one) for one in manifest.table["path"]], branches(manifest))


def rows_within(manifest: Manifest, within: str) -> Positions:
    """Rows of one branch, rising.

    Raises:
        SearchError: there is no such branch.
    """
    # A command line may hold bytes that are no text; no class has such a name.
    names = split_path(within.encode("utf-8", "replace").decode())
    inside = np.ones(len(manifest), dtype=bool)
    for level, name in zip(manifest.levels, names, strict=False):
        inside &= (manifest.table[level] == name).to_numpy(dtype=bool)
    if len(names) > len(manifest.levels) or not inside.any():
        raise SearchError(f"the taxonomy has no branch {within!r}{_nearby(manifest, names)}")
    return np.flatnonzero(inside)


def _nearby(manifest: Manifest, names: Branch) -> str:
    """For an error: what there is where the path goes wrong."""
    table = manifest.table
    inside = pd.Series(True, index=table.index)
    for depth, (level, name) in enumerate(zip(manifest.levels, names, strict=False)):
        further = inside & (table[level] == name)
        if not further.any():
            have = sorted(set(table[level][inside]) - {""})
            where = f"{'/'.join(names[:depth])!r} has" if depth else "it begins with"
            return f"; {where} {', '.join(have[:8])}{', ...' if len(have) > 8 else ''}"
        inside = further
    return f"; it has {len(manifest.levels)} levels: {', '.join(manifest.levels)}"
