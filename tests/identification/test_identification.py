"""Probabilities down the tree: against loops, and what must hold for any index."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from happier.identification.answers import Answer, Choice, Step, descend
from happier.identification.calibration import Calibration, LevelCalibration
from happier.identification.choice import choice_probabilities, fit_choice
from happier.identification.learn_calibration import NEIGHBOURS, calibrate
from happier.identification.measures import expected_calibration_error
from happier.identification.tree import ROOT, NodeTree
from happier.identification.votes import Neighbours

seeds = st.integers(0, 10_000)


def world(seed, *, images=120, depth=3, unknown=0.2, noise=0.5):
    """Vectors around the classes of a random tree, some labels known only in part."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, (images, depth))
    _, fine = np.unique(labels, axis=0, return_inverse=True)
    centres = generator.standard_normal((int(fine.max()) + 1, 12))
    vectors = centres[fine] + noise * generator.standard_normal((images, 12))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for row in np.flatnonzero(generator.random(images) < unknown):
        labels[row, generator.integers(0, depth) :] = -1
    return vectors.astype(np.float32), labels.astype(np.int64)


def random_calibration(seed, depth=3):
    generator = np.random.default_rng(seed)
    return Calibration(
        temperature=float(generator.uniform(0.01, 0.3)),
        images=1,
        levels=[
            LevelCalibration(
                known=generator.standard_normal(16).tolist(),
                new=generator.standard_normal(5).tolist(),
                nearest=[0.5, 0.2],
                stands_out=[0.1, 0.1],
                images=1,
                new_images=1,
            )
            for _ in range(depth)
        ],
    )


def neighbours_of(vectors, queries):
    """All images sorted by similarity; the first 32, and the next one's similarity."""
    scores = queries.astype(np.float64) @ vectors.T.astype(np.float64)
    order = np.argsort(-scores, axis=1, kind="stable")[:, : NEIGHBOURS + 1]
    return Neighbours.from_ranking(order, np.take_along_axis(scores, order, axis=1))


def slow_probabilities(vectors, labels, query, calibration):
    """Probability of every class path that gets votes, and of new below it, by the formulas, in loops."""
    ranked = sorted(
        range(len(vectors)), key=lambda row: (-float(np.float64(vectors[row]) @ np.float64(query)), row)
    )
    score = {row: float(np.float64(vectors[row]) @ np.float64(query)) for row in ranked}
    near, beyond = ranked[:NEIGHBOURS], score[ranked[NEIGHBOURS]]
    t = calibration.temperature
    weight = {
        row: max(math.exp(score[row] / t) - math.exp(beyond / t), 1e-6 * math.exp(score[row] / t))
        for row in near
    }
    found = {(): 1.0}
    new = {}
    for depth, level in enumerate(calibration.levels):
        for path in [one for one in found if len(one) == depth]:
            children = {tuple(row[: depth + 1]) for row in labels.tolist() if tuple(row[:depth]) == path} - {
                (*path, -1)
            }
            votes = {}
            voters = [row for row in near if tuple(labels[row, :depth]) == path and labels[row, depth] != -1]
            for row in voters:
                child = tuple(int(one) for one in labels[row, : depth + 1])
                votes[child] = votes.get(child, 0.0) + weight[row]
            if not votes:
                continue
            total = sum(votes.values())
            share = {child: value / total for child, value in votes.items()}
            top = math.log(max(max(share.values()), 1e-3))
            nearest = max(score[row] for row in voters)
            z = (nearest - level.nearest[0]) / level.nearest[1]
            g = (nearest - beyond - level.stands_out[0]) / level.stands_out[1]
            inside = sum(weight[row] for row in near if tuple(labels[row][:depth].tolist()) == path)
            v = math.log(max(inside / sum(weight.values()), 1e-3))
            n, b, lead, a = level.new, level.known[:9], level.known[9:12], level.known[12:]
            p_new = 1 / (1 + math.exp(-(n[0] + n[1] * z + n[2] * top + n[3] * g + n[4] * v)))
            utility = {}
            for child, value in share.items():
                best = max(score[row] for row in voters if tuple(labels[row][: depth + 1].tolist()) == child)
                utility[child] = (b[0] + b[1] * z + b[2] * v) * math.log(max(value, 1e-3))
                utility[child] += (b[3] + b[4] * z + b[5] * v) * value
                utility[child] += b[6] * (nearest - best) / level.stands_out[1]
                deepest = {}
                for row in voters:
                    if tuple(labels[row][: depth + 1].tolist()) == child:
                        own = tuple(labels[row].tolist())
                        deepest[own] = deepest.get(own, 0.0) + weight[row] / total
                most = max(deepest.values())
                utility[child] += b[7] * most + b[8] * math.log(max(most, 1e-3))
            utility[max(share, key=share.get)] += lead[0] + lead[1] * top + lead[2] * v
            if len(votes) < len(children):
                utility["another"] = a[0] + a[1] * z + a[2] * top + a[3] * v
            whole = sum(math.exp(value) for value in utility.values())
            for child in votes:
                found[child] = found[path] * (1 - p_new) * math.exp(utility[child]) / whole
            new[path] = found[path] * p_new
    return found, new


