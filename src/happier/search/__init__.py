"""Index build and query; engines behind one small protocol."""

from happier.search.engine import ENGINES
from happier.search.index import Hit, Index
from happier.search.recall import measure_recall

__all__ = ["ENGINES", "Hit", "Index", "measure_recall"]
