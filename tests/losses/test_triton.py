"""The Triton kernels without a GPU: run by Triton's interpreter, and compiled ahead of time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from happier.losses import HAPLoss, ranking

HERE = Path(__file__).parent


def run(script, *arguments, interpret):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    command = [sys.executable, str(HERE / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_interpreted_kernels_equal_the_loops():
    """Every ranking loss, value and gradient; trees of 1 to 7 levels, ties, unknown labels, half floats."""
    pytest.importorskip("triton")
    assert run("triton_interpreted.py", interpret=True).count("same") == 19


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["sm_80", "sm_90", "gfx942"])
def test_compiled_kernels_spill_nothing(gpu):
    """Each line of the script is one kernel: bytes spilt, bytes of shared memory."""
    pytest.importorskip("triton")
    lines = run("triton_compiled.py", gpu, interpret=False).splitlines()
    assert len(lines) == 8
    for line in lines:
        spilt, shared = map(int, re.fullmatch(r"\S+ \S+ spilt (\d+) shared (\d+)", line).groups())
        assert spilt == 0, line
        assert shared <= 48 * 1024, line  # what every GPU gives a block without asking


def test_without_a_gpu_torch_takes_over_with_one_warning(monkeypatch, make_batch):
    """The default on a GPU; here the real kernels fail, since there is no driver."""
    if torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("Triton works here")
    monkeypatch.setattr(ranking, "_TRITON_FAILED", [])
    monkeypatch.setattr(ranking, "_default_engine", lambda scores: ranking._TRITON_OR_TORCH)
    embeddings, labels = make_batch(0)
    with pytest.warns(RuntimeWarning, match="use plain torch, which is slower"):
        value = HAPLoss()(embeddings.float(), labels)
    torch.testing.assert_close(value, HAPLoss(engine="torch")(embeddings.float(), labels))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        HAPLoss()(embeddings.float(), labels)
