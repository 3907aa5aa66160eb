"""The small world of drawings, and models of it."""

from drawings import command, four_runs, runs, world

__all__ = ["command", "four_runs", "runs", "world"]
