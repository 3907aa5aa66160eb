"""The compiled loss rounds the same in a process that compiles it and in one that loads it from the cache."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import torch
from happier.losses import HAPLoss
torch.manual_seed(0)
embeddings = torch.nn.functional.normalize(torch.randn(32, 64)).requires_grad_()
labels = torch.stack([torch.arange(32) // 8, torch.arange(32) // 4], 1)
HAPLoss()(embeddings, labels).backward()
print(embeddings.grad.numpy().tobytes().hex())
"""


@pytest.mark.slow
def test_compiling_and_loading_give_the_same_bits(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", SCRIPT]
    compiled, loaded = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert any(tmp_path.rglob("*.nbc"))
    assert compiled == loaded != ""