@pytest.mark.parametrize("seed", range(4))
def test_probabilities_are_those_of_the_formulas(seed):
    vectors, labels = world(seed)
    queries, _ = world(seed + 100, images=6)
    tree, calibration = NodeTree.from_labels(labels), random_calibration(seed)
    paths = descend(tree, calibration, neighbours_of(vectors, queries), np.full(6, ROOT))
    name = {
        int(tree.nodes[row, level]): tuple(labels[row, :level].tolist())
        for row in range(len(labels))
        for level in range(4)
        if tree.nodes[row, level] >= 0
    }
    for query, steps in zip(queries, paths, strict=True):
        found, new = slow_probabilities(vectors, labels, query, calibration)
        assert len(steps) >= 2
        for step in steps:
            assert step.probability == pytest.approx(found[name[step.node]], rel=1e-9)
            assert step.new == pytest.approx(new.get(name[step.node], 0.0), rel=1e-9)
            children = {
                name[child]: value for child, value in zip(step.children, step.probabilities, strict=True)
            }
            expected = {path: value for path, value in found.items() if path[:-1] == name[step.node] and path}
            assert children == pytest.approx(expected, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(seed=seeds, images=st.integers(1, 60), unknown=st.floats(0, 1), alike=st.booleans())
def test_probabilities_fall_and_sum_to_at_most_one(seed, images, unknown, alike):
    vectors, labels = world(seed, images=images, unknown=unknown)
    if alike:
        vectors[:] = vectors[0]
    tree, calibration = NodeTree.from_labels(labels), random_calibration(seed)
    for steps in descend(tree, calibration, neighbours_of_few(vectors), np.full(len(vectors), ROOT)):
        assert steps[0].node == ROOT
        assert steps[0].probability == 1
        for step, below in zip(steps, [*steps[1:], None], strict=True):
            assert sum(step.probabilities) + step.new <= step.probability * (1 + 1e-9)
            assert all(0 <= one <= step.probability for one in (*step.probabilities, step.new))
            assert list(step.probabilities) == sorted(step.probabilities, reverse=True)
            assert all(tree.parent[child] == step.node for child in step.children)
            if below is not None:
                assert below.node == step.children[0]
                assert below.probability == step.probabilities[0]


def neighbours_of_few(vectors):
    """As `neighbours_of`, for any number of images."""
    scores = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    order = np.argsort(-scores, axis=1, kind="stable")[:, : NEIGHBOURS + 1]
    rows = np.full((len(vectors), NEIGHBOURS + 1), -1)
    found = np.full(rows.shape, -np.inf)
    rows[:, : order.shape[1]] = order
    found[:, : order.shape[1]] = np.take_along_axis(scores, order, axis=1)
    return Neighbours.from_ranking(rows, found)


def test_fitted_choices_have_no_gradient():
    """At the optimum the penalised likelihood falls in no direction, by finite differences in loops."""
    generator = np.random.default_rng(0)
    features = generator.standard_normal((200, 4, 3))
    available = generator.random((200, 4)) < 0.8
    chosen = generator.integers(0, 4, 200)
    available[np.arange(200), chosen] = True
    weights, prior = generator.random(200), np.array([1.0, 0.0, -1.0])
    theta, likelihood = fit_choice(features, available, chosen, weights=weights, prior=prior)

    def cost(at):
        total = sum((x - y) ** 2 for x, y in zip(at, prior, strict=True)) / 2
        for row in range(200):
            power = [math.exp(float(features[row, j] @ at)) if available[row, j] else 0.0 for j in range(4)]
            total -= weights[row] * math.log(power[chosen[row]] / sum(power))
        return total

    assert likelihood == pytest.approx(cost(theta) - sum((theta - prior) ** 2) / 2)
    for axis in np.eye(3):
        slope = (cost(theta + 1e-5 * axis) - cost(theta - 1e-5 * axis)) / 2e-5
        assert abs(slope) < 1e-3
    given = choice_probabilities(features, available, theta)
    np.testing.assert_allclose(given.sum(axis=1), 1)
    assert (given[~available] == 0).all()


def test_calibration_does_not_depend_on_the_order_of_the_index():
    vectors, labels = world(3, images=300)
    ids = [f"image {row}" for row in range(300)]
    order = np.random.default_rng(5).permutation(300)
    first = calibrate(vectors, labels, ids)
    second = calibrate(vectors[order], labels[order], [ids[row] for row in order])
    assert first is not None
    assert second is not None
    assert first.temperature == second.temperature
    for one, other in zip(first.levels, second.levels, strict=True):
        np.testing.assert_allclose(one.known, other.known, atol=1e-4)
        np.testing.assert_allclose(one.new, other.new, atol=1e-4)
        assert (one.images, one.new_images) == (other.images, other.new_images)


def test_rows_that_were_deleted_do_not_matter():
    vectors, labels = world(4, images=200)
    ids = [str(row) for row in range(200)]
    junk = np.random.default_rng(0).permutation(vectors)[:50]
    positions = np.arange(200) + np.searchsorted([10, 60, 150], np.arange(200)) * 10
    everything = np.resize(junk, (230, 12)).copy()
    everything[positions] = vectors
    first, second = calibrate(vectors, labels, ids), calibrate(everything, labels, ids, positions=positions)
    assert first is not None
    assert second is not None
    np.testing.assert_allclose(first.levels[0].known, second.levels[0].known, atol=1e-4)


@pytest.mark.parametrize("labels", [[[0, 0]] * 20, [[-1, -1]] * 20, [[0, -1]] * 20])
def test_nothing_to_choose_is_no_calibration(labels):
    vectors = world(0, images=20)[0]
    assert calibrate(vectors, np.array(labels), [str(row) for row in range(20)]) is None


def test_few_images_are_said_to_be_rough():
    vectors, labels = world(0, images=40)
    found = calibrate(vectors, labels, [str(row) for row in range(40)])
    assert found is not None
    assert found.rough
    assert "rough" in found.describe()


def test_probabilities_come_true():
    """Ten thousand-fold promises, kept: on new images, seven in ten of those called 0.7 are right."""
    vectors, labels = world(7, images=3000, unknown=0, noise=1.3)
    index, queries = np.arange(3000) % 2 == 0, np.arange(3000) % 2 == 1
    found = calibrate(vectors[index], labels[index], [str(row) for row in np.flatnonzero(index)])
    assert found is not None
    assert not found.rough
    tree = NodeTree.from_labels(labels[index])
    paths = descend(tree, found, neighbours_of(vectors[index], vectors[queries]), np.full(1500, ROOT))
    for level in (1, 2, 3):
        claims, right = [], []
        for steps, truth in zip(paths, labels[queries], strict=True):
            if len(steps) > level:
                claims.append(steps[level].probability)
                right.append((labels[index][tree.example[steps[level].node], :level] == truth[:level]).all())
        claimed, came_true = np.array(claims), np.array(right)
        # New classes are expected, and there are none: the promises err on the careful side.
        assert -0.02 < came_true.mean() - claimed.mean() < 0.08
        for low, high in ((0.0, 0.3), (0.3, 0.6), (0.6, 0.9)):
            some = (claimed >= low) & (claimed < high)
            if some.sum() > 100:
                assert abs(came_true[some].mean() - claimed[some].mean()) < 0.13


def test_promises_about_coarse_classes_hold_for_new_fine_ones():
    """One query in ten is of a class that the index lacks; its coarser classes are harder to find."""
    vectors, labels = world(3, images=5000, unknown=0, noise=1.0)
    _, fine = np.unique(labels, axis=0, return_inverse=True)
    index = (np.arange(5000) % 2 == 0) & ~np.isin(fine, [4, 13, 22])
    queries = np.arange(5000) % 2 == 1
    found = calibrate(vectors[index], labels[index], [str(row) for row in np.flatnonzero(index)])
    assert found is not None
    tree = NodeTree.from_labels(labels[index])
    near = neighbours_of(vectors[index], vectors[queries])
    paths = descend(tree, found, near, np.full(int(queries.sum()), ROOT))
    for level in (1, 2, 3):
        claimed = np.array([steps[level].probability for steps in paths])
        named = np.array([labels[index][tree.example[steps[level].node]] for steps in paths])
        right = (named[:, :level] == labels[queries][:, :level]).all(axis=1)
        assert abs(claimed.mean() - right.mean()) < 0.03
        assert expected_calibration_error(claimed, right) < 0.05


STEPS = (
    Step("", 0, 1.0, 0.02, (Choice("animals", 0.97),)),
    Step("animals", 1, 0.97, 0.0, (Choice("animals/birds", 0.95),)),
    Step("animals/birds", 2, 0.95, 0.7, (Choice("animals/birds/owl", 0.2),)),
    Step("animals/birds/owl", 3, 0.2, 0.0, ()),
)


@pytest.mark.parametrize(
    ("sure", "path", "new"),
    [
        (0.99, "", False),
        (0.96, "animals", False),
        (0.9, "animals/birds", False),
        (0.6, "animals/birds", True),
        (0.1, "animals/birds/owl", False),
    ],
)
def test_the_deepest_statement_that_is_sure(sure, path, new):
    answer = Answer.among(STEPS, sure)
    assert (answer.class_path, answer.new) == (path, new)
    assert answer.probability >= sure or not path
