"""The small world of drawings with models of it, and a data set to train on."""

from drawings import command, four_runs, runs, world
from shapes import cache, shapes, small

__all__ = ["cache", "command", "four_runs", "runs", "shapes", "small", "world"]
