"""What is wrong with the classes of a manifest: their splits, their names, and the shape of their tree."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from happier.data.class_path import join
from happier.data.class_tree import ClassNode, ClassTree
from happier.data.finding import Finding
from happier.data.manifest import Manifest
from happier.taxonomy import UNKNOWN

NEARLY_EMPTY = 0.05
"""A branch with less than this share of the median of its level is nearly empty."""
NEARLY_ALL = 0.9
"""A branch with this share of its parent's images holds nearly all of them."""
_LEAST_IMAGES = 20  # fewer say nothing about shares
_LEAST_LETTERS = 5  # of a word in which one letter is a slip: "bat" and "cat" are two words


def class_findings(manifest: Manifest) -> list[Finding]:
    """Everything that the labels alone show."""
    levels = range(len(manifest.levels))
    return [
        _open_set_leak(manifest),
        *(_several_parents(manifest, level) for level in levels[1:]),
        *(_alike_names(manifest, level) for level in levels),
        _single_images(manifest),
        *_shape(ClassTree(manifest)),
    ]


def _open_set_leak(manifest: Manifest) -> Finding:
    fine, splits = manifest.labels()[:, -1], manifest.table["split"].to_numpy()
    classes = manifest.class_paths()
    both = np.intersect1d(fine[splits == "train"], fine[np.isin(splits, ["test", "query", "gallery"])])
    leaking = [int(np.flatnonzero(fine == own)[0]) for own in both if own != UNKNOWN]
    return Finding.of(
        "open-set-leak",
        "fine classes are in both train and test; `happier data split` makes an open-set split",
        leaking,
        (classes[row] for row in leaking),
    )


def _known_names(manifest: Manifest, level: int) -> Iterator[tuple[int, str]]:
    """Row and name of each label that is known at a level."""
    known = np.flatnonzero(manifest.labels()[:, level] != UNKNOWN)
    yield from zip(known.tolist(), manifest.table[manifest.levels[level]].iloc[known], strict=True)


def _several_parents(manifest: Manifest, level: int) -> Finding:
    codes, table = manifest.labels(), manifest.table
    first: dict[str, dict[int, int]] = defaultdict(dict)
    for row, label in _known_names(manifest, level):
        first[label].setdefault(int(codes[row, level]), row)
    several = {label: list(rows.values()) for label, rows in first.items() if len(rows) > 1}

    def place(row: int) -> str:
        return f"{join(table[list(manifest.levels[:level])].iloc[row])} ({table['path'].iloc[row]})"

    return Finding.of(
        "several-parents",
        f"names of level {manifest.levels[level]} are below several parents, and count as different classes",
        [row for rows in several.values() for row in rows],
        (f"{label!r}: " + "; ".join(map(place, rows)) for label, rows in several.items()),
        fault=False,
    )


def _single_images(manifest: Manifest) -> Finding:
    fine, paths, classes = manifest.labels()[:, -1], manifest.table["path"].tolist(), manifest.class_paths()
    known = np.flatnonzero(fine != UNKNOWN)
    # A query needs another image of its class to find, wherever it is searched.
    _, where, counts = np.unique(fine[known], return_index=True, return_counts=True)
    single = sorted(known[where[counts == 1]].tolist())
    return Finding.of(
        "single-image-classes",
        "fine classes have one image: no other image can be found for it",
        single,
        (f"{classes[row]} ({paths[row]})" for row in single),
        fault=False,
    )


def _alike_names(manifest: Manifest, level: int) -> Finding:
    codes = manifest.labels()
    siblings: dict[int, dict[str, int]] = defaultdict(dict)
    for row, label in _known_names(manifest, level):
        siblings[int(codes[row, level - 1]) if level else 0].setdefault(label, row)
    alike = [
        {name: names[name] for name in group}
        for names in siblings.values()
        for group in alike_names([*names])
    ]
    return Finding.of(
        "alike-names",
        f"names of level {manifest.levels[level]} differ only in case, spaces, plural or one letter",
        [row for names in alike for row in names.values()],
        (" / ".join(map(repr, names)) for names in alike),
        fault=False,
    )


