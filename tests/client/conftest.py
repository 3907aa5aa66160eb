"""A small catalogue of drawn shapes."""

from catalogue import explorer, photo, place

__all__ = ["explorer", "photo", "place"]
