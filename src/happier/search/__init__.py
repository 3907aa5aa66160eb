"""Index build and query; engines behind one small protocol."""

from happier.extras import needs_extra

with needs_extra("search"):
    from happier.search.build import build_index, extend_index
    from happier.search.engine import ENGINES
    from happier.search.identify import Identification
    from happier.search.index import Hit, Index
    from happier.search.recall import measure_recall

__all__ = ["ENGINES", "Hit", "Identification", "Index", "build_index", "extend_index", "measure_recall"]
