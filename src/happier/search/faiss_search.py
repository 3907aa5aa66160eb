"""FAISS's search with parameters, after other packages took the parameters away.

``faiss.contrib.torch_utils``, which pytorch-metric-learning imports, replaces the methods of every FAISS
index by some that take tensors too, but no ``params``. Both our own engine and milvus-lite, which runs in
this process, need them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["restore_search"]


def restore_search() -> None:
    """Let every FAISS index take ``params`` again; tensors stay welcome. Nothing to do without FAISS."""
    faiss: Any = sys.modules.get("faiss")
    if faiss is None or "search_numpy" not in vars(faiss.Index) or faiss.Index.search.__name__ == "_search":
        return
    for kind in list(vars(faiss).values()):
        if isinstance(kind, type) and "search_numpy" in vars(kind):
            kind.search = _either(kind.search, kind.search_numpy)  # type: ignore[attr-defined]


def _either(replaced: Callable[..., Any], own: Callable[..., Any]) -> Callable[..., Any]:
    def _search(self: Any, x: Any, k: int, *rest: Any, params: Any = None, **more: Any) -> Any:
        if params is None:
            return replaced(self, x, k, *rest, **more)
        return own(self, x, k, *rest, params=params, **more)

    return _search
