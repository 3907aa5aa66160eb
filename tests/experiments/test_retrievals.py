"""What models answer, in characters."""

import numpy as np
import pandas as pd
import pytest

from experiments.retrievals import ANSWERS, answers, character, related
from happier.data import Manifest
from happier.runs import Run


def test_characters_of_code_points():
    assert character("images/1f408-200d-2b1b/google.png") == "\U0001f408\u200d\u2b1b"
    assert character("images/2764/openmoji.png") == "\u2764\ufe0f"


@pytest.fixture
def manifest():
    # Two drawings each of a cat and a dog, of a loaf and of a cake.
    codes = ["1f408", "1f415", "1f35e", "1f370"]
    rows = [
        {
            "path": f"images/{code}/{artist}.png",
            "group": "animals" if number < 2 else "food",
            "emoji": code,
            "split": "test",
        }
        for number, code in enumerate(codes)
        for artist in ("a", "b")
    ]
    return Manifest(pd.DataFrame(rows), levels=("group", "emoji"), root=".")


def test_answers_stand_in_order_with_their_levels(manifest):
    right = np.repeat(np.eye(4, dtype=np.float32), 2, axis=0)
    right[:4, 0] += 0.5  # cats and dogs alike, then the rest
    wrong = right[[0, 4, 1, 5, 2, 6, 3, 7]]
    found = answers(
        {"right": Run("x", "right", right, manifest), "wrong": Run("y", "wrong", wrong, manifest)}
    )
    assert [one["group"] for one in found] == ["animals", "food"]
    animals = found[0]
    assert animals["query"] in {"\U0001f408", "\U0001f415"}
    assert [level for _, level in animals["answers"]["right"][:3]] == [2, 1, 1]
    assert animals["answers"]["right"][0][0] == animals["query"]
    assert [level for _, level in animals["answers"]["wrong"][:3]] != [2, 1, 1]


def test_related_answers_are_counted_over_all_queries(manifest):
    right = np.repeat(np.eye(4, dtype=np.float32), 2, axis=0)
    right[:4, 0] += 0.5
    right[4:, 2] += 0.5
    # Three of the others are of the same group, and every model ranks them first.
    assert related(Run("x", "right", right, manifest)) == pytest.approx(3 / ANSWERS)
