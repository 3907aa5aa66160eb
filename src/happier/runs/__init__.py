"""Runs of ``happier train``: their directories, and the vectors that an evaluation needs from them."""

from happier.extras import needs_extra

with needs_extra("train"):
    from happier.runs.run import Run, read_run
    from happier.runs.run_directory import RunDirectory

__all__ = ["Run", "RunDirectory", "read_run"]
