"""Figures of identification against loops, and the experiment end to end."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from happier.cli import app
from happier.errors import InputError
from happier.identification.experiment import OpenSplit, measure_identification
from happier.identification.measures import Claims, auroc, coverage_curve, expected_calibration_error
from tests.search.conftest import make_catalogue


def claims_of(seed, queries=40, depth=3):
    generator = np.random.default_rng(seed)
    truth = generator.integers(-2, 4, (queries, depth))
    nodes = np.where(
        generator.random((queries, depth)) < 0.6, truth, generator.integers(-1, 4, (queries, depth))
    )
    nodes = np.where(nodes < 0, -1, nodes)
    confidence = np.sort(generator.random((queries, depth)).round(2), axis=1)[:, ::-1]
    return Claims("any", nodes, confidence, truth, levelled=True)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 9999))
def test_figures_are_those_of_loops(seed):
    claims = claims_of(seed)
    confidence, right = claims.confidence[:, 0], claims.right[:, 0]
    bins = {}
    for value, good in zip(confidence, right, strict=True):
        bins.setdefault(min(int(value * 15), 14), []).append((value, good))
    slow = sum(abs(sum(v for v, _ in some) - sum(g for _, g in some)) for some in bins.values()) / len(right)
    assert expected_calibration_error(confidence, right) == pytest.approx(slow)
    pairs = [(p > n) + (p == n) / 2 for p in confidence[right] for n in confidence[~right]]
    if pairs:
        assert auroc(confidence, right) == pytest.approx(sum(pairs) / len(pairs))
    ranked = sorted(zip(-confidence, range(len(right)), strict=True))
    half = [right[row] for _, row in ranked[: len(right) // 2]]
    assert coverage_curve(confidence, right, np.array([0.5]))[0] == pytest.approx(np.mean(half))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 9999), threshold=st.floats(0, 1))
def test_answers_are_those_of_loops(seed, threshold):
    claims = claims_of(seed)
    depths, wrongs, severe = [], [], 0
    for nodes, confidence, truth in zip(claims.nodes, claims.confidence, claims.truth, strict=True):
        depth = wrong = 0
        for level in range(3):
            if nodes[level] < 0 or confidence[level] < threshold:
                break
            depth += 1
            mistaken = truth[level] != -1 and nodes[level] != truth[level]
            wrong += mistaken
            severe += mistaken and level == 0
        depths.append(depth)
        wrongs.append(wrong)
    found = claims.answers(threshold)
    assert found.depth == pytest.approx(np.mean(depths))
    assert found.severe == pytest.approx(severe / len(depths))
    assert found.wrong == pytest.approx(np.mean(wrongs))
    given_ = [wrong == 0 for depth, wrong in zip(depths, wrongs, strict=True) if depth]
    assert found.right == pytest.approx(np.mean(given_) if given_ else np.nan, nan_ok=True)
    some = [wrong for wrong in wrongs if wrong]
    assert found.severity == pytest.approx(np.mean(some) if some else np.nan, nan_ok=True)


def test_the_split_halves_classes_and_hides_some():
    labels = make_catalogue(700).manifest.labels()
    split = OpenSplit.draw(labels)
    fine = labels[:, -1]
    assert not set(split.index) & set(split.queries)
    hidden = set(fine[split.queries]) - set(fine[split.index])
    assert len(hidden) == 4  # of 36
    for one in set(fine[split.index]) - {-1}:
        in_index, all_images = (fine[split.index] == one).sum(), (fine == one).sum()
        assert in_index == (all_images + 1) // 2


def test_down_the_tree_answers_deeper_at_equal_accuracy():
    catalogue = make_catalogue(1500, seed=4)
    labels, ids = catalogue.manifest.labels(), [str(one) for one in catalogue.manifest.ids()]
    noisy = catalogue.vectors + 0.16 * np.random.default_rng(0).standard_normal(catalogue.vectors.shape)
    vectors = (noisy / np.linalg.norm(noisy, axis=1, keepdims=True)).astype(np.float32)
    split = OpenSplit.draw(labels)
    found = measure_identification(vectors, labels, split, level_names=catalogue.manifest.levels, ids=ids)
    methods = {one.name: one for one in found.methods}
    assert len(methods) == 5
    tree, nearest = methods["down the tree"], methods["nearest neighbour"]
    assert max(tree.calibration_error) < 0.08
    assert tree.depth_at_right > nearest.depth_at_right
    assert tree.new_auroc > 0.5
    assert found.new == pytest.approx(0.1, abs=0.06)


def test_what_cannot_be_measured_is_one_line():
    vectors = np.eye(4, dtype=np.float32)
    for labels, message in (
        ([[0], [1], [2], [3]], "queries and an index"),
        ([[0]] * 4, "two classes or more"),
    ):
        labels = np.array(labels)
        with pytest.raises(InputError, match=message):
            split = OpenSplit.draw(labels)
            measure_identification(vectors, labels, split, level_names=["a"], ids=list("abcd"))


def test_the_command_measures_it(tmp_path):
    catalogue = make_catalogue(300)
    catalogue.manifest.write(tmp_path / "m.parquet")
    np.save(tmp_path / "v.npy", catalogue.vectors)
    arguments = ["evaluate", str(tmp_path / "v.npy"), "--manifest", str(tmp_path / "m.parquet"), "--identify"]
    printed = CliRunner().invoke(app, [*arguments, "--resamples", "0"], catch_exceptions=False)
    assert "down the tree" in printed.stdout
    assert "expected calibration error" in " ".join(printed.stdout.split())
    asked = CliRunner().invoke(app, [*arguments, "--json", "-", "--resamples", "0"], catch_exceptions=False)
    data = json.loads(asked.stdout)
    assert data["identify"][0]["methods"][0]["name"] == "down the tree"
    assert len(data["identify"][0]["curves"]) == 3
