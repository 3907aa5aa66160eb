"""Every image as a query: the same first results as `happier.evaluate` ranks, and stopped when told to."""

from __future__ import annotations

import threading

import numpy as np
import pandas as pd
import pytest

from happier.data import Manifest
from happier.evaluation import evaluate, retrieve
from happier.search import Index
from happier.web.analysis import SHOWN, analyse
from happier.web.explorer import Explorer
from happier.web.workers import Workers


def make_index(directory, count, *, seed=0):
    generator = np.random.default_rng(seed)
    item = generator.integers(0, 24, count)
    table = pd.DataFrame(
        {
            "path": [f"{number}.png" for number in range(count)],
            "split": "test",
            "kind": [f"kind {number // 6}" for number in item],
            "item": [f"item {number}" for number in item],
        }
    )
    table.loc[table.index % 11 == 4, "item"] = ""
    table.loc[table.index % 23 == 7, ["kind", "item"]] = ""
    vectors = generator.standard_normal((24, 16))[item] + generator.standard_normal((count, 16))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    manifest = Manifest(table, levels=("kind", "item"), root=directory)
    return Index.build(directory, manifest, vectors.astype(np.float32), fingerprint="a" * 64)


@pytest.mark.parametrize("count", [2, 7, 700])
def test_the_first_results_are_those_of_the_evaluation(tmp_path, count):
    index = make_index(tmp_path / "index", count)
    found = analyse(index)
    labelled = np.flatnonzero(index.labels[:, 0] >= 0)
    np.testing.assert_array_equal(found.rows, labelled)
    numbers = np.arange(count)
    asked = (index.vectors[labelled], index.labels[labelled], index.vectors, index.labels, labelled, numbers)
    expected = retrieve(*asked, k=min(SHOWN, count - 1))
    np.testing.assert_array_equal(found.results, expected.indices)
    np.testing.assert_array_equal(found.levels, expected.levels)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-6)
    np.testing.assert_allclose(found.h_ap, evaluate(*asked).per_query["H-AP"])


def test_an_image_with_many_twins_is_not_its_own_result(tmp_path):
    index = make_index(tmp_path / "index", 60)
    vectors = np.array(index.vectors)
    vectors[:40] = vectors[0]
    twins = Index.build(tmp_path / "twins", index.items, vectors, fingerprint="a" * 64)
    found = analyse(twins)
    assert found.results.shape[1] == SHOWN
    assert not (found.results == found.rows[:, None]).any()
    np.testing.assert_allclose(found.scores[found.rows < 40], 1, atol=1e-5)


def test_it_stops_when_told_to(tmp_path):
    stop = threading.Event()
    stop.set()
    assert analyse(make_index(tmp_path / "index", 300), stop=stop) is None


def test_the_end_of_the_server_waits_for_the_analysis(tmp_path):
    """A thread that outlives the interpreter ends in a traceback."""
    workers = Workers(1)
    before = set(threading.enumerate())
    workers.start_analysis(Explorer(make_index(tmp_path / "index", 5000)))
    begun = set(threading.enumerate()) - before
    assert begun
    workers.close()
    assert not any(thread.is_alive() for thread in begun)


def test_scores_leave_deleted_images_out(tmp_path):
    index = make_index(tmp_path / "index", 100)
    query = np.array(index.vectors[3])
    expected = np.delete(np.asarray(index.vectors) @ query, [1, 50])
    index.delete([index.ids[1], index.ids[50]])
    np.testing.assert_allclose(index.scores(query), expected, atol=1e-6)
