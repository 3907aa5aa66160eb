"""The taxonomy of an index as nodes to browse: names, counts, children."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from happier.data.class_path import split as split_path
from happier.errors import SearchError
from happier.search.branch_rows import branches
from happier.search.index import Index


@dataclass
class Node:
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
    children: dict[str, Node] = field(default_factory=dict)
    rows: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


class Tree:
    """All classes of an index."""

    def __init__(self, index: Index) -> None:
        self.root = Node("", ())
        rows: dict[str, list[int]] = {"": []}
        nodes = {"": self.root}
        for row, names in enumerate(branches(index.items)):
            node = self.root
            rows[""].append(row)
            for depth, name in enumerate(names, start=1):
                child = node.children.get(name)
                if child is None:
                    child = node.children[name] = Node(join_path(names[:depth]), names[:depth])
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

    def node(self, path: str) -> Node:
        """The class at a path; the whole tree for an empty one.

        Raises:
            SearchError: there is none.
        """
        node = self._nodes.get(join_path(split_path(path)))
        if node is None:
            raise SearchError(f"the taxonomy has no class {path!r}")
        return node

    def find(self, text: str, limit: int) -> list[Node]:
        """Classes whose name contains the text, ignoring case; shorter names and coarser classes first."""
        wanted = text.casefold()
        hits = [node for node in self if wanted in node.names[-1].casefold()]
        hits.sort(key=lambda node: (len(node.names[-1]), len(node.names), node.path))
        return hits[:limit]

    def __iter__(self) -> Iterator[Node]:
        return (node for path, node in self._nodes.items() if path)


def join_path(names: Sequence[str]) -> str:
    """Names as one path; a slash within a name is written with a backslash before it."""
    return "/".join(name.replace("/", r"\/") for name in names)


def _natural(name: str) -> tuple[int, int, str]:
    """Numbers in the order of their value, before words."""
    return (0, int(name), name) if name.isdecimal() else (1, 0, name.casefold())
