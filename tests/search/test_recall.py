"""The recall that an index promises: measured when it is built, reached by searching harder."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from happier.cli import app
from happier.data import Manifest
from happier.errors import OptionError
from happier.search import Index, measure_recall
from happier.search.index_json import IndexRecall
from happier.search.recall import RecallProbe
from happier.search.scope import make_scope

MODEL = "a" * 64


def random_catalogue(count, dim, *, seed=0):
    """Vectors without any structure, the hardest there are, in a tree that says nothing about them."""
    generator = np.random.default_rng(seed)
    vectors = generator.standard_normal((count, dim)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    table = pd.DataFrame(
        {
            "path": [f"{seed}-{number}.png" for number in range(count)],
            "split": "test",
            "kind": [f"kind {number % 3}" for number in range(count)],
            "item": [f"item {number % 9}" for number in range(count)],
        }
    )
    return Manifest(table, levels=["kind", "item"], root="/images"), vectors


def build(tmp_path, manifest, vectors, engine, **options):
    if engine == "milvus":
        options.setdefault("uri", str(tmp_path / "catalogue.db"))
    return Index.build(
        tmp_path / "index", manifest, vectors, fingerprint=MODEL, engine=engine, options=options
    )


def slow_recall(index, rows, k, within=None):
    """The definition: compare with everything, count what was found."""
    inside = [row for row, path in enumerate(index.class_paths) if not within or path.startswith(within)]
    hit = 0
    for row in rows:
        query = index.vector(row)
        scored = sorted((-float(index.vector(other) @ query), other) for other in inside if other != row)
        exact = {other for _, other in scored[:k]}
        found = index.search(query[None], k=k, within=within, exclude=[row])[0]
        hit += len(exact & {hit.row for hit in found})
    return hit / (k * len(rows))


@pytest.fixture
def no_scan(monkeypatch):
    """Small branches are scanned; here they are to be searched by the engine."""
    monkeypatch.setattr("happier.search.faiss_engine.SCAN_ROWS", 0)
    monkeypatch.setattr("happier.search.faiss_engine._ROWS_A_STEP", 0)
    monkeypatch.setattr("happier.search.milvus_engine.SCAN_ROWS", 0)
    monkeypatch.setattr("happier.search.pgvector_engine.SCAN_ROWS", 0)


@pytest.mark.parametrize(
    ("engine", "start"),
    [
        ("hnsw", {"effort": 8, "build_effort": 16, "neighbours": 4}),
        ("ivfpq", {"probes": 1, "candidates": 1}),
        ("milvus", {}),
        pytest.param("milvus server", {"effort": 10}, marks=pytest.mark.slow),
        ("pgvector", {"effort": 10}),
    ],
)
def test_the_effort_is_raised_until_the_recall_is_reached(
    tmp_path, engine, start, no_scan, request, monkeypatch
):
    if engine == "pgvector":
        start = {**start, "uri": request.getfixturevalue("postgres").uri}
        # PostgreSQL would rather read a table as small as this from end to end.
        monkeypatch.setenv("PGOPTIONS", "-c enable_seqscan=off")
    if engine == "milvus server":
        start = {**start, "uri": request.getfixturevalue("milvus_server").uri}
    manifest, vectors = random_catalogue(3000, 32)
    index = build(tmp_path, manifest, vectors, engine.removesuffix(" server"), recall=0.9, **start)
    recall = index.head.recall
    assert recall.kept
    assert recall.target == 0.9
    assert recall.inside is not None
    rows = np.random.default_rng(1).choice(3000, 60, replace=False).tolist()
    assert slow_recall(index, rows, 10) >= 0.85
    for within in ("kind 0", "kind 1/item 4"):
        assert slow_recall(index, rows[:30], 10, within) >= 0.8
    if engine in ("hnsw", "ivfpq"):  # milvus-lite looks at everything anyway; pgvector's graph begins wider
        assert any(index.effort[name] > value for name, value in start.items() if name in index.effort)
    index.close()


def test_a_higher_promise_takes_more_effort(tmp_path):
    manifest, vectors = random_catalogue(3000, 32)
    efforts = []
    for number, recall in enumerate((0.5, 0.95)):
        (tmp_path / str(number)).mkdir()
        index = build(
            tmp_path / str(number), manifest, vectors, "hnsw", recall=recall, effort=8, neighbours=4
        )
        efforts.append(index.effort["effort"])
        assert index.head.recall.kept
    assert efforts[0] < efforts[1]


def test_a_promise_that_cannot_be_kept_is_said(tmp_path, caplog):
    # One byte for 32 dimensions: most of the answer is not among the candidates, however many lists are read.
    manifest, vectors = random_catalogue(4000, 32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("happier.search.faiss_engine.MAX_CANDIDATES", 4)
        index = build(tmp_path, manifest, vectors, "ivfpq", code_bytes=1, candidates=2)
    assert not index.head.recall.kept
    assert index.head.recall.whole < 0.95
    assert "not reached at the highest effort; --engine flat is exact" in caplog.text


def test_recall_is_measured_again_when_the_index_has_grown(tmp_path):
    manifest, vectors = random_catalogue(2000, 32)
    index = build(tmp_path, manifest.take(range(1000)), vectors[:1000], "hnsw")
    index.add(manifest.take(range(1000, 1100)), vectors[1000:1100], fingerprint=MODEL)
    assert index.head.recall.rows == 1000
    index.add(manifest.take(range(1100, 2000)), vectors[1100:], fingerprint=MODEL)
    assert index.head.recall.rows == 2000
    index.delete(index.ids[:600])
    assert index.head.recall.rows == 1400


def test_the_measure_is_its_definition(tmp_path):
    manifest, vectors = random_catalogue(600, 16)
    index = build(tmp_path, manifest, vectors, "hnsw", recall=0.01, effort=1, neighbours=2)
    rows = list(range(0, 600, 7))
    probe = RecallProbe.make(index.scope(), np.array(rows), 10)
    assert probe.recall(index._now.engine) == pytest.approx(slow_recall(index, rows, 10), abs=1e-9)
    assert probe.recall(index._now.engine) < 0.99
    flat = Index.build(tmp_path / "flat", manifest, vectors, fingerprint=MODEL)
    assert measure_recall(flat) == 1
    assert flat.head.recall is None


def test_branches_that_are_scanned_need_no_promise(tmp_path):
    manifest, vectors = random_catalogue(600, 16)
    index = build(tmp_path, manifest, vectors, "hnsw")
    assert index.head.recall.inside is None
    scope = make_scope(manifest, np.arange(600), vectors, "kind 0")
    assert RecallProbe.make(scope, np.arange(20), 10).recall(index._now.engine) == 1


@pytest.mark.parametrize("recall", [0, -0.1, 1.5, True, "much", float("nan")])
def test_a_promise_is_a_share(tmp_path, recall):
    manifest, vectors = random_catalogue(300, 8)
    for engine in ("flat", "hnsw"):
        with pytest.raises(OptionError, match="a number above 0 and up to 1"):
            build(tmp_path, manifest, vectors, engine, recall=recall)


def test_what_is_said_about_it():
    recall = IndexRecall(k=10, target=0.95, whole=0.961, inside=0.97, rows=10)
    assert recall.kept
    assert recall.describe() == "recall@10 0.961 (0.970 in the worst branch), 0.95 asked for"
    assert not IndexRecall(k=10, target=0.95, whole=0.961, inside=0.9, rows=10).kept
    assert "exact in branches" in IndexRecall(k=10, target=0.95, whole=1.0, inside=None, rows=10).describe()


def test_the_command_describes_an_index(tmp_path):
    manifest, vectors = random_catalogue(300, 8)
    build(tmp_path, manifest, vectors, "hnsw")
    printed = CliRunner().invoke(app, ["index", "--info", str(tmp_path / "index")], catch_exceptions=False)
    assert printed.exit_code == 0
    assert "300, 0 deleted rows" in printed.stdout
    assert "effort 96" in printed.stdout
    assert "recall@10 1.000 (exact in branches), 0.95 asked for" in printed.stdout
    Index.build(tmp_path / "flat", manifest, vectors, fingerprint=MODEL)
    printed = CliRunner().invoke(app, ["index", "--info", str(tmp_path / "flat")], catch_exceptions=False)
    assert "exact" in printed.stdout
    assert json.loads((tmp_path / "flat" / "index.json").read_text())["recall"] is None
