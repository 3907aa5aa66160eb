"""``happier bench search`` on a small scale."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from happier.bench.search import bench_search, clustered_vectors
from happier.cli import app
from happier.errors import OptionError


def test_every_engine_is_measured_against_exact_search(tmp_path, postgres):
    found = list(bench_search(sizes=(3000,), dim=32, queries=64, place=tmp_path, uris=[postgres.uri]))
    assert [one.engine for one in found] == ["flat", "hnsw", "ivfpq", "milvus", "pgvector server"]
    assert found[0].whole.recall == found[0].branch.recall == 1.0
    for one in found:
        for speed in (one.whole, one.branch):
            assert speed.recall >= 0.95
            assert speed.single > 0
            assert speed.batched > 0
    assert list(tmp_path.iterdir()) == []


def test_the_vectors_are_unit_clustered_and_repeatable(tmp_path):
    first = np.array(clustered_vectors(tmp_path / "a", 500, 16, seed=3))
    second = np.array(clustered_vectors(tmp_path / "b", 500, 16, seed=3))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1, atol=1e-5)
    nearest = np.sort(first @ first.T, axis=1)[:, -2]
    assert np.median(nearest) > 0.6


def test_the_command_prints_one_line_per_result():
    arguments = ["bench", "search", "--size", "500", "--dim", "16", "--engine", "flat", "--engine", "hnsw"]
    printed = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False).stdout
    assert [json.loads(line)["engine"] for line in printed.splitlines()] == ["flat", "hnsw"]
    assert "recall@10" in CliRunner().invoke(app, arguments, catch_exceptions=False).stdout


def test_an_unknown_engine_is_refused():
    with pytest.raises(OptionError, match="engine must be one of"):
        list(bench_search(engines=["annoy"]))
