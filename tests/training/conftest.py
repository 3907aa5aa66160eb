"""A small data set with held-out classes."""

from shapes import cache, shapes, small

__all__ = ["cache", "shapes", "small"]
