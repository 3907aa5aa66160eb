"""A taxonomy from the names of classes: what each is a kind of, by WordNet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from happier.data.taxonomies.class_paths import ClassPaths, listed
from happier.data.taxonomies.meaning_choices import read_choices, unclear_meanings, write_choices
from happier.data.taxonomies.nested_cuts import TreeNode, cut_paths, default_sizes, level_names
from happier.data.taxonomies.wordnet import Meaning, WordNet
from happier.errors import TaxonomyError

__all__ = ["first_meanings", "meanings_of", "wordnet_taxonomy", "wordnet_tree"]

OTHER: Final = "other"


def meanings_of(
    wordnet: WordNet, classes: Sequence[str], *, choices: Path | None, proposed: Path
) -> dict[str, Meaning | None]:
    """The meaning of every class: the only one that its name has, or the one that a person chose.

    Args:
        wordnet: the nouns.
        classes: names.
        choices: the file that a person has edited; None where there is none yet.
        proposed: where to write the file to edit, if some name is not clear.

    Raises:
        TaxonomyError: some are not clear, and not chosen; the file to edit was written.
    """
    clear, unclear = unclear_meanings(wordnet, classes)
    chosen = read_choices(choices, wordnet, classes) if choices is not None else {}
    if rest := [name for name in unclear if name not in chosen]:
        write_choices(proposed, wordnet, rest)
        lost = [name for name in rest if not wordnet.meanings(name)]
        raise TaxonomyError(
            f"{len(rest)} of {len(classes)} classes are not clear: {len(rest) - len(lost)} have several "
            f"meanings, {len(lost)} are not in WordNet ({listed(lost or rest)}); put an x beside the right "
            f"meanings in {proposed}, then give that file after --from wordnet"
        )
    return {**clear, **chosen}


def first_meanings(wordnet: WordNet, classes: Sequence[str]) -> tuple[dict[str, Meaning | None], str]:
    """The most frequent meaning of every class, if need be of its name's last words; and what was guessed."""
    clear, unclear = unclear_meanings(wordnet, classes)
    found: dict[str, Meaning | None] = dict(clear)
    for name in unclear:
        meanings = wordnet.meanings(name) or wordnet.guesses(name)
        found[name] = meanings[0] if meanings else None
    lost = [name for name, meaning in found.items() if meaning is None]
    note = f"{len(unclear) - len(lost)} of {len(classes)} names were given their most frequent meaning unseen"
    if lost:
        note += f"; {len(lost)} that WordNet lacks are below {OTHER!r}: {listed(lost)}"
    return found, note


def wordnet_taxonomy(
    wordnet: WordNet,
    meanings: Mapping[str, Meaning | None],
    *,
    levels: Sequence[str] | None = None,
    sizes: Sequence[int] | None = None,
) -> ClassPaths:
    """Cut the tree of what the classes are kinds of into levels.

    Args:
        wordnet: the nouns.
        meanings: of each class; None puts it below "other".
        levels: names of the levels above the classes, coarse first; two by default.
        sizes: number of branches of each level; by default it grows by the same factor at each level.

    Raises:
        OptionError: sizes that do not fit.
    """
    names = level_names(levels, sizes)
    tree = wordnet_tree(wordnet, meanings)
    return ClassPaths(names, cut_paths(tree, sizes or default_sizes(len(meanings), len(names))))


def wordnet_tree(wordnet: WordNet, meanings: Mapping[str, Meaning | None]) -> TreeNode:
    """The tree of the classes' meanings; meanings with one branch below them are folded away.

    Of the branches of a meaning, those with a single class come together as "other ...".
    """
    children: dict[int, dict[int, Meaning]] = {}
    own: dict[int, list[str]] = {}
    root: Meaning | None = None
    for name, meaning in meanings.items():
        if meaning is None:
            continue
        path = wordnet.ancestors(meaning)
        root = path[0]
        for above, below in pairwise(path):
            children.setdefault(above.offset, {})[below.offset] = below
        own.setdefault(meaning.offset, []).append(name)
    lost = [name for name, meaning in meanings.items() if meaning is None]
    other = TreeNode(OTHER, lost, weight=float(len(lost)))
    if root is None:
        raise TaxonomyError("no class has a meaning in WordNet: there is nothing to build a tree from")

    def build(meaning: Meaning) -> TreeNode:
        below = [build(child) for child in children.get(meaning.offset, {}).values()]
        below += [TreeNode(name, [name]) for name in own.get(meaning.offset, ())]
        if len(below) == 1:
            return below[0]
        classes = [name for node in below for name in node.classes]
        below = _gathered(below, meaning.name)
        # A meaning with nothing but single classes below it is a branch, not to be divided further.
        divided = below if any(len(node.classes) > 1 for node in below) else []
        return TreeNode(meaning.name, classes, divided, weight=float(len(classes)))

    tree = build(root)
    if not lost:
        return tree
    branches = [*(tree.children or [tree]), other]
    return TreeNode(tree.name, tree.classes + lost, branches, tree.weight + len(lost))


def _gathered(nodes: list[TreeNode], parent: str) -> list[TreeNode]:
    single = [node for node in nodes if len(node.classes) == 1]
    if len(single) < 2 or len(single) == len(nodes):
        return nodes
    rest = TreeNode(f"{OTHER} {parent}", [node.classes[0] for node in single], weight=float(len(single)))
    return [*(node for node in nodes if len(node.classes) > 1), rest]
