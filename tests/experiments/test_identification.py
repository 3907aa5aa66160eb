"""Draws of queries and new classes, and the tables of what was named."""

import numpy as np
import pandas as pd
import pytest

from experiments import identification
from happier.data import Manifest
from happier.errors import ConfigError


@pytest.fixture
def small_set(monkeypatch):
    """Two kinds of four classes each, well apart."""
    rows = [(f"{c}/{i}.png", "test", f"kind {c // 4}", f"class {c}") for c in range(8) for i in range(12)]
    table = pd.DataFrame(rows, columns=["path", "split", "kind", "class"])
    manifest = Manifest(table, levels=["kind", "class"], root=".")
    centres = 2 * np.eye(10)[np.repeat([0, 1], 48)] + np.eye(10)[2 + np.repeat(np.arange(8), 12)]
    vectors = centres + 0.3 * np.random.default_rng(0).normal(size=centres.shape)
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    monkeypatch.setattr(identification, "_read", lambda name: (manifest, unit))


def test_every_method_and_level_has_a_row(small_set):
    text = identification.identification_report("emoji", seeds=(0, 1))
    head, methods, levels = text.split("\n\n")
    assert head.startswith("emoji: ")
    assert head.endswith("mean of 2 draws")
    names = [line.split(" | ")[0].removeprefix("| ") for line in methods.splitlines()[2:]]
    assert names[:3] == ["down the tree", "without the tree", "nearest neighbour"]
    assert [line.split(" | ")[0] for line in levels.splitlines()[2:]] == ["| kind", "| class"]
    assert len({line.count("|") for line in methods.splitlines()}) == 1


def test_exact_probabilities_err_less_with_more_queries():
    generator = np.random.default_rng(0)
    few, many = (identification.exact_error(generator.random(n), generator) for n in (200, 20_000))
    assert 0 < many < few < 0.2


def test_an_unknown_set_is_one_line():
    with pytest.raises(ConfigError, match=r"no set .emojis."):
        identification.identification_report("emojis")
