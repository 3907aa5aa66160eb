"""The taxonomy of a manifest as nodes to browse and to draw: names, counts, children."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from happier.data.class_path import join
from happier.data.class_path import split as split_path
from happier.data.manifest import Manifest
from happier.errors import SearchError

__all__ = ["ClassNode", "ClassTree", "branches"]


def branches(manifest: Manifest) -> list[tuple[str, ...]]:
    """Class names of each row, coarse first, down to what is known."""
    columns = [manifest.table[level].tolist() for level in manifest.levels]
    return [tuple(name for name in names if name) for names in zip(*columns, strict=True)]


@dataclass
class ClassNode:
    """A class, or the whole tree where the path is empty.

    Attributes:
        path: as ``coarse/.../this``.
        names: the same as a list.
        count: images at or below it.
        children: one level finer, by name.
        rows: images at or below it, rising.
    """

    path: str
    names: tuple[str, ...]
    count: int = 0
    children: dict[str, ClassNode] = field(default_factory=dict)
    rows: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def leaves(self) -> int:
        """Number of classes without children at or below it."""
        return sum(child.leaves() for child in self.children.values()) if self.children else 1


class ClassTree:
    """All classes of a manifest.

    Attributes:
        root: the whole tree.
        levels: level names, coarse first.
    """

    def __init__(self, manifest: Manifest) -> None:
        self.root = ClassNode("", ())
        self.levels = manifest.levels
        rows: dict[str, list[int]] = {"": []}
        nodes = {"": self.root}
        for row, names in enumerate(branches(manifest)):
            node = self.root
            rows[""].append(row)
            for depth, name in enumerate(names, start=1):
                child = node.children.get(name)
                if child is None:
                    child = node.children[name] = ClassNode(join(names[:depth]), names[:depth])
                    nodes[child.path], rows[child.path] = child, []
                node = child
                rows[node.path].append(row)
        for path, node in nodes.items():
            node.rows = np.asarray(rows[path], dtype=np.int64)
            node.count = len(node.rows)
            node.children = dict(sorted(node.children.items(), key=lambda pair: _natural(pair[0])))
        self._nodes = nodes

    def __len__(self) -> int:
        return len(self._nodes) - 1

    def node(self, path: str) -> ClassNode:
        """The class at a path; the whole tree for an empty one.

        Raises:
            SearchError: there is none.
        """
        node = self.root
        for name in split_path(path):
            if name not in node.children:
                have = ", ".join(list(node.children)[:8]) + (", ..." if len(node.children) > 8 else "")
                where = f"{node.path!r} has" if node.names else "it begins with"
                raise SearchError(f"the taxonomy has no class {path!r}; {where} {have or 'none below it'}")
            node = node.children[name]
        return node

    def find(self, text: str, limit: int) -> list[ClassNode]:
        """Classes whose name contains the text, ignoring case; shorter names and coarser classes first."""
        wanted = text.casefold()
        hits = [node for node in self if wanted in node.names[-1].casefold()]
        hits.sort(key=lambda node: (len(node.names[-1]), len(node.names), node.path))
        return hits[:limit]

    def __iter__(self) -> Iterator[ClassNode]:
        return (node for path, node in self._nodes.items() if path)


def _natural(name: str) -> tuple[int, int, str]:
    """Numbers in the order of their value, before words."""
    return (0, int(name), name) if name.isdecimal() else (1, 0, name.casefold())
