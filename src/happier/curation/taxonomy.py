"""Make a taxonomy for a manifest's classes, and compare two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from happier.arrays import Float32Array, IntArray
from happier.curation.labelled_vectors import LabelledVectors, read_labelled_vectors, relabelled
from happier.data import Manifest
from happier.data.taxonomies.agreement import (
    Agreement,
    class_triples,
    closest_by_tree,
    closest_by_vectors,
    compare_triples,
)
from happier.data.taxonomies.class_paths import ClassPaths, flat_classes, listed
from happier.data.taxonomies.clusters import class_means, cluster_taxonomy
from happier.data.taxonomies.inat import inat_taxonomy
from happier.data.taxonomies.table import read_taxonomy_table
from happier.data.taxonomies.wordnet import WordNet
from happier.data.taxonomies.wordnet_taxonomy import first_meanings, meanings_of, wordnet_taxonomy
from happier.encoder.features import Features
from happier.errors import OptionError, TaxonomyError, did_you_mean
from happier.progress import Progress

__all__ = ["KINDS", "TaxonomyOptions", "TreeComparison", "compare_taxonomies", "make_taxonomy"]

KINDS: Final = ("wordnet", "clusters", "table", "inat")


@dataclass(frozen=True)
class TaxonomyOptions:
    """How a taxonomy is made.

    Attributes:
        levels: names of the levels above the classes, coarse first; ranks for ``inat``.
        sizes: wanted number of branches of each level (``wordnet``, ``clusters``).
        first_meaning: ``wordnet``: take the most frequent meaning of names that have several.
    """

    levels: Sequence[str] | None = None
    sizes: Sequence[int] | None = None
    first_meaning: bool = False


def make_taxonomy(
    manifest: Manifest,
    kind: str,
    source: Path | None,
    *,
    choices: Path,
    options: TaxonomyOptions | None = None,
    progress: Progress | None = None,
) -> ClassPaths:
    """A taxonomy for the finest classes of a manifest.

    Args:
        manifest: whose classes need one; its other levels are not looked at.
        kind: one of `KINDS`.
        source: ``clusters``: an index, run, directory of vectors or array; ``table``: the table; ``wordnet``:
            the file of choices, once it is edited.
        choices: where ``wordnet`` writes the file to edit.
        options: how.
        progress: called with the images embedded and their number.

    Raises:
        OptionError: an unknown kind, or a source that is missing or not wanted.
        TaxonomyError: names that are not clear, or a table that does not fit.
    """
    options = options or TaxonomyOptions()
    if kind not in KINDS:
        raise OptionError(
            f"--from must be one of {', '.join(KINDS)}, got {kind!r}{did_you_mean(kind, KINDS)}"
        )
    if source is None and kind in ("clusters", "table"):
        needs = {"clusters": "an index, a run, embeddings or a .npy file", "table": "a table of classes"}
        raise OptionError(f"--from {kind} needs {needs[kind]} after the manifest")
    classes = flat_classes(manifest)
    if kind == "table":
        assert source is not None
        return read_taxonomy_table(source, classes, finest=manifest.levels[-1], levels=options.levels)
    if kind == "inat":
        return inat_taxonomy(classes, levels=options.levels, table=source)
    if kind == "clusters":
        assert source is not None
        means = _means(_vectors(source, manifest, progress), classes)
        return cluster_taxonomy(means, classes, levels=options.levels, sizes=options.sizes)
    return _by_wordnet(classes, source, choices, options)


def _by_wordnet(
    classes: Sequence[str], source: Path | None, choices: Path, options: TaxonomyOptions
) -> ClassPaths:
    wordnet = WordNet.fetch()
    if not options.first_meaning:
        meanings = meanings_of(wordnet, classes, choices=source, proposed=choices)
        return wordnet_taxonomy(wordnet, meanings, levels=options.levels, sizes=options.sizes)
    guessed, note = first_meanings(wordnet, classes)
    made = wordnet_taxonomy(wordnet, guessed, levels=options.levels, sizes=options.sizes)
    return ClassPaths(made.levels, made.paths, (note,))


def _vectors(source: Path, manifest: Manifest, progress: Progress | None) -> LabelledVectors:
    """The vectors of a manifest's images, with its labels."""
    if source.suffix == ".npy":
        return LabelledVectors(Features.from_array(source, manifest).vectors, manifest)
    return relabelled(read_labelled_vectors(source, progress=progress), manifest)


def _means(found: LabelledVectors, classes: Sequence[str]) -> Float32Array:
    number = {name: at for at, name in enumerate(classes)}
    finest = found.manifest.table[found.manifest.levels[-1]]
    labels = np.array([number.get(name, -1) for name in finest], dtype=np.int64)
    means = class_means(found.vectors, labels, len(classes))
    if lost := [classes[at] for at in np.flatnonzero(np.isnan(means).any(axis=1)).tolist()]:
        raise TaxonomyError(f"{len(lost)} classes have no vectors: {listed(lost)}; embed all images first")
    return means


@dataclass(frozen=True)
class TreeComparison:
    """How much two trees agree, and how well vectors fit each.

    Attributes:
        classes: number of classes that both have.
        trees: agreement of the two trees.
        vectors: agreement of class means with the first and with the second tree; None without vectors.
    """

    classes: int
    trees: Agreement
    vectors: tuple[Agreement, Agreement] | None = None


def compare_taxonomies(
    first: Manifest, second: Manifest, source: Path | None = None, *, progress: Progress | None = None
) -> TreeComparison:
    """Compare the trees of two manifests over the classes that both have, by their names.

    Args:
        first: one.
        second: the other.
        source: an index, run, directory of vectors or array of the first manifest's images.
        progress: called with the images embedded and their number.

    Raises:
        TaxonomyError: a name that stands for several classes.
        InputError: fewer than three classes in both.
    """
    theirs = set(flat_classes(second))
    classes = [name for name in flat_classes(first) if name in theirs]
    triples = class_triples(len(classes))
    closest = [closest_by_tree(_class_labels(one, classes), triples) for one in (first, second)]
    trees = compare_triples(closest[0], closest[1])
    if source is None:
        return TreeComparison(len(classes), trees)
    seen = closest_by_vectors(_means(_vectors(source, first, progress), classes), triples)
    return TreeComparison(
        len(classes), trees, (compare_triples(closest[0], seen), compare_triples(closest[1], seen))
    )


def _class_labels(manifest: Manifest, classes: Sequence[str]) -> IntArray:
    """The path of each class as numbers ``[classes, L]``."""
    finest = manifest.table[manifest.levels[-1]].tolist()
    row = {name: at for at, name in enumerate(finest)}
    return manifest.labels()[[row[name] for name in classes]]
