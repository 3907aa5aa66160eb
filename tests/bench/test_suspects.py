"""Planted mistakes: where they are, and that the measurement counts them as a loop does."""

import numpy as np
import pandas as pd
import pytest

from happier.bench.suspects import OURS, measure_suspects, plant_mistakes
from happier.curation.labelled_vectors import LabelledVectors
from happier.data import Manifest
from happier.errors import InputError
from happier.taxonomy import path_codes, shared_levels


def tree():
    labels = np.array([[a, b, c] for a in range(2) for b in range(2) for c in range(3) for _ in range(5)])
    return path_codes(labels)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_mistakes_begin_at_their_level(level):
    labels = tree()
    wrong, planted = plant_mistakes(labels, level, share=0.2, seed=3)
    assert len(planted) == len(set(planted.tolist())) == 12
    shared = [int(shared_levels(labels[[row]], wrong[[row]])[0, 0]) for row in range(len(labels))]
    assert [shared[row] for row in planted] == [level] * 12
    assert all(shared[row] == 3 for row in set(range(len(labels))) - set(planted.tolist()))
    again = plant_mistakes(labels, level, share=0.2, seed=3)
    assert (again[0] == wrong).all()


def test_no_mistake_is_possible():
    with pytest.raises(InputError, match="differ from level 2 on"):
        plant_mistakes(path_codes(np.array([[0, 0], [1, 0]])), 1, share=0.5, seed=0)


def test_clear_vectors_show_every_mistake():
    labels = tree()
    rng = np.random.default_rng(0)
    vectors = sum(np.eye(12)[labels[:, level] % 12] * (3 - level) for level in range(3))
    vectors = np.hstack([vectors, 2 * np.eye(12)[labels[:, 2]]]) + 0.05 * rng.normal(size=(60, 24))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    table = pd.DataFrame(labels.astype(str), columns=["a", "b", "c"]).assign(split="train")
    table["path"] = [f"{row}.png" for row in range(60)]
    found = LabelledVectors(vectors, Manifest(table, levels=["a", "b", "c"], root="."))
    figures = measure_suspects(found, share=0.05, seeds=(0, 1), k=8)
    ours = [one for one in figures if one.way == OURS]
    assert [(one.level, one.planted, one.precision, one.recall) for one in ours] == [
        (level, 3, 1.0, 1.0) for level in "abc"
    ]
    assert len({one.way for one in figures}) == 5, "cleanlab by two kinds of classes and of probabilities"
    assert all(0 <= one.precision <= 1 for one in figures)
