"""A small catalogue of drawn shapes."""

from catalogue import place

__all__ = ["place"]
