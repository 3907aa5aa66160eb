"""Random trees and batches, and the slow reference as a fixture."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch


@pytest.fixture(scope="session")
def reference():
    spec = importlib.util.spec_from_file_location("losses_reference", Path(__file__).parent / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _batch(seed, *, items=12, depth=3, dim=5, branching=2, unknown=0.0, dtype=torch.float64):
    """Unit vectors and label rows of a random tree, siblings being near each other."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, branching, size=(items, depth))
    for row in labels:
        if rng.random() < unknown:
            row[rng.integers(0, depth) :] = -1
    centres = rng.normal(size=(depth, branching, dim))
    vectors = 0.6 * rng.normal(size=(items, dim))
    for level in range(depth):
        vectors += centres[level, labels[:, level]]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return torch.tensor(vectors, dtype=dtype), torch.tensor(labels)


@pytest.fixture(scope="session")
def make_batch():
    return _batch
