"""Where numba may keep nothing, everything works, only slower to start."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import torch
from happier.numba_cache import CACHE
from happier.metrics import graded_h_ap

print(CACHE, graded_h_ap(torch.tensor([[1.0, 0.5, 0.0]])).tolist())
"""


def run(**environment):
    command = [sys.executable, "-W", "error", "-c", PROGRAM]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )


def test_metrics_work_where_nothing_can_be_written():
    # The one way to find a place that is left is that of notebooks: there is none, as in a read-only system.
    none = run(NUMBA_CACHE_LOCATOR_CLASSES="IPythonCacheLocator")
    assert none.stdout.split() == ["False", "[1.0]"]
    assert "NUMBA_CACHE_DIR" in none.stderr


def test_compiled_code_is_kept_in_the_folder_that_is_named(tmp_path):
    kept = run(NUMBA_CACHE_DIR=str(tmp_path))
    assert kept.stdout.split() == ["True", "[1.0]"]
    assert kept.stderr == ""
    assert list(tmp_path.rglob("*.nbc"))