def alike_names(names: list[str]) -> list[tuple[str, ...]]:
    """Groups of names that differ only in case, spaces and hyphens, in plural, or in one letter of a word.

    One letter is one that is missing, too many, another, or two that are exchanged, in a word of five letters
    or more, not at its start.

    >>> alike_names(["Owls", "owl", "sparrow", "sparow", "T-shirt", "t shirt", "bat", "cat", "no 1", "no 2"])
    [('Owls', 'owl'), ('sparrow', 'sparow'), ('T-shirt', 't shirt')]
    """
    group = {name: name for name in names}

    def first(name: str) -> str:
        while group[name] != name:
            name = group[name]
        return name

    seen: dict[object, list[str]] = defaultdict(list)
    for name in names:
        words = re.split(r"[\s_-]+", name.casefold().strip())
        keys: set[object] = {"".join([*words[:-1], singular(words[-1])])}
        for at, word in enumerate(words):
            if len(word) >= _LEAST_LETTERS and word.isalpha():
                # Words that differ by one letter are equal where one letter of each, or of one, is left out.
                shorter = {word[:place] + word[place + 1 :] for place in range(1, len(word))}
                keys |= {(at, *words[:at], part, *words[at + 1 :]) for part in {word, *shorter}}
        for key in keys:
            for other in seen[key]:
                if isinstance(key, str) or _one_letter(name.casefold(), other.casefold()):
                    group[first(name)] = first(other)
            seen[key].append(name)
    found: dict[str, list[str]] = defaultdict(list)
    for name in names:
        found[first(name)].append(name)
    return [tuple(members) for members in found.values() if len(members) > 1]


def _one_letter(first: str, second: str) -> bool:
    """Whether two texts differ by one letter: missing, another, or two exchanged."""
    while first and second and first[0] == second[0]:
        first, second = first[1:], second[1:]
    while first and second and first[-1] == second[-1]:
        first, second = first[:-1], second[:-1]
    exchanged = len(first) == len(second) == 2 and first == second[::-1]
    return exchanged or (len(first) <= 1 and len(second) <= 1 and (first + second).isalpha())


def singular(word: str) -> str:
    """An English word without its plural ending, well enough to compare two of them.

    >>> [singular(word) for word in ("berries", "foxes", "owls", "glass", "bus")]
    ['berry', 'fox', 'owl', 'glass', 'bus']
    """
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    if re.search(r"(s|x|z|ch|sh)es$", word):
        return word[:-2]
    return word[:-1] if len(word) > 3 and re.search(r"[^siu]s$", word) else word


def _shape(tree: ClassTree) -> list[Finding]:
    depth = len(tree.levels)
    inner = [node for node in tree if len(node.names) < depth]
    # Where no class of a level has a second child, the level itself is at fault: `repeated-level` says so.
    dividing = {len(node.names) for node in inner if len(node.children) > 1}
    chains = [node for node in inner if len(node.children) == 1 and len(node.names) in dividing]
    return [
        _of_nodes("single-child", "classes have only one class below them, which adds no level", chains),
        _of_nodes(
            "nearly-empty-branch",
            f"branches have less than {NEARLY_EMPTY:.0%} of the images that are usual at their level",
            [node for level in range(1, depth) for node in _nearly_empty(inner, level)],
        ),
        _of_nodes(
            "dominant-branch",
            f"branches hold {NEARLY_ALL:.0%} or more of their parent's images: their level says little there",
            [node for parent in (tree.root, *inner) for node in _dominant(parent, depth)],
        ),
    ]


def _of_nodes(kind: str, message: str, nodes: list[ClassNode]) -> Finding:
    shown = (f"{node.path} ({node.count:,} images)" for node in nodes)
    return Finding.of(kind, message, [int(node.rows[0]) for node in nodes], shown, fault=False)


def _nearly_empty(inner: list[ClassNode], level: int) -> list[ClassNode]:
    nodes = [node for node in inner if len(node.names) == level]
    usual = float(np.median([node.count for node in nodes])) if nodes else 0.0
    return [node for node in nodes if node.count < NEARLY_EMPTY * usual]


def _dominant(parent: ClassNode, depth: int) -> list[ClassNode]:
    if len(parent.children) < 2 or len(parent.names) + 1 >= depth or parent.count < _LEAST_IMAGES:
        return []
    return [node for node in parent.children.values() if node.count >= NEARLY_ALL * parent.count]
