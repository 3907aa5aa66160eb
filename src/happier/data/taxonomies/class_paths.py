"""Classes and the names above each of them: what every way of making a taxonomy returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from happier.data.manifest import RESERVED, Manifest
from happier.errors import OptionError, TaxonomyError

__all__ = ["ClassPaths", "flat_classes", "listed", "with_taxonomy"]

_SHOWN = 8


@dataclass(frozen=True)
class ClassPaths:
    """A taxonomy over classes.

    Attributes:
        levels: names of the levels above the classes, coarse first.
        paths: for each class the names above it, coarse first.
        notes: what a person should know about how it was made.
    """

    levels: tuple[str, ...]
    paths: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...] = field(default=())


def flat_classes(manifest: Manifest) -> list[str]:
    """The finest classes of a manifest by their names alone, sorted.

    Raises:
        TaxonomyError: fewer than two, or one name that stands for several classes.
    """
    finest = manifest.levels[-1]
    known = manifest.table[manifest.table[finest] != ""]
    names = sorted(set(known[finest]))
    if len(names) < 2:
        raise TaxonomyError(f"a taxonomy needs two classes or more; level {finest} has {len(names)}")
    places = known[list(manifest.levels)].drop_duplicates()
    if twice := sorted(set(places[finest][places[finest].duplicated()])):
        raise TaxonomyError(
            f"{len(twice)} names of level {finest} stand for several classes: {listed(twice)}; rename them"
        )
    return names


def with_taxonomy(manifest: Manifest, new: ClassPaths) -> Manifest:
    """The same images with the levels of a new taxonomy above their finest class.

    Images without a finest label have no label in the new tree. The old levels above the finest are left out.

    Raises:
        OptionError: a level's name is taken.
        TaxonomyError: a class has no place in the new tree.
    """
    finest = manifest.levels[-1]
    if taken := [name for name in new.levels if name in (*RESERVED, finest)]:
        raise OptionError(f"a new level cannot be named {taken[0]!r}: there is a column of that name")
    names = manifest.table[finest]
    if lost := sorted(set(names) - set(new.paths) - {""}):
        raise TaxonomyError(f"{len(lost)} classes have no place in the taxonomy: {listed(lost)}")
    table = manifest.table.drop(columns=[*manifest.levels[:-1]])
    above = {
        level: [new.paths[name][at] if name else "" for name in names] for at, level in enumerate(new.levels)
    }
    return Manifest(
        table.assign(**above),
        levels=(*new.levels, finest),
        root=manifest.root,
        name=manifest.name,
        credits=manifest.credits,
    )


def listed(names: Sequence[str]) -> str:
    """The first few names, for a message.

    >>> listed(["owl", "emu"])
    'owl, emu'
    """
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
