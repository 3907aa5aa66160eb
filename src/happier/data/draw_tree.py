"""A taxonomy as text: one line per class, with the number of its images and of the classes below it."""

from __future__ import annotations

from itertools import islice

from rich.text import Text
from rich.tree import Tree

from happier.data.class_tree import ClassNode, ClassTree

__all__ = ["class_counts", "draw_tree"]


def draw_tree(tree: ClassTree, *, within: str = "", depth: int | None = None, most: int = 20) -> Tree:
    """Draw a branch of a taxonomy for `rich.print`.

    Args:
        tree: the classes.
        within: the branch; the whole tree where it is empty.
        depth: levels to draw below the branch; all by default.
        most: children of one class to draw; 0 for all. The others are counted.

    Raises:
        SearchError: there is no such branch.
    """
    root = tree.node(within)
    drawn = Tree(_line(root, root.names[-1] if root.names else " > ".join(tree.levels)))
    _add(drawn, root, len(tree.levels) if depth is None else depth, most)
    return drawn


def class_counts(node: ClassNode) -> str:
    """How much is in a class, in words.

    >>> class_counts(ClassNode("", (), count=1234))
    '1,234 images'
    """
    images = f"{node.count:,} image{'s' if node.count != 1 else ''}"
    if not node.children:
        return images
    below, finest = len(node.children), node.leaves()
    classes = f"{below:,} below" if below == finest else f"{below:,} below, {finest:,} finest"
    return f"{images}, {classes}"


def _add(drawn: Tree, node: ClassNode, depth: int, most: int) -> None:
    if not depth:
        return
    children = node.children.values()
    for child in islice(children, most or None):
        _add(drawn.add(_line(child, child.names[-1])), child, depth - 1, most)
    if most and len(children) > most:
        drawn.add(Text(f"and {len(children) - most:,} more", style="dim"))


def _line(node: ClassNode, name: str) -> Text:
    return Text.assemble((name, "bold" if node.children else ""), "  ", (class_counts(node), "dim"))
